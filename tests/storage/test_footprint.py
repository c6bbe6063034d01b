"""Memory of layouts: elements, padding, and auxiliary arrays against those of the tree-shaped scheme."""

from __future__ import annotations

import random

from cora.ir.expr import Const, Dim
from cora.lang import define
from cora.storage.csf import auxiliary_entries
from cora.storage.footprint import auxiliary_tables, footprint
from cora.storage.layout import Layout
from cora.storage.offsets import auxiliary_functions
from tests.storage.random_layouts import bound, random_case

M = define.size("M")
BATCH = Dim("batch", M)
LENS = define.lengths("lens", BATCH)
POS, KEY, H = Dim("pos", LENS[BATCH]), Dim("key", LENS[BATCH]), Dim("h", 3)


def test_the_scores_of_an_attention() -> None:
    """The appendix: s1 + 1 entries here, s1 + s3 * (the sum of all lengths) in the tree."""
    layout = Layout.packed([BATCH, POS, H, KEY])
    case = bound(layout, lens=[2, 0, 4, 1])
    found = footprint(layout, case.sizes, case.lengths)
    assert found.stored_bytes == found.useful_bytes == 4 * 3 * (4 + 16 + 1)
    assert found.auxiliary_bytes == 8 * 5
    assert found.csf_bytes == 8 * (4 + 3 * 7)
    padded = footprint(layout.with_pad(KEY, 4), case.sizes, case.lengths, "bfloat16")
    assert (padded.stored_bytes, padded.useful_bytes) == (2 * 3 * (8 + 16 + 4), 2 * 3 * 21)


def test_blocks_and_fused_dims() -> None:
    case = bound(Layout.packed([BATCH, POS, H]), lens=[2, 0, 5])
    blocks = case.layout.with_split(POS, 4, "io", "ii").with_order([BATCH, "io", H, "ii"])
    found = footprint(blocks, case.sizes, case.lengths)
    assert (found.stored_bytes, found.useful_bytes) == (4 * 3 * 4 * (1 + 2), 4 * 3 * 7)
    assert found.auxiliary_bytes == 8 * 4
    fused = case.layout.with_fused(BATCH, POS, "f").with_split("f", 4, "fo", "fi")
    found = footprint(fused, case.sizes, case.lengths)
    assert (found.stored_bytes, found.auxiliary_bytes) == (4 * 3 * 8, 8 * 4)


def test_the_tables_read_are_those_of_algorithm_1() -> None:
    rng = random.Random(9)
    compared = 0
    for _ in range(60):
        case = random_case(rng, padded=False, reordered=True)
        tables = {f for f in auxiliary_tables(case.layout) if f.name == "offset"}
        evaluator = case.evaluator()
        if any(dim.extent == Const(0) for dim in case.layout.dims):
            continue  # removes what it is multiplied with
        if tables == set(auxiliary_functions(case.layout)):
            entries = evaluator.value(auxiliary_entries(case.layout))
            found = footprint(case.layout, case.sizes, case.lengths)
            assert found.auxiliary_bytes == 8 * entries
            compared += entries > 0
    assert compared > 5
