"""Lowering: from a scheduled program to flat loops over buffers. The passes, in order, are in `pipeline`."""
