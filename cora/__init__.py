"""cora: a compiler for ragged tensors.

Define operators over dimensions whose size depends on other dimensions, schedule them, build them once, and run
them on every batch. The public program is in the README; the architecture in docs/architecture.md.
"""

from typing import TYPE_CHECKING, Any

from cora.codegen.target import tile_shape
from cora.errors import CoraError, InternalError, ScheduleError, UnsupportedError, UserError
from cora.ir.expr import Dim
from cora.ir.tensor import Tensor
from cora.lang.define import compute, lengths, placeholder, size
from cora.lang.ops import (
    abs,
    argmax,
    argmin,
    cast,
    equal,
    erf,
    exp,
    gelu,
    log,
    max,
    maximum,
    mean,
    min,
    minimum,
    not_equal,
    prod,
    rsqrt,
    sigmoid,
    sqrt,
    sum,
    tanh,
    where,
)
from cora.runtime.build import build, load
from cora.runtime.deploy import KernelCall, deploy
from cora.runtime.kernel import Kernel
from cora.runtime.plan import Plan, plan
from cora.runtime.wanted import Deferred
from cora.schedule.schedule import Schedule, from_json, schedule
from cora.settings import Settings
from cora.storage.array import RaggedArray, ragged
from cora.storage.layout import Layout, Pad
from cora.tiles.given import MicroKernel

if TYPE_CHECKING:
    from cora.interp import interpret

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The interpreter, when it is first asked for: running kernels does not need it."""
    if name == "interpret":
        from cora.interp import interpret

        return interpret
    raise AttributeError(f"module 'cora' has no attribute '{name}'")


__all__ = [
    "CoraError",
    "Deferred",
    "Dim",
    "InternalError",
    "Kernel",
    "KernelCall",
    "Layout",
    "MicroKernel",
    "Pad",
    "Plan",
    "RaggedArray",
    "Schedule",
    "ScheduleError",
    "Settings",
    "Tensor",
    "UnsupportedError",
    "UserError",
    "__version__",
    "abs",
    "argmax",
    "argmin",
    "build",
    "cast",
    "compute",
    "deploy",
    "equal",
    "erf",
    "exp",
    "from_json",
    "gelu",
    "interpret",
    "lengths",
    "load",
    "log",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "not_equal",
    "placeholder",
    "plan",
    "prod",
    "ragged",
    "rsqrt",
    "schedule",
    "sigmoid",
    "size",
    "sqrt",
    "sum",
    "tanh",
    "tile_shape",
    "where",
]
