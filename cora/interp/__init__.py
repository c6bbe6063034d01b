"""The NumPy interpreter: the meaning of a program, and the oracle of the tests."""

from cora.interp.program import interpret
from cora.interp.reference import Reference

__all__ = ["Reference", "interpret"]
