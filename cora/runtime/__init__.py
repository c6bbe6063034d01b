"""Building, planning and running kernels."""
