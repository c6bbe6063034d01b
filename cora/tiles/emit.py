"""The micro-kernels as LLVM IR: one function per shape, and the entry that chooses among them.

The text is in SSA form as it stands (accumulators are phis), so that no pass over the IR is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cora.tiles.contract import ARGUMENTS, SYMBOL, Flags
from cora.tiles.family import Dot, TileFamily
from cora.tiles.ir import Writer
from cora.tiles.memory import Row, declarations, last_lanes, row

_CACHE_LINE_BYTES = 64
#: So many steps before a row of B is copied to the panel, it is asked for: rows that are far apart, each in a page of
#: its own, are what the processor does not foresee.
_STEPS_AHEAD = 32
_START = Flags.START_ROW | Flags.START_C
_NO_PANEL = Flags.PACK | Flags.TRIANGLE

#: A and B are not written by the call; C, R and start may overlap, so they are not noalias.
_PROMISES = {"A": "noalias readonly", "B": "noalias readonly", "R": "readonly", "start": "readonly"}
_PARAMETERS = ", ".join(f"{kind} {_PROMISES.get(name, '')} %{name}" for name, kind in ARGUMENTS.items())
_PASSED = ", ".join(f"{kind} %{name}" for name, kind in ARGUMENTS.items())

#: On the loop over k: unrolling it gains nothing and makes the code large.
_METADATA = '!0 = distinct !{!0, !1}\n!1 = !{!"llvm.loop.unroll.disable"}'


@dataclass(frozen=True, slots=True)
class _Variant:
    """One function: a shape, and whether its last vector may be partial."""

    mr: int
    nv: int
    partial: bool

    @property
    def name(self) -> str:
        return f"tile_{self.mr}x{self.nv}{'_partial' * self.partial}"


@dataclass(frozen=True, slots=True)
class _Operation:
    """The dot operation on vectors of `lanes` accumulators."""

    dot: Dot
    lanes: int

    @property
    def sums(self) -> str:
        """LLVM's type of a vector of accumulators."""
        return f"<{self.lanes} x {self.dot.accumulator}>"

    @property
    def words(self) -> str:
        """LLVM's type of a vector of words."""
        return f"<{self.lanes} x {self.dot.word}>"

    @property
    def operands(self) -> str:
        """LLVM's type of the operands in a vector of words."""
        return f"<{self.lanes * self.dot.packing} x {self.dot.operand}>"

    def cast(self, w: Writer, words: str) -> str:
        """A vector of words as one of operands."""
        if self.words == self.operands:
            return words
        return w.value(f"bitcast {self.words} {words} to {self.operands}")

    def call(self, a: str, b: str, sums: str) -> str:
        """The instruction that gives sums + a . b, for vectors of operands a and b."""
        return self._signature(f"{self.operands} {a}", f"{self.operands} {b}", f"{self.sums} {sums}", "call")

    def declaration(self) -> str:
        """The declaration of the intrinsic."""
        return self._signature(self.operands, self.operands, self.sums, "declare")

    def _signature(self, a: str, b: str, sums: str, verb: str) -> str:
        function = self.dot.function.format(lanes=self.lanes)
        return f"{verb} {self.sums} @{function}({self.dot.arguments.format(a=a, b=b, sum=sums)})"


def module_text(family: TileFamily) -> str:
    """The module of `family`: the entry `cora_tile`, and a function of its own for each variant."""
    operation = _Operation(family.dot, family.lanes)
    return "\n".join(
        [
            *(_tile(family, variant) for variant in _variants(family)),
            _entry(family),
            operation.declaration(),
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
            *declarations(family),
            _METADATA,
            "",
        ]
    )


def _variants(family: TileFamily) -> list[_Variant]:
    """All functions, in the order of the entry's table."""
    return [_Variant(mr, nv, partial) for partial in _partials(family) for mr, nv in family.shapes]


def _partials(family: TileFamily) -> tuple[bool, ...]:
    """Where masks are free, code for partial vectors serves full ones too."""
    return (True,) if family.tail == "mask register" else (False, True)


