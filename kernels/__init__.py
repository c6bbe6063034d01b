"""Ready-made ragged kernels: definitions, and schedules for each back end apart from them."""
