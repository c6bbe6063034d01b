"""CUDA: lowered functions to kernels, to CUDA C++ (by TVM), to machine code (by NVRTC)."""
