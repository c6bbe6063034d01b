"""Storage order of dims, and load hoisting as a choice."""

from __future__ import annotations

import pytest

import cora
from tests.schedule.test_stages import SETTINGS, A, B, X, batch, check, h, i, j

Y = cora.compute("Y", [batch, i, h, j], X[batch, i, h, j] + 1.0)


def test_an_output_stored_in_another_order() -> None:
    kernel = check(cora.schedule(Y).reorder_dims(Y, batch, h, i, j).vectorize(Y, j), X)
    assert kernel.layout("Y").describe() == "[batch: M][h: 3][i: lens[batch]][j: lens[batch]]"


def test_an_input_stored_in_another_order() -> None:
    kernel = cora.build(cora.schedule(Y).reorder_dims(X, batch, j, h, i), settings=SETTINGS)
    x = cora.RaggedArray.empty(X, {"lens": [2, 0, 3]})
    x.values[:] = range(x.values.size)
    moved = x.to_layout(kernel.layout("X"))
    assert kernel(moved).to_list() == cora.interpret(Y, [x]).to_list()
    with pytest.raises(cora.UserError, match="expected the layout"):
        kernel(x)


@pytest.mark.parametrize(
    ("order", "message"),
    [((batch, i), "expected all of its dims"), ((i, batch, h, j), "must be stored outside it")],
)
def test_refusals(order: tuple[cora.Tensor, ...], message: str) -> None:
    with pytest.raises(cora.ScheduleError, match=message):
        cora.schedule(Y).reorder_dims(Y, *order)


def test_loads_stay_in_the_loops_if_asked() -> None:
    hoisted = check(cora.schedule(B).vectorize(B, i), A).ir("lowered")
    kept = check(cora.schedule(B).vectorize(B, i).hoist_loads(False), A).ir("lowered")
    assert "B[offset_" in hoisted
    assert "B[offset[batch]" in kept
