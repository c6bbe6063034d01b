"""Random sequences of steps on the operators and tensors of a program."""

from __future__ import annotations

from cora.errors import ScheduleError
from cora.ir.expr import Const
from cora.ir.tensor import Tensor
from cora.schedule.nest import Leaf
from cora.schedule.schedule import Schedule
from cora.schedule.steps import TAILS
from tests.fuzz.choices import Choices
from tests.fuzz.program import Program

FACTORS = [2, 1, 3, 4, 5, 8, 16, 33]
LANES = ["", "", ", 2", ", 4", ", 8", ", 16"]


class Schedules:
    """Adds steps to the schedule `s` of a program; those that are refused are counted and left out."""

    def __init__(self, choices: Choices, program: Program, outputs: list[Tensor]) -> None:
        self.choices = choices
        self.program = program
        self.refused: list[str] = []
        self.schedule: Schedule = program.assign("s", f"cora.schedule({', '.join(t.name for t in outputs)})")

    def add(self) -> None:
        """Steps for every operator, and storage padding for every tensor, in some order."""
        tensors = self.schedule.tensors
        for tensor in tensors:
            for dim in tensor.dims:
                if self.choices.chance(20):
                    self._pad_storage(tensor, dim.name)
        operators = [t.name for t in tensors if t.body is not None]
        for op in operators[:-1]:
            if self.choices.chance(25):
                self._try(f"inline({op})")
        if self.choices.chance(50):  # consumers first, so that the others can be attached to their loops
            operators.reverse()
        for op in operators:
            self._operator(op)

    def _operator(self, name: str) -> None:
        """Steps for one operator, as it is now, unless it has no loops any more."""
        if self.choices.chance(40):
            self._attach(name)
        own = [t for t in self.schedule.operators if t.name == name]
        for op in own:
            for _ in range(self.choices.integer(0, 7)):
                self._step(op)
            self._last_steps(op)

    def _attach(self, name: str) -> None:
        others = [t for t in self.schedule.operators if t.name != name and self._leaves(t)]
        if others:
            consumer = self.choices.pick(others)
            loop = self.choices.pick(self._leaves(consumer)).name
            self._try(f'compute_at({name}, {consumer.name}, "{loop}")')

    def _try(self, step: str) -> bool:
        try:
            self.schedule = self.program.assign("s", f"s.{step}")
        except ScheduleError as error:
            self.refused.append(f"{step}: {error}")
            return False
        return True

    def _leaves(self, op: Tensor) -> tuple[Leaf, ...]:
        return self.schedule.nest(op).leaves

    def _pad_storage(self, tensor: Tensor, dim: str, multiple: int | None = None) -> None:
        choices = self.choices
        factors = FACTORS if tensor.ndim <= 2 else FACTORS[:4]
        arguments = [f"{tensor.name}", f'"{dim}"', str(multiple or choices.pick(factors))]
        if choices.chance(20):
            arguments.append("to_max=True")
        if choices.chance(8):
            arguments.append('contents="undefined"')
        self._try(f"pad_dim({', '.join(arguments)})")

    def _step(self, op: Tensor) -> None:
        leaves = self._leaves(op)
        if not leaves:
            return
        step = self.choices.pick(
            [*3 * [self._split], *3 * [self._fuse], *2 * [self._reorder], *2 * [self._pad], self._bulk_pad,
             self._unroll, self._vectorize, self._parallel]
        )  # fmt: skip
        step(op, leaves)

    def _last_steps(self, op: Tensor) -> None:
        if self._leaves(op) and self.choices.chance(50):
            self._vectorize(op, self._leaves(op))
        if self._leaves(op) and self.choices.chance(50):
            self._parallel(op, self._leaves(op))

    def _split(self, op: Tensor, leaves: tuple[Leaf, ...]) -> None:
        loop = self.choices.pick(leaves).name
        factor = self.choices.pick(FACTORS)
        how = self.choices.pick([*3 * [f"{factor}"], f"parts={factor}", *(f'{factor}, tail="{t}"' for t in TAILS)])
        outer, inner = self.program.fresh("l"), self.program.fresh("l")
        self._try(f'split({op.name}, "{loop}", {how}, names=("{outer}", "{inner}"))')

    def _fuse(self, op: Tensor, leaves: tuple[Leaf, ...]) -> None:
        if len(leaves) < 2:
            return
        count = self.choices.pick([2, 2, 2, min(3, len(leaves))])
        first = self.choices.integer(0, len(leaves) - count)
        loops = ", ".join(f'"{leaf.name}"' for leaf in leaves[first : first + count])
        self._try(f'fuse({op.name}, {loops}, name="{self.program.fresh("l")}")')

    def _reorder(self, op: Tensor, leaves: tuple[Leaf, ...]) -> None:
        if len(leaves) < 2:
            return
        if self.choices.chance(60):  # two neighbours change places
            first = self.choices.integer(0, len(leaves) - 2)
            order = [leaves[first + 1], leaves[first]]
        else:
            order = self.choices.shuffled(self.choices.subset(leaves, 70))
        if order:
            names = ", ".join(f'"{leaf.name}"' for leaf in order)
            self._try(f"reorder({op.name}, {names})")

    def _pad(self, op: Tensor, leaves: tuple[Leaf, ...]) -> None:
        roots = [leaf for leaf in leaves if leaf.root is not None]
        if not roots:
            return
        leaf = self.choices.pick(roots)
        multiple = self.choices.pick(FACTORS if len(leaves) <= 3 else FACTORS[:4])
        if self._try(f'pad_loop({op.name}, "{leaf.name}", {multiple})') and not leaf.reduction:
            if self.choices.chance(95):  # else the build refuses, or the padding given before suffices
                self._pad_storage(op, leaf.name, multiple * self.choices.pick([1, 1, 2]))

    def _bulk_pad(self, op: Tensor, leaves: tuple[Leaf, ...]) -> None:
        made = [leaf.name for leaf in leaves if leaf.root is None]
        if made:
            self._try(f'bulk_pad({op.name}, "{self.choices.pick(made)}", {self.choices.pick(FACTORS)})')

    def _unroll(self, op: Tensor, leaves: tuple[Leaf, ...]) -> None:
        constant = [leaf for leaf in leaves if isinstance(leaf.extent, Const)]
        if constant:
            self._try(f'unroll({op.name}, "{self.choices.pick(constant).name}")')

    def _vectorize(self, op: Tensor, leaves: tuple[Leaf, ...]) -> None:
        leaf = leaves[-1] if self.choices.chance(90) else self.choices.pick(leaves)
        self._try(f'vectorize({op.name}, "{leaf.name}"{self.choices.pick(LANES)})')

    def _parallel(self, op: Tensor, leaves: tuple[Leaf, ...]) -> None:
        leaf = leaves[0] if self.choices.chance(70) else self.choices.pick(leaves)
        balance = self.choices.pick(["", ', balance="count"'])
        self._try(f'parallel({op.name}, "{leaf.name}"{balance})')
