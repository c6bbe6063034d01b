"""Random sequences of steps on the operators and tensors of a program."""

from __future__ import annotations

import importlib.util

from cora.errors import ScheduleError
from cora.ir.expr import Access, Binary, Const
from cora.ir.tensor import Tensor
from cora.lang.check import reductions_of, tensors_of
from cora.schedule.balance import BALANCES
from cora.schedule.nest import Leaf
from cora.schedule.schedule import Schedule
from cora.schedule.steps import TAILS
from tests.fuzz.choices import Choices
from tests.fuzz.program import Program

FACTORS = [2, 1, 3, 4, 5, 8, 16, 33]
#: Micro-kernels: generated ones, users' own, and OpenBLAS where it is installed.
TILES = ["", "", ", any_tile()", ", row_of_16()"]
TILES += [', "openblas"'] if importlib.util.find_spec("scipy_openblas32") is not None else []
LANES = ["", "", ", 2", ", 4", ", 8", ", 16"]


class Schedules:
    """Adds steps to the schedule `s` of a program; those that are refused are counted and left out."""

    def __init__(self, choices: Choices, program: Program, outputs: list[Tensor]) -> None:
        self.choices = choices
        self.program = program
        self.refused: list[str] = []
        self.schedule: Schedule = program.assign("s", f"cora.schedule({', '.join(t.name for t in outputs)})")

    def add(self) -> None:
        """Steps for every operator, and storage padding and order for every tensor."""
        choices = self.choices
        for tensor in self.schedule.tensors:
            for dim in tensor.dims:
                if choices.chance(20):
                    self._pad_storage(tensor, dim.name)
            self._store(tensor)
        if choices.chance(10):
            self._try("hoist_loads(False)")
        operators = [t.name for t in self.schedule.tensors if t.body is not None]
        for op in operators[:-1]:
            if choices.chance(40):
                self._try(f'inline("{op}")')
        if len(operators) > 1 and choices.chance(25):
            copy, place = self.program.fresh("R"), choices.integer(0, len(operators) - 2)
            if self._try(
                f'recompute("{operators[place]}", "{choices.pick(operators[place + 1 :])}", name="{copy}")'
            ):
                operators.insert(place, copy)
        for op in operators:
            if choices.chance(15):
                operators += self._rfactor(op)
            elif choices.chance(15):
                name = self.program.fresh("R")
                operators += [name] if self._try(f'outline("{op}", name="{name}")') else []
        if choices.chance(50):  # consumers first, so that the others can be attached to their loops
            operators.reverse()
        for op in operators:
            self._operator(op)
        if len(self._names()) > 1 and choices.chance(30):
            pair = choices.shuffled(self._names())[:2]
            depth = choices.pick(["", "", ", depth=1", ", depth=1", ", depth=2"])
            self._try(f'hfuse("{pair[0]}", "{pair[1]}"{depth})')

    def step(self, step: str) -> bool:
        """One given step; whether it is legal."""
        return self._try(step)

    def steps_of(self, operators: list[str]) -> None:
        """A few random steps for some operators."""
        for op in operators:
            for _ in range(self.choices.integer(0, 3)):
                self._step(op)

    def _store(self, tensor: Tensor) -> None:
        """Dims split, fused and padded in storage, and their order."""
        choices, name = self.choices, tensor.name
        for _ in range(choices.pick([0, 0, 0, 0, 1, 1, 2, 3]) if tensor.ndim else 0):
            axes = self.schedule.layout(name).stored_names
            place = choices.integer(0, len(axes) - 1)
            if choices.chance(40) and place + 1 < len(axes):
                self._try(
                    f'fuse_dims("{name}", "{axes[place]}", "{axes[place + 1]}", name="{self.program.fresh("a")}")'
                )
            else:
                names = self.program.fresh("a"), self.program.fresh("a")
                self._try(f'split_dim("{name}", "{axes[place]}", {choices.pick(FACTORS)}, names={names})')
            if choices.chance(25):
                self._pad_storage(tensor, choices.pick(self.schedule.layout(name).stored_names))
        axes = self.schedule.layout(name).stored_names
        if len(axes) > 1 and choices.chance(12 if len(axes) == tensor.ndim else 60):
            order = ", ".join(f'"{axis}"' for axis in choices.shuffled(axes))
            self._try(f'reorder_dims("{name}", {order})')

    def _operator(self, name: str) -> None:
        """Steps for one operator, or for the two pieces that it is split in, unless it has no loops any more."""
        choices = self.choices
        if choices.chance(60):
            self._attach(name)
        if name not in self._names():
            return
        if self._leaves(name) and choices.chance(12):
            loop = choices.pick(self._leaves(name)).name
            how, at = choices.pick(["multiple", "index"]), choices.pick(FACTORS)
            pieces = self.program.fresh("P"), self.program.fresh("P")
            if self._try(f'split_op("{name}", "{loop}", {how}={at}, names={pieces})'):
                if choices.chance(30):
                    self._together(pieces)
                    return
                for piece in pieces:
                    self._operator(piece)
                return
        if self._is_product(name) and choices.chance(85):
            for _ in range(choices.pick([0, 0, 1, 2])):
                self._step(name)
            self._tensorize(name, self._tile_shape(name, self._leaves(name)))
            outside = self._leaves(name)[: -self.schedule.nest(name).tile or None]
            if outside and choices.chance(60):
                self._cache_read(name, outside)
            if choices.chance(50):
                self._parallel(name, self._leaves(name))
            return
        for _ in range(choices.integer(0, 7)):
            self._step(name)
        if choices.chance(50):
            self._vectorize(name, self._leaves(name))
        if choices.chance(50):
            self._parallel(name, self._leaves(name))

    def _rfactor(self, op: str) -> list[str]:
        """The operators of partial results, if there are any."""
        nest = next((n for n in self.schedule.nests if n.name == op), None)
        over = [leaf.name for leaf in nest.leaves if leaf.reduction] if nest is not None else []
        if not over:
            return []
        before = set(self._names())
        how = self.choices.pick(["", "parts="])
        name = self.program.fresh("R")
        self._try(
            f'rfactor("{op}", "{self.choices.pick(over)}", {how}{self.choices.pick(FACTORS)}, name="{name}")'
        )
        return [made for made in self._names() if made not in before]

    def _together(self, pieces: tuple[str, str]) -> None:
        """Two pieces of an operator in shared loops."""
        loop = self._leaves(pieces[0])[0].name
        if self.choices.chance(50):
            for piece in pieces:
                self._try(f'parallel("{piece}", "{loop}")')
        self._try(f'hfuse("{pieces[0]}", "{pieces[1]}", depth={self.choices.pick([1, 1, 2])})')
        for piece in pieces:
            if self.choices.chance(50):
                self._vectorize(piece, self._leaves(piece))

    def _attach(self, name: str) -> None:
        readers = [
            nest
            for nest in self.schedule.nests
            if nest.tensor.body is not None and name in {t.name for t in tensors_of(nest.tensor.body)}
        ]
        loops = [(nest.name, leaf.name) for nest in readers for leaf in nest.leaves if not leaf.reduction]
        if loops:
            consumer, loop = self.choices.pick(loops)
            if self._try(f'compute_at("{name}", "{consumer}", "{loop}")') and self.choices.chance(40):
                nest = self.schedule.nest(name)
                known = all(nest.regions[d].largest or isinstance(d.extent, Const) for d in nest.tensor.dims)
                scope = "register" if known and self.choices.chance(50) else "scratch"
                self._try(f'set_scope("{name}", "{scope}")')

    def _try(self, step: str) -> bool:
        try:
            self.schedule = self.program.assign("s", f"s.{step}")
        except ScheduleError as error:
            self.refused.append(f"{step}: {error}")
            return False
        return True

    def _names(self) -> list[str]:
        """The operators and pieces with loops of their own."""
        return [nest.name for nest in self.schedule.nests]

    def _leaves(self, op: str) -> tuple[Leaf, ...]:
        return self.schedule.nest(op).leaves

    def _pad_storage(self, tensor: Tensor, dim: str, multiple: int | None = None) -> None:
        choices = self.choices
        factors = FACTORS if tensor.ndim <= 2 else FACTORS[:4]
        arguments = [f'"{tensor.name}"', f'"{dim}"', str(multiple or choices.pick(factors))]
        if choices.chance(20):
            arguments.append("to_max=True")
        if choices.chance(8):
            arguments.append('contents="undefined"')
        self._try(f"pad_dim({', '.join(arguments)})")

    def _step(self, op: str) -> None:
        leaves = self._leaves(op)
        if leaves:
            step = self.choices.pick(
                [*3 * [self._split], *3 * [self._fuse], *2 * [self._reorder], *2 * [self._pad], self._bulk_pad,
                 self._peel, self._remap, self._unroll, self._vectorize, self._parallel, self._tensorize,
                 self._cache_read, self._cache_write, self._tile]
            )  # fmt: skip
            step(op, leaves)

    def _split(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        loop = self.choices.pick(leaves).name
        factor = self.choices.pick(FACTORS)
        how = self.choices.pick(
            [*3 * [f"{factor}"], f"parts={factor}", *(f'{factor}, tail="{t}"' for t in TAILS)]
        )
        outer, inner = self.program.fresh("l"), self.program.fresh("l")
        self._try(f'split("{op}", "{loop}", {how}, names=("{outer}", "{inner}"))')

    def _fuse(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        if len(leaves) < 2:
            return
        count = self.choices.pick([2, 2, 2, min(3, len(leaves))])
        first = self.choices.integer(0, len(leaves) - count)
        loops = ", ".join(f'"{leaf.name}"' for leaf in leaves[first : first + count])
        self._try(f'fuse("{op}", {loops}, name="{self.program.fresh("l")}")')

    def _reorder(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        if len(leaves) < 2:
            return
        if self.choices.chance(60):  # two neighbours change places
            first = self.choices.integer(0, len(leaves) - 2)
            order = [leaves[first + 1], leaves[first]]
        else:
            order = self.choices.shuffled(self.choices.subset(leaves, 70))
        if order:
            names = ", ".join(f'"{leaf.name}"' for leaf in order)
            self._try(f'reorder("{op}", {names})')

    def _pad(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        roots = [leaf for leaf in leaves if leaf.root is not None]
        if not roots:
            return
        leaf = self.choices.pick(roots)
        multiple = self.choices.pick(FACTORS if len(leaves) <= 3 else FACTORS[:4])
        padded = self._try(f'pad_loop("{op}", "{leaf.name}", {multiple})') and not leaf.reduction
        if padded and self.choices.chance(95):  # else the build refuses, or the padding given before suffices
            tensor = self.schedule.nest(op).tensor
            self._pad_storage(tensor, leaf.name, multiple * self.choices.pick([1, 1, 2]))

    def _bulk_pad(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        made = [leaf.name for leaf in leaves if leaf.root is None]
        if made:
            self._try(f'bulk_pad("{op}", "{self.choices.pick(made)}", {self.choices.pick(FACTORS)})')

    def _peel(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        end = self.choices.pick(["last", "first"])
        self._try(f'peel("{op}", "{self.choices.pick(leaves).name}", {end}={self.choices.pick(FACTORS)})')

    def _remap(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        how = self.choices.pick(['"descending"', '"reversed"', f'table="{self.program.fresh("order")}"'])
        leaf = leaves[0] if self.choices.chance(70) else self.choices.pick(leaves)
        self._try(f'remap("{op}", "{leaf.name}", {how})')

    def _unroll(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        constant = [leaf for leaf in leaves if isinstance(leaf.extent, Const)]
        if constant:
            self._try(f'unroll("{op}", "{self.choices.pick(constant).name}")')

    def _cache_read(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        body = self.schedule.nest(op).tensor.body
        read = tensors_of(body) if body is not None else ()
        if read:
            tensor, loop = self.choices.pick(read).name, self.choices.pick(leaves).name
            copy = self.program.fresh("C")
            if self._try(f'cache_read("{op}", "{tensor}", "{loop}", name="{copy}")') and self._leaves(copy):
                if self.schedule.nest(op).tile and self.choices.chance(70):
                    self._try(f'fill_at_use("{copy}")')
                else:
                    self._step(copy)

    def _cache_write(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        if any(leaf.reduction for leaf in leaves):
            self._try(f'cache_write("{op}", "{self.choices.pick(leaves).name}")')

    def _tile(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        if len(leaves) > 1:
            place = self.choices.integer(0, len(leaves) - 2)
            factors = self.choices.pick(FACTORS), self.choices.pick(FACTORS)
            self._try(f'tile("{op}", ("{leaves[place].name}", "{leaves[place + 1].name}"), {factors})')

    def _vectorize(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        if not leaves:
            return
        leaf = leaves[-1] if self.choices.chance(90) else self.choices.pick(leaves)
        self._try(f'vectorize("{op}", "{leaf.name}"{self.choices.pick(LANES)})')

    def _tensorize(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        if not self._is_product(op) and self.choices.chance(80):
            return  # the build would refuse the whole program
        kernel = self.choices.pick(TILES)
        self._try(f'tensorize("{op}", "{leaves[max(len(leaves) - 3, 0)].name}"{kernel})')

    def _is_product(self, op: str) -> bool:
        """Whether a micro-kernel may compute the operator: one float32 sum of products."""
        tensor = self.schedule.nest(op).tensor
        found = reductions_of(tensor.body) if tensor.body is not None else []
        if tensor.dtype != "float32" or len(found) != 1 or found[0].op != "sum":
            return False
        match found[0].body:
            case Binary(op="mul", a=Access() as a, b=Access() as b):
                return bool(a.dtype == b.dtype == "float32")
        return False

    def _tile_shape(self, op: str, leaves: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
        """The loops of an operator such that the innermost are rows, columns and a reduction, if it has these."""
        choices = self.choices
        spatial = [leaf.name for leaf in leaves if not leaf.reduction]
        reduced = [leaf.name for leaf in leaves if leaf.reduction]
        if not spatial or not reduced:
            return leaves
        inner = []
        for name in (*(spatial[-2:] if choices.chance(80) else spatial[-1:]), reduced[-1]):
            names = self.program.fresh("l"), self.program.fresh("l")
            factor, tail = choices.pick(FACTORS), choices.pick(["guard", *TAILS])
            cut = name != reduced[-1] or choices.chance(40)
            if cut and self._try(f'split("{op}", "{name}", {factor}, tail="{tail}", names={names})'):
                inner.append(names[1])
            else:
                inner.append(name)
        rest = [leaf.name for leaf in self._leaves(op) if leaf.name not in inner]
        order = ", ".join(f'"{name}"' for name in (*rest, *inner))
        self._try(f'reorder("{op}", {order})')
        return self._leaves(op)

    def _parallel(self, op: str, leaves: tuple[Leaf, ...]) -> None:
        if not leaves:
            return
        leaf = leaves[0] if self.choices.chance(70) else self.choices.pick(leaves)
        balance = self.choices.pick(["", *(f', balance="{b}"' for b in BALANCES)])
        self._try(f'parallel("{op}", "{leaf.name}"{balance})')
