"""Steps as data: they print, compare, hash, go to JSON and back, and replay; bad JSON is refused."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, fields
from typing import Any, get_args

import pytest

import cora
from cora import Schedule, ScheduleError, UserError
from cora.ir.fingerprint import fingerprint
from cora.schedule.step_data import from_data, to_data
from cora.schedule.steps import Fuse, Reorder, Split, Step

M = cora.size("M")
batch = cora.Dim("batch", M)
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])
key = cora.Dim("key", lens[batch])
A = cora.placeholder("A", [batch, pos, key])
S = cora.compute("S", [batch, pos], cora.sum(A[batch, pos, key], over=key))
O = cora.compute("O", [batch, pos], S[batch, pos] * 2)  # noqa: E741


def scheduled() -> Schedule:
    """A schedule with steps of most kinds."""
    s = cora.schedule(O)
    s = s.pad_loop(O, pos, 16).pad_dim(O, pos, 32).pad_dim(S, pos, 8, to_max=True, contents="undefined")
    s = s.fuse(O, batch, pos, name="f").bulk_pad(O, "f", 64).split(O, "f", 32, names=("fo", "fi"))
    s = s.parallel(O, "fo", balance="count").vectorize(O, "fi", 16)
    s = s.split(S, pos, 4, tail="balanced").reorder(S, "pos_o", "pos_i", key).parallel(S, batch)
    return s.split(S, key, parts=3).split(S, "key_i", 8).unroll(S, "key_i_i")


def test_steps_print_as_they_are_written() -> None:
    s = cora.schedule(O).split(O, pos, 4, names=("a", "b"))
    assert repr(s.steps[0]) == "Split(op='O', loop='pos', factor=4, outer='a', inner='b', tail='guard')"
    assert repr(s) == f"schedule(O)\n    {s.steps[0]!r}"
    assert eval(repr(s.steps[0])) == s.steps[0]


def test_steps_are_frozen() -> None:
    step = cora.schedule(O).split(O, pos, 4).steps[0]
    with pytest.raises(FrozenInstanceError):
        step.factor = 8  # type: ignore[misc, union-attr]


def test_schedules_compare_by_program_and_steps() -> None:
    a, b = scheduled(), scheduled()
    assert a == b
    assert hash(a) == hash(b)
    assert a != cora.schedule(O)
    assert a != a.replay([]).pad_dim(A, key, 4)
    other = cora.compute("O", [batch, pos], S[batch, pos] * 3)
    assert cora.schedule(O) != cora.schedule(other)
    assert cora.schedule(O) != "schedule(O)"
    assert len({a, b, cora.schedule(O)}) == 2


def test_the_order_of_steps_is_part_of_a_schedule() -> None:
    s = cora.schedule(O)
    assert s.pad_dim(O, pos, 4).parallel(O, batch) != s.parallel(O, batch).pad_dim(O, pos, 4)


def test_json_round_trip() -> None:
    s = scheduled()
    again = cora.from_json([O], s.to_json())
    assert again == s
    assert again.state == s.state
    assert fingerprint(again.outputs, again.steps) == fingerprint(s.outputs, s.steps)
    assert again.to_json() == s.to_json()


def test_json_is_plain_and_complete() -> None:
    data = json.loads(scheduled().to_json())
    kinds = {kind.__name__: {f.name for f in fields(kind)} for kind in get_args(Step)}
    assert all(set(entry) == {"step", *kinds[entry["step"]]} for entry in data)
    fuse = next(entry for entry in data if entry["step"] == "Fuse")
    assert fuse == {"step": "Fuse", "op": "O", "loops": ["batch", "pos"], "name": "f"}


def test_steps_pickle() -> None:
    steps = scheduled().steps
    assert pickle.loads(pickle.dumps(steps)) == steps


def test_replay() -> None:
    s = scheduled()
    assert cora.schedule(O).replay(s.steps) == s
    half = cora.schedule(O).replay(s.steps[:5])
    assert half.replay(s.steps[5:]) == s


def test_replay_checks_every_step() -> None:
    with pytest.raises(ScheduleError, match="operator 'O' has no loop 'f'"):
        cora.schedule(O).replay([Split("O", "f", 4, "a", "b")])
    alone = cora.compute("O", [batch, pos], cora.cast(pos, "float32"))
    with pytest.raises(ScheduleError, match="no tensor 'S'; the tensors are O"):
        cora.schedule(alone).replay(scheduled().steps)


@pytest.mark.parametrize(
    "step",
    [
        Split("O", "pos", 4, "a", "b"),
        Fuse("O", ("batch", "pos"), "f"),
        Reorder("O", ("pos",)),
        *scheduled().steps,
    ],
    ids=repr,
)
def test_data_round_trip(step: Step) -> None:
    data = to_data(step)
    assert from_data(json.loads(json.dumps(data))) == step


SPLIT = {"step": "Split", "op": "O", "loop": "pos", "factor": 4, "outer": "a", "inner": "b", "tail": "guard"}
PAD_DIM = {"step": "PadDim", "tensor": "O", "dim": "pos", "multiple": 4, "to_max": False, "contents": "zero"}
FUSE = {"step": "Fuse", "op": "O", "loops": ["batch", "pos"], "name": "f"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("{}", "expected a JSON list of steps"),
        ("[1]", "expected a JSON list of steps"),
        ('"Split"', "expected a JSON list of steps"),
        (json.dumps([{}]), "expected one of Split"),
        (json.dumps([{"step": "Nonsense"}]), "expected one of Split.*got 'Nonsense'"),
        (json.dumps([{"step": ["Split"]}]), "expected one of Split"),
        (json.dumps([{"step": "Split"}]), "Split: expected the fields op, loop, factor, outer, inner"),
        (json.dumps([{**SPLIT, "more": 1}]), "Split: expected the fields op, .* got .*more"),
        (json.dumps([{**SPLIT, "factor": "4"}]), "Split.factor: expected int; got '4'"),
        (json.dumps([{**SPLIT, "factor": 4.0}]), "Split.factor: expected int; got 4.0"),
        (json.dumps([{**SPLIT, "factor": True}]), "Split.factor: expected int; got True"),
        (json.dumps([{**SPLIT, "loop": None}]), "Split.loop: expected str; got None"),
        (json.dumps([{**PAD_DIM, "to_max": 0}]), "PadDim.to_max: expected bool; got 0"),
        (json.dumps([{**FUSE, "loops": "batch"}]), "Fuse.loops: expected list; got 'batch'"),
    ],
)
def test_bad_json(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        cora.from_json([O], text)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({**SPLIT, "factor": 0}, "factor: expected a positive integer; got 0"),
        ({**SPLIT, "op": "nope"}, "no operator 'nope'"),
        ({**SPLIT, "loop": "nope"}, "operator 'O' has no loop 'nope'"),
        ({**SPLIT, "outer": "b"}, "the names of the two loops must differ"),
        ({**SPLIT, "outer": "1"}, "a loop name must be an identifier; got '1'"),
        ({**SPLIT, "tail": "long"}, "tail must be one of guard, .*; got 'long'"),
        ({**PAD_DIM, "contents": "nan"}, "contents must be 'zero' or 'undefined'; got 'nan'"),
        ({**PAD_DIM, "multiple": -1}, "multiple: expected a positive integer; got -1"),
        ({**FUSE, "loops": []}, "expected at least two loops"),
        ({**FUSE, "loops": ["batch", 3]}, "Fuse.loops: expected a list of str"),
        ({"step": "Parallel", "op": "O", "loop": "pos", "balance": "luck"}, "balance must be"),
    ],
)
def test_json_of_an_illegal_step(entry: dict[str, Any], reason: str) -> None:
    with pytest.raises((ScheduleError, UserError), match=reason):
        cora.from_json([O], json.dumps([entry]))


def test_json_of_another_program() -> None:
    other = cora.compute("other", [batch, pos], cora.cast(pos, "float32"))
    with pytest.raises(ScheduleError, match="no operator 'O'; the operators are other"):
        cora.from_json([other], cora.schedule(O).parallel(O, batch).to_json())


def test_steps_of_one_operator_leave_the_others_alone() -> None:
    s = cora.schedule(O).split("S", "pos", 4)
    assert [leaf.name for leaf in s.nest(S).leaves] == ["batch", "pos_o", "pos_i", "key"]
    assert [leaf.name for leaf in s.nest(O).leaves] == ["batch", "pos"]
    assert s.tensors == (A, S, O)


def test_schedule_refuses() -> None:
    with pytest.raises(UserError, match="expected at least one computed tensor"):
        cora.schedule()
    with pytest.raises(UserError, match="expected computed tensors; got A"):
        cora.schedule(A)
    with pytest.raises(UserError, match="an output stands twice"):
        cora.schedule(O, O)
    with pytest.raises(UserError, match="expected a loop: a Dim or a name; got int: 3"):
        cora.schedule(O).parallel(O, 3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="expected a tensor or its name; got Dim"):
        cora.schedule(O).parallel(pos, pos)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="layout: no tensor 'X'; the tensors are A, S, O"):
        cora.schedule(O).layout("X")
