"""A schedule of forty steps with three stages builds and is right: softmax of ragged scores, scaled and projected."""

from __future__ import annotations

import numpy as np

import cora
from benchmarks.long_schedule import V, X, Y, bias, forty_steps, result
from tests.reference import assert_matches


def test_forty_steps_and_four_stages() -> None:
    s = forty_steps()
    assert len(s.steps) >= 40
    assert len(s.state.attached) == 4
    assert cora.from_json([result], s.to_json()) == s
    kernel = cora.build(s, settings=cora.Settings(cache=False))
    rng = np.random.default_rng(5)
    for queries, keys in (([], []), ([0, 0], [3, 0]), ([1, 25, 0, 49], [1, 130, 5, 17]), ([7], [0])):
        lengths = {"lens": queries, "kv": keys}
        arrays = {}
        for tensor in (X, Y, V, bias):
            used = {} if tensor is bias else {"lens": queries} if tensor is X else {"kv": keys}
            values = rng.standard_normal(cora.RaggedArray.empty(tensor, used, {"M": len(keys)}).values.size)
            packed = cora.RaggedArray.from_values(values.astype(np.float32), tensor, used, {"M": len(keys)})
            arrays[tensor.name] = packed.to_layout(kernel.layout(tensor.name), fill=np.nan)
        reference = cora.interpret(result, arrays, lengths=lengths, sizes={"M": len(keys)})
        plan = cora.plan(kernel, threads=2, **lengths)
        empty = cora.RaggedArray.empty(result, {"lens": queries}, {"M": len(keys)}, fill=np.nan)
        given = (arrays[name] for name in kernel.inputs)
        assert_matches(reference, kernel.run(plan, *given, outputs={"result": empty}))
