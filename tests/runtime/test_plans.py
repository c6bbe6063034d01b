"""Plans: whose they are, what they share, how many run at once, and how large they may get."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import cora
from cora.prelude import NativePrelude
from tests.runtime.programs import UNCACHED, A, batch, first_program, kernel, n, pos, rows, scaled

HUGE = 2**31 - 1


def refused(match: str) -> Any:
    return pytest.raises(cora.UserError, match=match)


class TestWhose:
    def test_other_lengths(self) -> None:
        held = cora.plan(kernel("scale"), lens=[3, 1, 0])
        with refused("'A': its lengths 'lens' are not those of the plan: entry 0 is 1, not 3"):
            kernel("scale").run(held, rows([1], [2, 3, 4], []))
        with refused("'A': its lengths 'lens' are not those of the plan: 2 entries, not 3"):
            kernel("scale").run(held, rows([1], [2, 3, 4]))
        assert kernel("scale").run(held, rows([1, 2, 3], [4], [])).to_list() == [[2, 4, 6], [8], []]

    def test_other_output_lengths(self) -> None:
        held = cora.plan(kernel("scale"), lens=[3, 1, 0])
        with refused("'O': its lengths 'lens' are not those of the plan: entry 0 is 1, not 3"):
            kernel("scale").run(held, rows([1, 2, 3], [4], []), outputs={"O": rows([1], [2, 3, 4], [])})

    def test_other_kernels(self) -> None:
        held = cora.plan(kernel("scale"), lens=[3])
        with refused(r"kernel 'kernel_O': the plan was made for other kernels \(kernel_O\)"):
            kernel("triple").run(held, rows([1, 2, 3]))
        with refused("the plan was made for other kernels"):
            kernel("triple").waste(held)
        with refused("the plan was made for other kernels"):
            kernel("triple").explain(held)

    def test_no_plan(self) -> None:
        with refused(r"run expects a plan first, from cora.plan\(kernel, ...\); got RaggedArray"):
            kernel("scale").run(rows([1]))  # type: ignore[arg-type]

    def test_no_kernel(self) -> None:
        with refused("plan: expected at least one kernel"):
            cora.plan([])
        with refused("plan: expected a kernel or several; got RaggedArray"):
            cora.plan(rows([1]), lens=[1])  # type: ignore[arg-type]
        with refused("plan: expected a kernel or several; got Schedule"):
            cora.plan([kernel("scale"), first_program()], lens=[1])  # type: ignore[list-item]

    def test_device(self) -> None:
        with pytest.raises(cora.UnsupportedError, match="plan: device 'cuda'"):
            cora.plan(kernel("scale"), device="cuda", lens=[1])


class TestThreads:
    @pytest.mark.parametrize("threads", [0, -1, 4097, 10**12])
    def test_out_of_range(self, threads: int) -> None:
        with refused(f"threads: expected an integer from 1 to 4096; got {threads}"):
            cora.plan(kernel("scale"), lens=[1], threads=threads)
        with refused("threads: expected an integer from 1 to 4096"):
            kernel("scale")(rows([1]), threads=threads)

    @pytest.mark.parametrize("threads", [True, 2.0, "2"])
    def test_wrong_type(self, threads: Any) -> None:
        with refused("threads: expected an integer; got"):
            cora.plan(kernel("scale"), lens=[1], threads=threads)

    @pytest.mark.parametrize("threads", [1, 2, 3, np.int64(7), 4096])
    def test_results_do_not_depend_on_them(self, threads: int) -> None:
        a = rows(*(list(map(float, range(k))) for k in (40, 0, 1, 33, 7)))
        expected = [[2 * x for x in row] for row in a.to_list()]
        assert kernel("scale")(a, threads=threads).to_list() == expected
        assert kernel("first")(a, threads=threads).to_list() == expected

    @pytest.mark.parametrize(
        ("variables", "count"),
        [
            ({"TVM_NUM_THREADS": "3"}, 3),
            ({"OMP_NUM_THREADS": "4,2"}, 4),
            ({"TVM_NUM_THREADS": "x"}, 1),
            ({"TVM_NUM_THREADS": "0"}, 1),
        ],
    )
    def test_default_is_the_pools(
        self, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], count: int
    ) -> None:
        for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert cora.plan(kernel("scale"), lens=[1]).threads == count

    def test_a_busy_plan_is_refused(self) -> None:
        held, a = cora.plan(kernel("scale"), lens=[2]), rows([1, 2])
        with held.lock, ThreadPoolExecutor(1) as pool:
            running = pool.submit(kernel("scale").run, held, a)
            with refused("the plan is running already; one run at a time per plan"):
                running.result(timeout=60)
        assert kernel("scale").run(held, a).to_list() == [[2, 4]]
        with refused("stores 2 elements"):
            kernel("scale").run(held, np.zeros(3, np.float32))
        assert kernel("scale").run(held, a).to_list() == [[2, 4]]  # an error leaves the plan free

    def test_several_plans_in_several_threads(self) -> None:
        def work(seed: int) -> bool:
            rng = np.random.default_rng(seed)
            for _ in range(20):
                lengths = rng.integers(0, 40, rng.integers(0, 9))
                values = rng.standard_normal(lengths.sum()).astype(np.float32)
                held = cora.plan([kernel("scale"), kernel("first")], lens=lengths, threads=2)
                plain = kernel("scale").run(held, values)
                first = kernel("first").run(held, values)
                called = kernel("first")(values, lens=lengths)
                for out in (plain, first, called):
                    if not np.array_equal(out.packed(), 2 * values):
                        return False
            return True

        kernel("scale"), kernel("first")
        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(work, range(6)))


class TestTables:
    def test_kernels_of_a_plan_share_them(self) -> None:
        two = [kernel("first"), cora.build(_padded_triple(), settings=UNCACHED)]
        held = cora.plan(two, lens=[3, 1, 0])
        first, second = (
            {
                table.key: array
                for table, array in zip(k.prelude.spec.tables, held.prepared(k).tables, strict=True)
            }
            for k in two
        )
        shared = [key for key in first if key in second]
        assert {"ffo", "ffi", "scan"} <= {key.split("_")[0] for key in shared}
        for key in shared:
            if first[key].size:
                assert first[key].__array_interface__["data"] == second[key].__array_interface__["data"], key
        for k, factor in zip(two, (2, 3), strict=True):
            assert k.run(held, rows([1, 2, 3], [4], [])).to_list() == [
                [factor, 2 * factor, 3 * factor],
                [4 * factor],
                [],
            ]

    def test_what_is_shared_is_computed_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        computed: list[set[str]] = []
        original = NativePrelude.compute

        def recording(self: NativePrelude, *args: Any, filled: dict[str, Any], **kwargs: Any) -> Any:
            computed.append({t.key for t in self.spec.tables if not t.given} - set(filled))
            return original(self, *args, filled=filled, **kwargs)

        monkeypatch.setattr(NativePrelude, "compute", recording)
        cora.plan([kernel("first"), cora.build(_padded_triple(), settings=UNCACHED)], lens=[3, 1, 0])
        first, second = computed
        assert {"ffo", "ffi", "scan"} <= {key.split("_")[0] for key in first}
        assert not first & second

    def test_a_kernel_twice(self) -> None:
        held = cora.plan([kernel("scale"), kernel("scale")], lens=[1])
        assert kernel("scale").run(held, rows([4])).to_list() == [[8]]

    def test_workspace_is_the_plans(self) -> None:
        held = cora.plan(kernel("chain"), lens=[3, 1, 0])
        for scale in (1, 10):
            a = rows([1 * scale, 2 * scale, 3 * scale], [4 * scale], [])
            expected = [[7 * scale, 8 * scale, 9 * scale], [8 * scale], []]
            assert kernel("chain").run(held, a).to_list() == expected


class TestManyBatches:
    def test_one_compilation_serves_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import cora.codegen.build

        compiled: list[object] = []
        original: Callable[..., Any] = cora.codegen.build.compile_functions

        def counting(*args: Any, **kwargs: Any) -> Any:
            compiled.append(args)
            return original(*args, **kwargs)

        monkeypatch.setattr(cora.codegen.build, "compile_functions", counting)
        k = cora.build(first_program(), settings=UNCACHED)
        rng = np.random.default_rng(0)
        for _ in range(50):
            lengths = rng.integers(0, 100, rng.integers(0, 20))
            values = rng.standard_normal(lengths.sum()).astype(np.float32)
            out = k(values, lens=lengths)
            assert np.array_equal(out.packed(), 2 * values)
            padding = out.to_padded(0).size - values.size
            assert out.numpy().size == sum(-(-int(x) // 64) * 64 for x in lengths), padding
        assert len(compiled) == 1

    def test_capacity_serves_smaller_and_larger_batches_in_turn(self) -> None:
        k = kernel("first")
        for lengths in ([1], [400] * 3, [], [0, 0], [63, 64, 65], [1], [5000], [2, 0, 7]):
            values = np.arange(sum(lengths), dtype=np.float32)
            held = cora.plan(k, lens=lengths)
            assert np.array_equal(k.run(held, values).packed(), 2 * values)
            assert np.array_equal(k(values, lens=lengths).packed(), 2 * values)


class TestSizes:
    """Nothing here allocates: what cannot be is refused, what can be is planned without its arrays."""

    def test_a_fused_loop_is_limited(self) -> None:
        for lengths in ([HUGE], [HUGE] * 2, [2**30] * 5):
            with refused(r"prelude: table of 'ff[io]': expected at most 2147483647 entries; got \d+"):
                cora.plan(kernel("first"), lens=lengths)

    def test_offsets_have_64_bits(self) -> None:
        held = cora.plan(kernel("scale"), lens=[HUGE] * 3)
        assert held.prepared(kernel("scale")).element_counts == (3 * HUGE, 3 * HUGE)
        with refused(rf"stores {3 * HUGE} elements on this batch; got 3"):
            kernel("scale").run(held, np.zeros(3, np.float32))
        waste = kernel("scale").waste(held)
        assert waste.useful_flops == 3 * HUGE
        assert waste.useful_bytes == 2 * 4 * 3 * HUGE

    def test_no_memory(self) -> None:
        held = cora.plan(kernel("positions"), lens=[HUGE] * 2000)
        with refused(r"cannot allocate 4,294,967,294,000 elements of float32: not enough memory"):
            kernel("positions").run(held)

    def test_sizes_past_64_bits(self) -> None:
        row, column = cora.Dim("row", cora.size("R")), cora.Dim("column", cora.size("C"))
        X = cora.placeholder("X", [row, column])
        k = cora.build(cora.schedule(cora.compute("Y", [row, column], X[row, column] + 1)), settings=UNCACHED)
        assert cora.plan(k, R=2**31, C=2**31).prepared(k).element_counts == (2**62, 2**62)
        with refused("table of 'size_X': expected values that fit in 64 bits"):
            cora.plan(k, R=2**32, C=2**32)
        with refused("size 'R': expected a value from 0 to 2\\^63 - 1; got 9223372036854775808"):
            cora.plan(k, R=2**63, C=1)
        assert cora.plan(k, R=0, C=2**40).prepared(k).element_counts == (0, 0)


def _padded_triple() -> cora.Schedule:
    O = scaled(3)  # noqa: E741
    return cora.schedule(O).pad_loop(O, pos, 32).pad_dim(O, pos, 32).fuse(O, batch, pos, name="g")


def test_names_are_unambiguous() -> None:
    clashes = [
        (cora.placeholder("lens", A.dims), "'lens' names lengths over .* and an input"),
        (cora.placeholder("M", A.dims), "'M' names a size and an input"),
        (cora.placeholder("threads", A.dims), "'threads' names an input, but is a keyword of calls"),
    ]
    for tensor, match in clashes:
        with refused(match):
            cora.build(cora.compute("O", [batch, pos], 2 * tensor[batch, pos]), settings=UNCACHED)
    other = cora.Dim("p", cora.lengths("lens", n)[n])
    with refused("'lens' names lengths over .* and lengths over .*: give them different names"):
        cora.build([scaled(2), cora.compute("P", [n, other], other * 1.0)], settings=UNCACHED)
