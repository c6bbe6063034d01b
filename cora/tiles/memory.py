"""Reading and writing rows of vectors whose last vector may be partial, without touching a lane too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cora.tiles.family import TileFamily
from cora.tiles.ir import Writer


class Lanes(Protocol):
    """Access to the first `nrem` (1 to lanes) elements of a vector in memory."""

    def load(self, w: Writer, kind: str, address: str) -> str:
        """The vector; what its other lanes hold is unspecified."""
        ...

    def store(self, w: Writer, kind: str, address: str, value: str) -> None:
        """Write the first lanes of `value`."""
        ...


@dataclass(frozen=True, slots=True)
class _Full:
    """All lanes."""

    align: int

    def load(self, w: Writer, kind: str, address: str) -> str:
        return w.value(f"load {kind}, ptr {address}, align {self.align}")

    def store(self, w: Writer, kind: str, address: str, value: str) -> None:
        w.do(f"store {kind} {value}, ptr {address}, align {self.align}")


@dataclass(frozen=True, slots=True)
class _MaskRegister:
    """AVX-512: a mask in a register of its own; masked instructions cost what plain ones do."""

    align: int
    lanes: int
    mask: str

    def load(self, w: Writer, kind: str, address: str) -> str:
        name = f"@llvm.masked.load.{_suffix(kind)}.p0"
        return w.value(
            f"call {kind} {name}(ptr align {self.align} {address}, <{self.lanes} x i1> {self.mask},"
            f" {kind} zeroinitializer)"
        )

    def store(self, w: Writer, kind: str, address: str, value: str) -> None:
        name = f"@llvm.masked.store.{_suffix(kind)}.p0"
        w.do(
            f"call void {name}({kind} {value}, ptr align {self.align} {address},"
            f" <{self.lanes} x i1> {self.mask})"
        )


@dataclass(frozen=True, slots=True)
class _MaskVector:
    """AVX2: a vector whose sign bits are the mask.

    LLVM's general masked operations take bits, and would turn them into this vector in every iteration.
    """

    mask: str

    def load(self, w: Writer, kind: str, address: str) -> str:
        return w.value(f"call {kind} @llvm.x86.avx.maskload.ps.256(ptr {address}, <8 x i32> {self.mask})")

    def store(self, w: Writer, kind: str, address: str, value: str) -> None:
        w.do(
            f"call void @llvm.x86.avx.maskstore.ps.256(ptr {address}, <8 x i32> {self.mask}, {kind} {value})"
        )


@dataclass(frozen=True, slots=True)
class _ClampedLanes:
    """No masks: lane i is element min(i, nrem - 1), which is always there.

    So the lanes beyond are copies of the last valid one, in every vector that takes part, and in the
    result: all of them are stored to the same element, in any order.
    """

    align: int
    indices: Sequence[str]

    def load(self, w: Writer, kind: str, address: str) -> str:
        element = _element(kind)
        vector = "poison"
        for lane, index in enumerate(self.indices):
            place = w.value(f"getelementptr {element}, ptr {address}, i64 {index}")
            scalar = w.value(f"load {element}, ptr {place}, align {self.align}")
            vector = w.value(f"insertelement {kind} {vector}, {element} {scalar}, i32 {lane}")
        return vector

    def store(self, w: Writer, kind: str, address: str, value: str) -> None:
        element = _element(kind)
        for lane, index in enumerate(self.indices):
            place = w.value(f"getelementptr {element}, ptr {address}, i64 {index}")
            scalar = w.value(f"extractelement {kind} {value}, i32 {lane}")
            w.do(f"store {element} {scalar}, ptr {place}, align {self.align}")


def _element(kind: str) -> str:
    """LLVM's type of an element of the vector type `kind`."""
    return kind.removesuffix(">").rpartition(" ")[2]


_SHORT: Final = {"float": "f32", "i32": "i32"}


