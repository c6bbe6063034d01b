"""Arguments of a run: right answers or errors, before any memory is touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cora
from tests.guard_pages import guarded
from tests.runtime.programs import A, B, I, T, batch, kernel, lens, pos, rows

a = rows([1, 2, 3], [4], [])
packed = np.arange(1, 5, dtype=np.float32)
shape = [3, 1, 0]


def plan(name: str = "scale", **named: Any) -> cora.Plan:
    return cora.plan(kernel(name), **(named or {"lens": shape}))


def refused(match: str, kind: type[Exception] = cora.UserError) -> Any:
    return pytest.raises(kind, match=match)


class TestInputs:
    def test_numpy_arrays_are_packed_values(self) -> None:
        assert kernel("scale")(packed, lens=shape).to_list() == [[2, 4, 6], [8], []]
        assert kernel("scale")(packed.reshape(2, 2), lens=shape).to_list() == [[2, 4, 6], [8], []]

    def test_read_only_input_works(self) -> None:
        values = packed.copy()
        values.setflags(write=False)
        assert kernel("scale").run(plan(), values).to_list() == [[2, 4, 6], [8], []]
        from_bytes = np.frombuffer(packed.tobytes(), np.float32)
        assert kernel("scale").run(plan(), from_bytes).to_list() == [[2, 4, 6], [8], []]

    def test_wrong_types(self) -> None:
        run = kernel("scale").run
        for wrong in (packed.astype(np.float64), packed.astype(">f4"), packed.astype(np.int32)):
            with refused("'A': expected values of type float32; got"):
                run(plan(), wrong)
        with refused("'A': expected a RaggedArray, a NumPy array or an object with __dlpack__; got list"):
            run(plan(), [1.0, 2.0, 3.0, 4.0])
        with refused("'A': expected a RaggedArray.*got NoneType"):
            kernel("scale")(None, lens=shape)

    def test_non_contiguous_and_misaligned(self) -> None:
        with refused(r"'A': the values must be C-contiguous and aligned; got strides \(8,\)"):
            kernel("scale").run(plan(), np.zeros(8, np.float32)[::2])
        misaligned = np.zeros(17, np.uint8)[1:].view(np.float32)
        with refused("'A': the values must be C-contiguous and aligned"):
            kernel("scale").run(plan(), misaligned)

    def test_too_short_and_too_long(self) -> None:
        for count in (0, 3, 5):
            with refused(rf"'A': the layout .* stores 4 elements on this batch; got {count}"):
                kernel("scale").run(plan(), np.zeros(count, np.float32))

    def test_dense_shape(self) -> None:
        assert kernel("dense")(packed).numpy().tolist() == [2, 3, 4, 5]
        with refused(r"'T': expected the shape \(3,\); got \(4,\)"):
            kernel("dense").run(plan("dense", N=3), packed)

    def test_wrong_layout(self) -> None:
        padded = a.to_layout(cora.Layout.packed([batch, pos]).with_pad(pos, 4))
        with refused(
            r"'A': expected the layout \[batch: M\]\[pos: lens\[batch\]\]; got .*padded to 4.*to_layout"
        ):
            kernel("scale")(padded)
        assert kernel("scale")(padded.to_layout(kernel("scale").layout("A"))).to_list() == [
            [2, 4, 6],
            [8],
            [],
        ]

    def test_number_and_names(self) -> None:
        k = kernel("scale")
        with refused(r"expected 1 inputs \(A\); got 2"):
            k.run(plan(), a, a)
        with refused(r"expected 1 inputs \(A\); got 0"):
            k.run(plan())
        with refused(r"expected 1 inputs \(A\); got 2"):
            k(a, a)
        with refused("input 'A' is given twice"):
            k(a, A=a)
        with refused(r"input\(s\) A are missing"):
            k(lens=shape)
        with refused("unknown argument 'B'; inputs are A, lengths lens, sizes M"):
            k(a, B=a)

    def test_by_name(self) -> None:
        b = cora.ragged([[1, 1, 1], [1], []], B)
        assert kernel("add")(B=b, A=a).to_list() == [[2, 3, 4], [5], []]
        assert kernel("add")(a, B=b).to_list() == [[2, 3, 4], [5], []]

    def test_no_rows(self) -> None:
        assert kernel("scale")(rows()).to_list() == []
        assert kernel("scale")(rows([], [])).to_list() == [[], []]
        assert kernel("first")(rows()).to_list() == []

    def test_no_inputs(self) -> None:
        assert kernel("positions")(lens=[2, 0, 1]).to_list() == [[0, 1], [], [0]]


class TestLengths:
    @pytest.mark.parametrize(
        ("value", "match"),
        [
            ([1, -2], "every entry must be between 0 and .*; got -2 at entry 1"),
            ([1, 2**31], "every entry must be between 0 and .*; got 2147483648 at entry 1"),
            (
                np.array([2**64 - 1], np.uint64),
                ".*; got 18446744073709551615 at entry 0",
            ),
            ([1.0, 2.0], "expected integers; got an array of float64"),
            ([True, False], "expected integers; got an array of bool"),
            ("12", "expected integers; got an array of <U2"),
            ([[1], [2, 3]], "expected a flat array of integers"),
            (None, "expected integers; got an array of object"),
        ],
    )
    def test_bad(self, value: Any, match: str) -> None:
        with refused(f"lengths 'lens': {match}"):
            cora.plan(kernel("scale"), lens=value)
        with refused(f"lengths 'lens': {match}"):
            kernel("scale")(packed, lens=value)

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int32", "int64", "uint64"])
    def test_integers_of_any_width(self, dtype: str) -> None:
        array = np.array(shape, dtype)
        array.setflags(write=False)
        assert kernel("scale")(packed, lens=array).to_list() == [[2, 4, 6], [8], []]
        assert kernel("scale")(packed, lens=np.repeat(array, 2)[::2]).to_list() == [[2, 4, 6], [8], []]

    def test_wrong_number(self) -> None:
        with refused("size 'M' is 3 by the argument of that name, but 2 by lengths 'lens'"):
            cora.plan(kernel("scale"), lens=[1, 2], M=3)
        with refused("size 'M' is 3 by argument 'A', but 2 by argument 'B'"):
            kernel("add")(a, cora.ragged([[1, 2, 3], [4]], B))

    def test_wrong_number_over_two_dims(self) -> None:
        inner = cora.lengths("inner", batch, pos)
        item = cora.Dim("item", inner[batch, pos])
        k = cora.build(cora.compute("O", [batch, pos, item], item * 1.0), settings=cora.Settings(cache=False))
        assert k(lens=[2, 0], inner=[1, 2]).to_list() == [[[0], [0, 1]], []]
        with refused(r"lengths 'inner': expected 2 values, one for each index of .*; got 3"):
            k(lens=[2, 0], inner=[1, 2, 3])

    def test_disagreement_names_the_first_entry(self) -> None:
        b = cora.ragged([[1, 2, 3], [4, 5], [6]], B)
        with refused("lengths 'lens': entry 1 is 1 by argument 'A', but 2 by argument 'B'"):
            kernel("add")(a, b)
        with refused("lengths 'lens': entry 2 is 0 by argument 'A', but 1 by the argument of that name"):
            kernel("scale")(a, lens=[3, 1, 1])
        assert kernel("scale")(a, lens=[3, 1, 0], M=3).to_list() == [[2, 4, 6], [8], []]

    def test_missing_and_unknown(self) -> None:
        with refused(r"lengths 'lens' are not known: give them by name, lens=\[...\]"):
            kernel("scale")(packed)
        with refused(r"lengths 'lens' are not known"):
            cora.plan(kernel("scale"))
        with refused("no kernel has lengths or a size named 'length'; they have lens, M"):
            cora.plan(kernel("scale"), length=shape)
        with refused(r"size 'N' is not known: give it by name, N=..."):
            cora.plan(kernel("dense"))

    @pytest.mark.parametrize("value", [-1, 2.0, "3", None, True, [3]])
    def test_bad_size(self, value: Any) -> None:
        with refused("size 'N': expected an integer"):
            cora.plan(kernel("dense"), N=value)

    def test_the_callers_array_may_change_later(self) -> None:
        mine = np.array(shape, np.int32)
        held = cora.plan(kernel("scale"), lens=mine)
        out = kernel("scale")(packed, lens=mine)
        mine[:] = [0, 1, 3]
        assert held.lengths["lens"].tolist() == shape
        assert out.to_list() == [[2, 4, 6], [8], []]
        assert kernel("scale")(packed, lens=shape).to_list() == [[2, 4, 6], [8], []]
        assert kernel("scale").run(held, a).to_list() == [[2, 4, 6], [8], []]


class TestOffsets:
    @pytest.mark.parametrize(
        ("offsets", "match"),
        [
            ([1, 3, 4], "must start at 0; got 1 at entry 0"),
            (np.zeros(0, np.int64), "must start at 0; got no entry"),
            ([0, 3, 2], "must not decrease; entry 2 is 2 after 3"),
            ([0, 3, 5], "entry 2 of the offsets is 5, past the 4 rows"),
            ([0.0, 4.0], "must be a flat array of integers"),
            ([[0, 4]], "must be a flat array of integers"),
        ],
    )
    def test_bad(self, offsets: Any, match: str) -> None:
        with refused(match):
            cora.RaggedArray.from_offsets(packed, offsets, A)

    def test_good(self) -> None:
        array = cora.RaggedArray.from_offsets(packed, [0, 3, 4, 4], A)
        assert kernel("scale")(array).to_list() == [[2, 4, 6], [8], []]


class TestIndices:
    table = np.array([10, 20, 30], np.float32)

    def test_in_range(self) -> None:
        assert kernel("gather")(self.table, cora.ragged([[2, 0], [], [1]], I)).to_list() == [
            [30, 10],
            [],
            [20],
        ]

    @pytest.mark.parametrize("bad", [3, -1, 2**31 - 1, -(2**31)])
    def test_out_of_range(self, bad: int) -> None:
        out = np.full(3, np.nan, np.float32)
        held = cora.plan(kernel("gather"), lens=[2, 0, 1], N=3)
        with refused(
            r"the index int64\(I\[batch, pos\]\) into dim 'n' of 'T' must be at least 0 and below N; "
            r"it is not for 1 of the indices \[batch, pos\]"
        ):
            kernel("gather").run(held, self.table, cora.ragged([[2, bad], [], [1]], I), outputs={"O": out})
        assert np.isnan(out).all()
        good = kernel("gather").run(held, self.table, cora.ragged([[2, 0], [], [1]], I), outputs={"O": out})
        assert good.tolist() == [30, 10, 20]

    def test_nothing_is_touched_before_the_check(self) -> None:
        """The table and the output end at pages whose access would kill the process."""
        table, out = guarded(self.table), guarded(np.full(3, np.nan, np.float32))
        held = cora.plan(kernel("gather"), lens=[2, 0, 1], N=3)
        indices = guarded(np.array([2, 10**6, 0], np.int32))
        with refused("must be at least 0 and below N"):
            kernel("gather").run(held, table, indices, outputs={"O": out})
        assert np.isnan(out).all()
        indices[1] = 1
        assert kernel("gather").run(held, table, indices, outputs={"O": out}).tolist() == [30, 20, 10]

    def test_unchecked_on_demand(self) -> None:
        program = cora.compute("O", [batch, pos], T[I[batch, pos]])
        k = cora.build(program, settings=cora.Settings(cache=False, check_indices=False))
        assert k(self.table, cora.ragged([[2, 0]], I)).to_list() == [[30, 10]]

    def test_the_counter_has_a_name_of_its_own(self) -> None:
        index = cora.placeholder("violations0", [batch, pos], "int64")
        k = cora.build(
            cora.compute("O", [batch, pos], T[index[batch, pos]]), settings=cora.Settings(cache=False)
        )
        assert k(self.table, cora.ragged([[2], [1]], index)).to_list() == [[30], [20]]
        with refused("must be at least 0 and below N"):
            k(self.table, cora.ragged([[2], [3]], index))


class TestOutputs:
    def test_given_outputs_are_written_and_returned(self) -> None:
        out = np.full(4, np.nan, np.float32)
        assert kernel("scale").run(plan(), a, outputs={"O": out}) is out
        assert out.tolist() == [2, 4, 6, 8]
        array = cora.RaggedArray.empty(A, {"lens": shape}, fill=np.nan)
        assert kernel("scale").run(plan(), a, outputs={"O": array}) is array
        assert array.to_list() == [[2, 4, 6], [8], []]

    def test_read_only(self) -> None:
        out = np.zeros(4, np.float32)
        out.setflags(write=False)
        with refused("'O': the values of an output must be writable"):
            kernel("scale").run(plan(), a, outputs={"O": out})

    def test_wrong(self) -> None:
        run = kernel("scale").run
        with refused("'O': expected values of type float32; got float64"):
            run(plan(), a, outputs={"O": np.zeros(4)})
        with refused("'O': the layout .* stores 4 elements on this batch; got 3"):
            run(plan(), a, outputs={"O": np.zeros(3, np.float32)})
        with refused("'O': the values must be C-contiguous and aligned"):
            run(plan(), a, outputs={"O": np.zeros(8, np.float32)[::2]})
        with refused("no output 'P'; the outputs are O"):
            run(plan(), a, outputs={"P": np.zeros(4, np.float32)})
        with refused(r"outputs must be arrays by name, {'O': array}; got ndarray"):
            run(plan(), a, outputs=np.zeros(4, np.float32))
        with refused(r"outputs must be arrays by name, {'O': array}; got list"):
            run(plan(), a, outputs=[np.zeros(4, np.float32)])

    def test_overlap(self) -> None:
        buffer = np.arange(8, dtype=np.float32)
        for start in (0, 1, 3):
            with refused("output 'O' overlaps 'A' in memory"):
                kernel("scale").run(plan(), buffer[:4], outputs={"O": buffer[start : start + 4]})
        assert buffer.tolist() == list(range(8))
        kernel("scale").run(plan(), buffer[:4], outputs={"O": buffer[4:]})
        assert buffer.tolist() == [0, 1, 2, 3, 0, 2, 4, 6]

    def test_overlapping_outputs(self) -> None:
        held = cora.plan(kernel("two"), lens=shape)
        buffer = np.zeros(7, np.float32)
        with refused("output 'S' overlaps 'O' in memory"):
            kernel("two").run(held, a, outputs={"O": buffer[:4], "S": buffer[3:6]})
        o, s = kernel("two").run(held, a, outputs={"O": buffer[:4], "S": buffer[4:]})
        assert o.tolist() == [2, 4, 6, 8]
        assert s.tolist() == [6, 4, 0]

    def test_empty_arrays_overlap_nothing(self) -> None:
        buffer = np.zeros(4, np.float32)
        held = cora.plan(kernel("two"), lens=[0, 0])
        empty = buffer[2:2]
        _, s = kernel("two").run(held, empty, outputs={"O": empty, "S": buffer[1:3]})
        assert s.tolist() == [0, 0]

    def test_some_outputs_given(self) -> None:
        held = cora.plan(kernel("two"), lens=shape)
        s = np.full(3, np.nan, np.float32)
        o, same = kernel("two").run(held, a, outputs={"S": s})
        assert same is s
        assert s.tolist() == [6, 4, 0]
        assert o.to_list() == [[2, 4, 6], [8], []]

    def test_repeated_runs_see_new_values_and_new_arrays(self) -> None:
        held, out = plan(), np.zeros(4, np.float32)
        first, second = packed.copy(), packed + 10
        for source in (first, first, second, first):
            source += 1
            kernel("scale").run(held, source, outputs={"O": out})
            assert out.tolist() == (2 * source).tolist()
        other = np.zeros(4, np.float32)
        kernel("scale").run(held, first, outputs={"O": other})
        assert other.tolist() == out.tolist()


def test_lengths_and_their_domain_are_public() -> None:
    assert kernel("scale").length_domains == {"lens": lens.fun.domain}
    assert kernel("scale").size_names == ("M",)
    assert (kernel("two").inputs, kernel("two").outputs) == (("A",), ("O", "S"))
    with refused("has no tensor 'X'"):
        kernel("scale").layout("X")