def _entry(family: TileFamily) -> str:
    """The exported function: checks what the contract says it checks, and jumps to the variant."""
    names = [*(variant.name for variant in _variants(family)), "refuse"]
    pointers = ", ".join(f"ptr @{name}" for name in names)
    table = f"@tiles = internal unnamed_addr constant [{len(names)} x ptr] [{pointers}]"
    w = Writer(f"define hidden i32 @{SYMBOL}({_PARAMETERS}) nounwind")
    w.label("entry")
    r = w.value("sub i64 %mr, 1")
    v = w.value("sub i64 %nv, 1")
    n = w.value("sub i64 %nrem, 1")
    starts = w.value(f"and i64 %flags, {int(_START)}")
    panel = w.value(f"and i64 %flags, {int(_NO_PANEL)}")
    checks = [
        w.value(f"icmp ult i64 {r}, {family.max_rows}"),
        w.value(f"icmp ult i64 {v}, {family.max_vectors}"),
        w.value(f"icmp ult i64 {n}, {family.lanes}"),
        w.value("icmp sge i64 %k, 0"),
        w.value(f"icmp ult i64 %flags, {2 * int(max(Flags))}"),
        w.value(f"icmp ne i64 {starts}, {int(_START)}"),
        w.value(f"icmp ne i64 {panel}, {int(_NO_PANEL)}"),
    ]
    good = checks[0]
    for check in checks[1:]:
        good = w.value(f"and i1 {good}, {check}")
    which = w.value(f"add i64 {w.value(f'mul i64 {r}, {family.max_vectors}')}, {v}")
    if len(_partials(family)) == 2:
        partial = w.value(f"icmp ne i64 %nrem, {family.lanes}")
        skipped = w.value(f"select i1 {partial}, i64 {len(family.shapes)}, i64 0")
        which = w.value(f"add i64 {which}, {skipped}")
    which = w.value(f"select i1 {good}, i64 {which}, i64 {len(names) - 1}")
    place = w.value(f"getelementptr ptr, ptr @tiles, i64 {which}")
    tile = w.value(f"load ptr, ptr {place}, align 8")
    # One block, and the arguments as they came: the call is a jump that moves none of them.
    w.do(f"ret i32 {w.value(f'musttail call i32 {tile}({_PASSED})')}")
    return "\n".join(
        [table, w.text(), f"define internal i32 @refuse({_PARAMETERS}) nounwind {{ ret i32 -1 }}"]
    )


def _tile(family: TileFamily, variant: _Variant) -> str:
    """The function of one variant."""
    w = Writer(f"define internal i32 @{variant.name}({_PARAMETERS}) noinline nounwind")
    w.label("entry")
    last = last_lanes(w, family, partial=variant.partial)
    sums = row(w, family, family.dot.accumulator, variant.nv, last)
    words = row(w, family, family.dot.word, variant.nv, last)
    c_rows = w.rows(family.dot.accumulator, "%C", "%c_row", variant.mr)
    a_rows = _rows_of_a(w, family, variant.mr)
    _prefetch(w, family, variant, c_rows)
    begin = _start(w, sums, c_rows)
    products = _products(w, family, words, a_rows, begin)
    end = _triangle(w, family, words, a_rows, products)
    _finish(w, family, sums, c_rows, end)
    return w.text()


def _rows_of_a(w: Writer, family: TileFamily, count: int) -> list[str]:
    """The addresses of the rows of A: each stride is `a_bend` larger than the one before."""
    offset, stride, rows = "0", "%a_row", ["%A"]
    for r in range(1, count):
        offset = stride if r == 1 else w.value(f"add i64 {offset}, {stride}")
        rows.append(w.offset(family.dot.word, "%A", offset))
        stride = w.value(f"add i64 {stride}, %a_bend")
    return rows


def _prefetch(w: Writer, family: TileFamily, variant: _Variant, c_rows: Sequence[str]) -> None:
    """Fetch C for writing, and where registers are left the residual, or else what is to the right of C, which the next
    tile may start from; while products are computed. Never faults."""
    element = family.dot.accumulator

    def fetch(rows: Sequence[str], for_writing: bool) -> None:
        for address in rows:
            _fetch_row(w, family, address, variant.nv, for_writing=for_writing)

    fetch(c_rows, for_writing=True)
    if family.tail == "clamped lanes":
        return  # its indices take the registers
    residual = w.value(f"and i64 %flags, {int(Flags.RESIDUAL)}")
    asked = w.value(f"icmp ne i64 {residual}, 0")
    beside = w.offset(element, "%C", variant.nv * family.lanes)
    first = w.value(f"select i1 {asked}, ptr %R, ptr {beside}")
    stride = w.value(f"select i1 {asked}, i64 %r_row, i64 %c_row")
    fetch(w.rows(element, first, stride, variant.mr), for_writing=False)


def _fetch_row(
    w: Writer, family: TileFamily, address: str, vectors: int, *, for_writing: bool = False
) -> None:
    """Fetch the cache lines of `vectors` vectors that begin at `address`."""
    itemsize = family.dot.itemsize
    for offset in range(0, vectors * family.lanes * itemsize, _CACHE_LINE_BYTES):
        place = w.offset(family.dot.accumulator, address, offset // itemsize)
        w.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 {int(for_writing)}, i32 3, i32 1)")


