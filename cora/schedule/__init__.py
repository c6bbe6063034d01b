"""The schedule language: frozen steps, what they do to loops and layouts, and the default schedule."""
