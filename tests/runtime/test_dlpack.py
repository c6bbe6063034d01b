"""Arrays of other libraries: anything with `__dlpack__` in CPU memory, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cora
from tests.runtime.programs import UNCACHED, A, batch, kernel, pos

shape = [3, 1, 0]


class Foreign:
    """An array of which nothing is known but its DLPack."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class OnDevice(Foreign):
    """An array that says that it lies on a GPU."""

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise BufferError("it lies on a GPU")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


@pytest.fixture
def values() -> np.ndarray[Any, Any]:
    return np.arange(1, 5, dtype=np.float32)


def test_inputs(values: np.ndarray[Any, Any]) -> None:
    expected = [[2, 4, 6], [8], []]
    plan = cora.plan(kernel("scale"), lens=shape)
    assert kernel("scale")(Foreign(values), lens=shape).to_list() == expected
    assert kernel("scale")(A=Foreign(values), lens=Foreign(np.array(shape))).to_list() == expected
    assert kernel("scale").run(plan, Foreign(values)).to_list() == expected


def test_a_dense_input_tells_its_size(values: np.ndarray[Any, Any]) -> None:
    assert kernel("dense")(Foreign(values)).numpy().tolist() == [2, 3, 4, 5]
    with pytest.raises(cora.UserError, match=r"'T': expected the shape \(3,\); got \(4,\)"):
        kernel("dense").run(cora.plan(kernel("dense"), N=3), Foreign(values))


def test_outputs_are_written_in_place(values: np.ndarray[Any, Any]) -> None:
    plan = cora.plan(kernel("scale"), lens=shape)
    memory = np.full(4, np.nan, np.float32)
    out = Foreign(memory)
    assert kernel("scale").run(plan, Foreign(values), outputs={"O": out}) is out
    assert memory.tolist() == [2, 4, 6, 8]


def test_memory_is_asked_for_at_each_run(values: np.ndarray[Any, Any]) -> None:
    plan = cora.plan(kernel("scale"), lens=shape)
    source, memory = Foreign(values), np.zeros(4, np.float32)
    for scale in (1, 10):
        source._array = scale * values  # as another library may do behind one object
        kernel("scale").run(plan, source, outputs={"O": memory})
        assert memory.tolist() == (2 * scale * values).tolist()


def test_refusals(values: np.ndarray[Any, Any]) -> None:
    run, plan = kernel("scale").run, cora.plan(kernel("scale"), lens=shape)
    with pytest.raises(cora.UserError, match="'A': expected values of type float32; got float64"):
        run(plan, Foreign(values.astype(np.float64)))
    with pytest.raises(cora.UserError, match="'A': the values must be C-contiguous"):
        run(plan, Foreign(np.zeros(8, np.float32)[::2]))
    with pytest.raises(cora.UserError, match=r"'A': the layout .* stores 4 elements on this batch; got 3"):
        run(plan, Foreign(values[:3]))
    with pytest.raises(cora.UserError, match=r"'A': expected a tensor in CPU memory .* it lies on a GPU"):
        run(plan, OnDevice(values))
    with pytest.raises(cora.UserError, match="output 'O' overlaps 'A' in memory"):
        run(plan, values, outputs={"O": Foreign(values)})
    values.setflags(write=False)
    with pytest.raises(cora.UserError, match="'O': the values of an output must be writable"):
        run(plan, np.zeros(4, np.float32), outputs={"O": Foreign(values)})


def test_bfloat16_comes_as_its_bits() -> None:
    half = cora.placeholder("H", A.dims, "bfloat16")
    k = cora.build(cora.compute("O", [batch, pos], 2 * half[batch, pos]), settings=UNCACHED)
    array = cora.ragged([[1, 2, 3], [4], []], half)
    bits = Foreign(array.numpy().view(np.int16))
    assert k(bits, lens=shape).to_list() == [[2, 4, 6], [8], []]


def test_results_go_out_without_a_copy(values: np.ndarray[Any, Any]) -> None:
    out = kernel("scale")(values, lens=shape)
    seen = np.from_dlpack(out)
    assert seen.tolist() == [2, 4, 6, 8]
    assert np.shares_memory(seen, out.numpy())
