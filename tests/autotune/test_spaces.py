"""Generated spaces: everything in them is legal and right, and the default is always there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cora
from cora.autotune.batches import hostile
from cora.autotune.catalogue import find
from cora.autotune.check import checks_of, fault_in
from cora.autotune.spaces import DEFAULT, Candidate, space_of
from cora.autotune.spaces.candidate import default_candidate, listed
from cora.autotune.spaces.generic import generic_space
from cora.errors import ScheduleError, UserError
from cora.kernels import RECIPES
from cora.schedule.default import default_schedule
from cora.schedule.steps import Tensorize
from cora.tune import seeded_order
from tests.autotune import programs

ALL = [
    programs.doubled,
    programs.product,
    programs.triangle,
    programs.softmax,
    programs.gathered,
    programs.nested,
]
Program = Callable[[], cora.Tensor]


@pytest.mark.parametrize("program", ALL)
def test_the_default_is_first_and_everything_is_legal_and_different(program: Program) -> None:
    output = program()
    space = generic_space([output], 40)
    first, *others = space.candidates
    assert first == default_candidate([output])
    assert first.schedule([output]) == default_schedule(cora.schedule(output))
    assert len(others) >= 9
    assert (
        len({c.id for c in space.candidates}) == len({c.steps for c in space.candidates}) == len(others) + 1
    )
    for candidate in space.candidates:
        candidate.schedule([output])


@pytest.mark.parametrize("program", ALL)
def test_candidates_compute_what_the_program_means(program: Program, tmp_path: Path) -> None:
    output = program()
    checks = checks_of([output], hostile([output]))
    chosen = seeded_order(generic_space([output], 60).candidates, seed=11)[:4]
    for candidate in chosen:
        try:
            kernel = cora.build(candidate.schedule([output]), settings=cora.Settings(cache_dir=tmp_path))
        except ScheduleError:
            continue  # refused when it was lowered: a tuner records it
        assert fault_in(kernel, checks, 2, frozenset()) is None, candidate.id


def test_products_have_tiles_and_others_do_not() -> None:
    def tiles(program: Program) -> int:
        candidates = generic_space([program()], 60).candidates
        return sum(isinstance(step, Tensorize) for c in candidates for step in c.steps)

    assert tiles(programs.product) > 5
    assert tiles(programs.triangle) > 5
    assert tiles(programs.doubled) == tiles(programs.softmax) == tiles(programs.nested) == 0


def test_all_tiles_can_be_lowered() -> None:
    output = programs.product()
    found = [c for c in generic_space([output], 400, seed=2).candidates if c.id.startswith("tile")]
    for candidate in found[::25]:
        cora.build(candidate.schedule([output]), settings=cora.Settings(cache=False, solver="off"))


def test_stages_are_a_choice() -> None:
    ids = [c.id for c in generic_space([programs.softmax()], 256).candidates]
    assert any(id.startswith("stages=inline;") for id in ids)
    assert any("total:" in id for id in ids)


@pytest.mark.parametrize("program", ALL)
def test_neighbours_are_candidates_and_see_one_another(program: Program) -> None:
    space = generic_space([program()], 30)
    for candidate in (space.candidates[0], space.candidates[-1]):
        near = space.neighbors(candidate.id)
        assert near
        assert candidate.id not in {c.id for c in near}
        for other in near[:4]:
            other.schedule([program()])
            if candidate.id != DEFAULT:
                assert candidate.id in {c.id for c in space.neighbors(other.id)} or other.id == DEFAULT


def test_neighbours_of_strangers_are_refused() -> None:
    with pytest.raises(UserError, match="no candidate 'x'"):
        generic_space([programs.doubled()], 5).neighbors("x")


def test_order_depends_on_the_seed_alone() -> None:
    output = programs.product()
    a, b = generic_space([output], 30, seed=1), generic_space([output], 30, seed=1)
    assert a.candidates == b.candidates == tuple(a.ordered(1))
    assert generic_space([output], 30, seed=2).candidates != a.candidates
    other = tuple(a.ordered(5))
    assert other[0].id == DEFAULT
    assert sorted(c.id for c in other) == sorted(c.id for c in a.candidates)


def test_the_limit_is_kept() -> None:
    assert [c.id for c in generic_space([programs.product()], 1).candidates] == [DEFAULT]
    assert len(generic_space([programs.product()], 17).candidates) == 17
    with pytest.raises(UserError, match="limit"):
        generic_space([programs.product()], 0)


def test_spaces_of_names_without_a_module_are_generic() -> None:
    output = programs.doubled()
    assert space_of([output], "nothing_of_this_name", 9).candidates == generic_space([output], 9).candidates
    assert space_of([output], "candidate", 9).candidates == generic_space([output], 9).candidates


def test_written_spaces() -> None:
    output = programs.doubled()
    pos = output.dims[1]
    made = {f"lanes={n}": cora.schedule(output).vectorize(output, pos, n) for n in (4, 8)}
    space = listed([output], made, {"lanes=4": ("lanes=8", DEFAULT)})
    assert [c.id for c in space.candidates] == [DEFAULT, "lanes=4", "lanes=8"]
    assert {c.id for c in space.neighbors("lanes=4")} == {DEFAULT, "lanes=8"}
    assert space.neighbors("lanes=8") == ()
    assert next(space.ordered(3)).id == DEFAULT
    with pytest.raises(UserError, match="another program"):
        listed([output], {"x": cora.schedule(programs.product())})
    with pytest.raises(UserError, match="no candidate 'y'"):
        listed([output], made, {"lanes=4": ("y",)})
    with pytest.raises(UserError, match="not 'default'"):
        listed([output], {DEFAULT: made["lanes=4"]})


def test_candidates_compare_by_their_steps() -> None:
    a = default_candidate([programs.doubled()])
    assert a.digest == Candidate("other", a.steps).digest
    assert a.digest != Candidate(a.id, a.steps[:-1]).digest


@pytest.mark.parametrize("name", ["vgemm", "trmm"])
def test_kernels_of_the_library_have_its_schedules_in_their_spaces(name: str) -> None:
    output = RECIPES[name].define()
    space = space_of([output], name, 60)
    ids = [c.id for c in space.candidates]
    assert ids[0] == DEFAULT
    assert len(ids) == len(set(ids)) == 60
    plain = [id for id in ids if id.startswith("library:") and "," not in id]
    assert len(plain) >= 3
    made = RECIPES[name].schedule(output)
    assert made.steps in {c.steps for c in space.candidates}
    assert {c.id for c in space.neighbors(DEFAULT)} >= set(plain)
    sized = next(id for id in ids if id.startswith("library:tiled,"))
    assert space.neighbors(sized)
    assert next(space.ordered(4)).id == DEFAULT
    assert {"tile", "columns"} <= {id.split(",")[0] for id in ids}
    for candidate in space.candidates[::7]:
        candidate.schedule([output])


def test_attention_is_tuned_in_tilings_of_the_librarys_schedule(tmp_path: Path) -> None:
    outputs = find("attention").outputs
    space = space_of(outputs, "attention", limit=40, seed=3)
    order = space.ordered(3)
    first, second = next(order), next(order)
    assert first.id == DEFAULT
    assert second.id.startswith("library:")
    (used,) = space.neighbors(DEFAULT)
    rows, columns = cora.tile_shape()
    copied = columns < 64
    assert used.id == f"library:fused,rows={rows},columns={columns},lanes=16,keys=group,values={copied}"
    assert {c.id.count("keys=batch") for c in space.neighbors(used.id)} == {0, 1}
    checks = checks_of(outputs, hostile(outputs)[:3])
    for candidate in (used, space.neighbors(used.id)[0]):
        kernel = cora.build(candidate.schedule(outputs), settings=cora.Settings(cache_dir=tmp_path))
        assert fault_in(kernel, checks, 2, frozenset()) is None, candidate.id
    other = space_of([programs.product()], "attention", limit=10)
    assert not any(c.id.startswith("library:") for c in other.candidates)
