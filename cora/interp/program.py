"""`cora.interpret`: a program run as it was defined, without a schedule, in NumPy.

Numbers: every floating-point type is computed in float64 and never rounded to its own type (nor by
a cast, nor in a tensor between two operators), literals excepted: 0.1 in float32 is the nearest
float32. Integers are int64, bool is bool. Integers wrap to the width of a tensor's type where they
are stored in one, not in between. Infinities give the mathematical limit (gelu(-inf) is 0). Floats
truncate to integers; what becomes of a NaN, or of a float outside the integer's range, is not
defined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from cora.errors import UserError
from cora.interp.evaluate import Evaluator
from cora.interp.inputs import bind_lengths, bind_sizes, by_tensor
from cora.interp.reference import Reference
from cora.ir.tensor import Tensor
from cora.lang.check import program
from cora.storage.array import RaggedArray

Inputs = Mapping[str, RaggedArray] | Sequence[RaggedArray]


@overload
def interpret(
    outputs: Tensor,
    inputs: Inputs = ...,
    *,
    sizes: Mapping[str, int] | None = ...,
    lengths: Mapping[str, Any] | None = ...,
) -> Reference: ...


@overload
def interpret(
    outputs: Sequence[Tensor],
    inputs: Inputs = ...,
    *,
    sizes: Mapping[str, int] | None = ...,
    lengths: Mapping[str, Any] | None = ...,
) -> tuple[Reference, ...]: ...


def interpret(
    outputs: Tensor | Sequence[Tensor],
    inputs: Inputs = (),
    *,
    sizes: Mapping[str, int] | None = None,
    lengths: Mapping[str, Any] | None = None,
) -> Reference | tuple[Reference, ...]:
    """The valid elements of `outputs`: one Reference for a tensor, a tuple for a sequence.

    outputs: computed tensors; the tensors between them and the inputs are computed on the way.
    inputs: arrays by tensor name, or in order of first use.
    sizes, lengths: run-time sizes and lengths by name, where the inputs do not determine them, and
      compared with the inputs where they do. Lengths are flat in row-major order, or nested lists.

    Raises UserError for an input that is missing or does not fit, sizes or lengths that are missing
    or disagree, an access outside its tensor and an integer division by zero (both name the point).
    """
    wanted = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
    for tensor in wanted:
        if tensor.body is None:
            raise UserError(f"interpret: an output must be a computed tensor; got input {tensor}")
    order = program(wanted)
    arrays = by_tensor([t for t in order if t.body is None], inputs)
    evaluator = Evaluator(bind_sizes(arrays, sizes or {}), bind_lengths(arrays, lengths or {}))
    # Overflow, 0 / 0 and log(0) have their IEEE values, in silence.
    with np.errstate(all="ignore"):
        for tensor, array in arrays.items():
            evaluator.hold(tensor, array.layout.dims, array.packed())
        for tensor in order:
            if tensor.body is not None:
                evaluator.compute(tensor)
        results = tuple(evaluator.reference(tensor) for tensor in wanted)
    return results[0] if isinstance(outputs, Tensor) else results