def _suffix(kind: str) -> str:
    """How the vector type is written in the names of intrinsics: v16f32."""
    lanes = kind.removeprefix("<").partition(" ")[0]
    return f"v{lanes}{_SHORT[_element(kind)]}"


def last_lanes(w: Writer, family: TileFamily, *, partial: bool) -> Lanes:
    """Access to the last vector of a row: to all of its lanes, or to those below %nrem."""
    align, lanes = family.dot.itemsize, family.lanes
    if not partial:
        return _Full(align)
    match family.tail:
        case "mask register":
            return _MaskRegister(align, lanes, _lane_below_nrem(w, lanes))
        case "mask vector":
            below = _lane_below_nrem(w, lanes)
            return _MaskVector(w.value(f"sext <{lanes} x i1> {below} to <{lanes} x i32>"))
        case "clamped lanes":
            last = w.value("sub i64 %nrem, 1")
            indices = [
                w.value(f"call i64 @llvm.smin.i64(i64 {lane}, i64 {last})") for lane in range(1, lanes)
            ]
            return _ClampedLanes(align, ("0", *indices))


def _lane_below_nrem(w: Writer, lanes: int) -> str:
    """Lane by lane, whether its number is below %nrem."""
    kind = f"<{lanes} x i32>"
    narrow = w.value("trunc i64 %nrem to i32")
    first = w.value(f"insertelement {kind} poison, i32 {narrow}, i32 0")
    splat = w.value(f"shufflevector {kind} {first}, {kind} poison, {kind} zeroinitializer")
    numbers = ", ".join(f"i32 {lane}" for lane in range(lanes))
    return w.value(f"icmp ult {kind} <{numbers}>, {splat}")


def declarations(family: TileFamily) -> list[str]:
    """Declarations of the intrinsics that `last_lanes` uses."""
    match family.tail:
        case "mask register":
            dot, mask = family.dot, f"<{family.lanes} x i1>"
            kinds = sorted(f"<{family.lanes} x {element}>" for element in {dot.accumulator, dot.word})
            return [
                *(f"declare {k} @llvm.masked.load.{_suffix(k)}.p0(ptr, {mask}, {k})" for k in kinds),
                *(f"declare void @llvm.masked.store.{_suffix(k)}.p0({k}, ptr, {mask})" for k in kinds),
            ]
        case "mask vector":
            return [
                "declare <8 x float> @llvm.x86.avx.maskload.ps.256(ptr, <8 x i32>)",
                "declare void @llvm.x86.avx.maskstore.ps.256(ptr, <8 x i32>, <8 x float>)",
            ]
        case "clamped lanes":
            return ["declare i64 @llvm.smin.i64(i64, i64)"]


@dataclass(frozen=True, slots=True)
class Row:
    """Access to `vectors` vectors in a row; `last` knows about the last of them."""

    kind: str
    lanes: int
    vectors: int
    full: Lanes
    last: Lanes

    def load(self, w: Writer, address: str) -> list[str]:
        """The vectors that begin at `address`."""
        return [lanes.load(w, self.kind, place) for lanes, place in self._parts(w, address)]

    def store(self, w: Writer, address: str, values: Sequence[str]) -> None:
        """Write the vectors, the first at `address`."""
        for (lanes, place), value in zip(self._parts(w, address), values, strict=True):
            lanes.store(w, self.kind, place, value)

    def _parts(self, w: Writer, address: str) -> list[tuple[Lanes, str]]:
        element = _element(self.kind)
        return [
            (self.last if v == self.vectors - 1 else self.full, w.offset(element, address, v * self.lanes))
            for v in range(self.vectors)
        ]


def row(w: Writer, family: TileFamily, element: str, vectors: int, last: Lanes) -> Row:
    """Rows of elements of LLVM's type `element` whose last vector is accessed by `last`."""
    kind = f"<{family.lanes} x {element}>"
    return Row(kind, family.lanes, vectors, _Full(family.dot.itemsize), last)