def _start(w: Writer, sums: Row, c_rows: Sequence[str]) -> list[str]:
    """The accumulators before the first step, row by row; leaves the block "begin" open."""
    start = w.value(f"and i64 %flags, {int(_START)}")
    w.do(
        f"switch i64 {start}, label %zero"
        f" [i64 {int(Flags.START_ROW)}, label %row i64 {int(Flags.START_C)}, label %old]"
    )
    w.label("zero")
    w.do("br label %begin")
    w.label("row")
    bias = sums.load(w, "%start")
    w.do("br label %begin")
    w.label("old")
    old = [value for address in c_rows for value in sums.load(w, address)]
    w.do("br label %begin")
    w.label("begin")
    zeros = ["zeroinitializer"] * len(old)
    return w.phis(sums.kind, [("zero", zeros), ("row", bias * len(c_rows)), ("old", old)])


def _products(
    w: Writer, family: TileFamily, words: Row, a_rows: Sequence[str], begin: Sequence[str]
) -> list[str]:
    """The accumulators after k steps, by one of two loops; leaves the block "done" open."""
    w.do(f"br i1 {w.value('icmp eq i64 %k, 0')}, label %done, label %some")
    w.label("some")
    packing = w.value(f"and i64 %flags, {int(Flags.PACK)}")
    kind = _Operation(family.dot, family.lanes).sums
    if _packs_apart(family, words):
        w.do(f"br i1 {w.value(f'icmp eq i64 {packing}, 0')}, label %ready, label %copy")
        _copy(w, family, words)
        w.label("ready")
        w.do("br label %plain")
        plain = _loop(w, family, words, a_rows, begin, before="ready", block="plain")
        w.label("done")
        return w.phis(kind, [("begin", begin), ("plain", plain)])
    ahead = w.value(f"mul i64 %b_k, {_STEPS_AHEAD}")
    w.do(f"br i1 {w.value(f'icmp eq i64 {packing}, 0')}, label %plain, label %pack")
    plain = _loop(w, family, words, a_rows, begin, before="some", block="plain")
    pack = _loop(w, family, words, a_rows, begin, before="some", block="pack", ahead=ahead)
    w.label("done")
    return w.phis(kind, [("begin", begin), ("plain", plain), ("pack", pack)])


def _packs_apart(family: TileFamily, words: Row) -> bool:
    """Whether a panel is written before the products: single lanes take the registers that accumulators need."""
    return family.tail == "clamped lanes" and words.last != words.full


def _copy(w: Writer, family: TileFamily, words: Row) -> None:
    """The block "copy", a loop over k > 0 steps that writes the panel; goes on to the block "ready"."""
    w.label("copy")
    for kind, name, first in (("i64", "left", "%k"), ("ptr", "b", "%B"), ("ptr", "panel", "%packed")):
        w.define(f"%copy_{name}", f"phi {kind} [{first}, %some], [%copy_{name}_next, %copy]")
    words.store(w, "%copy_panel", words.load(w, "%copy_b"))
    w.define("%copy_b_next", f"getelementptr {family.dot.word}, ptr %copy_b, i64 %b_k")
    w.define("%copy_panel_next", f"getelementptr {family.dot.word}, ptr %copy_panel, i64 %p_row")
    w.define("%copy_left_next", "sub i64 %copy_left, 1")
    more = w.value("icmp ne i64 %copy_left_next, 0")
    w.do(f"br i1 {more}, label %copy, label %ready, !llvm.loop !0")


def _triangle(
    w: Writer, family: TileFamily, words: Row, a_rows: Sequence[str], done: Sequence[str]
) -> list[str]:
    """The accumulators after the r further steps of each row r, if asked for; leaves the block "end" open.

    Nothing loops here: which row takes which step is known.
    """
    dot = family.dot
    operation = _Operation(dot, family.lanes)
    if len(a_rows) == 1:
        w.do("br label %end")
        w.label("end")
        return list(done)
    asked = w.value(f"and i64 %flags, {int(Flags.TRIANGLE)}")
    w.do(f"br i1 {w.value(f'icmp eq i64 {asked}, 0')}, label %end, label %triangle")
    w.label("triangle")
    b_offset = w.value("mul i64 %k, %b_k")
    a_offset = w.value("mul i64 %k, %a_k")
    sums = list(done)
    for step in range(len(a_rows) - 1):
        b = w.value(f"getelementptr {dot.word}, ptr %B, i64 {b_offset}")
        b_operands = [operation.cast(w, vector) for vector in words.load(w, b)]
        for r in range(step + 1, len(a_rows)):
            address = w.offset(dot.word, a_rows[r], a_offset)
            a = operation.cast(w, _splat(w, words.kind, dot.word, address, dot.itemsize))
            for v, vector in enumerate(b_operands):
                at = r * words.vectors + v
                sums[at] = w.value(operation.call(a, vector, sums[at]))
        b_offset = w.value(f"add i64 {b_offset}, %b_k")
        a_offset = w.value(f"add i64 {a_offset}, %a_k")
    w.do("br label %end")
    w.label("end")
    return w.phis(operation.sums, [("done", done), ("triangle", sums)])


