"""Native code: lowered functions to TIR, to LLVM, to shared libraries that are cached and loaded.

This package imports no TVM by itself: `target`, `cache` and `load` run where only the TVM run time is wanted.
"""
