"""The errors of cora: one root, four kinds.

A message names the operation, the argument, what was expected and what came.
"""


class CoraError(Exception):
    """Root of every error that cora raises on purpose."""


class UserError(CoraError, ValueError):
    """An argument is wrong: a length array, a layout, an index, a name."""


class ScheduleError(CoraError, ValueError):
    """A scheduling step is illegal for the operator it was applied to; the message gives the reason."""


class UnsupportedError(CoraError, NotImplementedError):
    """A legal request that this version, this back end or this data type cannot serve."""


class InternalError(CoraError, RuntimeError):
    """A pass broke its own contract: a bug of cora, never of the program given to it."""