def _loop(
    w: Writer,
    family: TileFamily,
    words: Row,
    a_rows: Sequence[str],
    begin: Sequence[str],
    *,
    before: str,
    block: str,
    ahead: str | None = None,
) -> list[str]:
    """The accumulators after the loop over k > 0 steps, which is one block.

    One offset serves all rows of A, so that any stride along k costs one register. With `ahead`, how far in B what is
    read later lies, the loop writes the panel.
    """
    dot = family.dot
    operation = _Operation(dot, family.lanes)
    left, a_offset, b, panel = (f"%{block}_{name}" for name in ("left", "a_offset", "b", "panel"))
    carried = [("i64", left, "%k"), ("i64", a_offset, "0"), ("ptr", b, "%B")]
    carried += [("ptr", panel, "%packed")] if ahead is not None else []
    sums = [f"%{block}_sum{i}" for i in range(len(begin))]
    carried += [(operation.sums, name, first) for name, first in zip(sums, begin, strict=True)]
    w.label(block)
    for kind, name, first in carried:
        w.define(name, f"phi {kind} [{first}, %{before}], [{name}_next, %{block}]")
    vectors = words.load(w, b)
    if ahead is not None:
        _fetch_row(w, family, w.offset(dot.word, b, ahead), words.vectors)
        words.store(w, panel, vectors)
        w.define(f"{panel}_next", f"getelementptr {dot.word}, ptr {panel}, i64 %p_row")
    b_operands = [operation.cast(w, vector) for vector in vectors]
    for r, address in enumerate(a_rows):
        splat = _splat(w, words.kind, dot.word, w.offset(dot.word, address, a_offset), dot.itemsize)
        a_operands = operation.cast(w, splat)
        for v, vector in enumerate(b_operands):
            name = sums[r * words.vectors + v]
            w.define(f"{name}_next", operation.call(a_operands, vector, name))
    w.define(f"{b}_next", f"getelementptr {dot.word}, ptr {b}, i64 %b_k")
    w.define(f"{a_offset}_next", f"add i64 {a_offset}, %a_k")
    w.define(f"{left}_next", f"sub i64 {left}, 1")
    more = w.value(f"icmp ne i64 {left}_next, 0")
    w.do(f"br i1 {more}, label %{block}, label %done, !llvm.loop !0")
    return [f"{name}_next" for name in sums]


def _splat(w: Writer, kind: str, element: str, address: str, align: int) -> str:
    """The element at `address`, in every lane."""
    scalar = w.value(f"load {element}, ptr {address}, align {align}")
    first = w.value(f"insertelement {kind} poison, {element} {scalar}, i32 0")
    lanes = kind.removeprefix("<").partition(" ")[0]
    return w.value(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")


def _finish(w: Writer, family: TileFamily, sums: Row, c_rows: Sequence[str], end: list[str]) -> None:
    """Add the residual, if asked for, and write C: all of R is read before C is written."""
    residual = w.value(f"and i64 %flags, {int(Flags.RESIDUAL)}")
    w.do(f"br i1 {w.value(f'icmp ne i64 {residual}, 0')}, label %residual, label %write")
    w.label("residual")
    r_rows = w.rows(family.dot.accumulator, "%R", "%r_row", len(c_rows))
    added = []
    for r, address in enumerate(r_rows):
        row_sums = end[r * sums.vectors : (r + 1) * sums.vectors]
        old = sums.load(w, address)
        added += [w.value(f"fadd {sums.kind} {a}, {b}") for a, b in zip(row_sums, old, strict=True)]
    w.do("br label %write")
    w.label("write")
    values = w.phis(sums.kind, [("end", end), ("residual", added)])
    for r, address in enumerate(c_rows):
        sums.store(w, address, values[r * sums.vectors : (r + 1) * sums.vectors])
    w.do("ret i32 0")
