"""The families of micro-kernels: which tile shapes exist for which instruction set, and why they fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from cora.errors import UnsupportedError

Isa = Literal["avx512", "avx2", "neon"]
Tail = Literal["mask register", "mask vector", "clamped lanes"]


@dataclass(frozen=True, slots=True)
class _InstructionSet:
    """arch: LLVM's name of the architecture. features: LLVM's names of what must be there.

    registers: how many vector registers. max_rows, max_vectors: the largest tile, such that its
    accumulators, one row of B, one element of A, and the mask where it takes a vector register, are in
    registers together.
    tail: how the lanes of a last, partial vector are read and written (`cora.tiles.memory`).
    """

    arch: str
    features: frozenset[str]
    vector_bytes: int
    registers: int
    max_rows: int
    max_vectors: int
    tail: Tail


_ISAS: Final[Mapping[str, _InstructionSet]] = {
    "avx512": _InstructionSet(
        "x86_64", frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}), 64, 32, 6, 4, "mask register"
    ),
    "avx2": _InstructionSet("x86_64", frozenset({"avx2", "fma"}), 32, 16, 6, 2, "mask vector"),
    "neon": _InstructionSet("aarch64", frozenset({"neon"}), 16, 32, 8, 3, "clamped lanes"),
}


@dataclass(frozen=True, slots=True)
class Dot:
    """How one step of the reduction is added to the accumulators: sum[lane] += dot(a, b[lane]).

    a and b[lane] are words: `packing` consecutive operands, together as wide as an accumulator.

    accumulator, word, operand: LLVM's types; C, R and start hold accumulators, A and B hold words.
    itemsize: bytes of an accumulator, and of a word.
    function, arguments: the LLVM intrinsic on vectors, and the order of a, b and the sum among its
    arguments; `{lanes}` stands for the number of accumulators.
    needs: which instruction sets have it, and what features it needs beside the set's own.
    """

    accumulator: str
    word: str
    operand: str
    packing: int
    itemsize: int
    function: str
    arguments: str
    needs: Mapping[Isa, frozenset[str]]


_NOTHING: Final[frozenset[str]] = frozenset()

#: By the data type of A and B.
_DOTS: Final[Mapping[str, Dot]] = {
    "float32": Dot(
        accumulator="float",
        word="float",
        operand="float",
        packing=1,
        itemsize=4,
        function="llvm.fma.v{lanes}f32",
        arguments="{a}, {b}, {sum}",
        needs={"avx512": _NOTHING, "avx2": _NOTHING, "neon": _NOTHING},
    ),
    # Takes subnormal operands and sums for zero; the two products of a word are added one after the other.
    "bfloat16": Dot(
        accumulator="float",
        word="i32",
        operand="bfloat",
        packing=2,
        itemsize=4,
        function="llvm.x86.avx512bf16.dpbf16ps.512",
        arguments="{sum}, {a}, {b}",
        needs={"avx512": frozenset({"avx512bf16"})},
    ),
}


@dataclass(frozen=True, slots=True)
class TileFamily:
    """All micro-kernels of one instruction set and one data type (that of A and B; C is float32).

    Raises UnsupportedError where there are no micro-kernels; `exists` tells.
    """

    isa: Isa
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if not TileFamily.exists(self.isa, self.dtype):
            have = ", ".join(f"{isa} {dtype}" for dtype, dot in _DOTS.items() for isa in dot.needs)
            raise UnsupportedError(f"TileFamily: no micro-kernels for {self.isa} {self.dtype}; have {have}")

    @staticmethod
    def exists(isa: str, dtype: str) -> bool:
        """Whether there are micro-kernels for this instruction set and data type."""
        return dtype in _DOTS and isa in _DOTS[dtype].needs

    @property
    def dot(self) -> Dot:
        """The operation of one step of the reduction."""
        return _DOTS[self.dtype]

    @property
    def arch(self) -> str:
        """LLVM's name of the architecture."""
        return _ISAS[self.isa].arch

    @property
    def features(self) -> frozenset[str]:
        """LLVM's names of the CPU features without which the code must not run."""
        return _ISAS[self.isa].features | self.dot.needs[self.isa]

    @property
    def registers(self) -> int:
        """How many vector registers there are."""
        return _ISAS[self.isa].registers

    @property
    def tail(self) -> Tail:
        """How the lanes of a partial vector are read and written."""
        return _ISAS[self.isa].tail

    @property
    def lanes(self) -> int:
        """Elements of C in one vector."""
        return _ISAS[self.isa].vector_bytes // self.dot.itemsize

    @property
    def max_rows(self) -> int:
        """Tiles have 1 to `max_rows` rows."""
        return _ISAS[self.isa].max_rows

    @property
    def max_vectors(self) -> int:
        """Tiles have 1 to `max_vectors` vectors in a row."""
        return _ISAS[self.isa].max_vectors

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """All (mr, nv), in the order of the entry's table."""
        rows, vectors = range(1, self.max_rows + 1), range(1, self.max_vectors + 1)
        return tuple((mr, nv) for mr in rows for nv in vectors)

    @property
    def portable(self) -> bool:
        """Whether the IR asks for no instruction of its own, so that it can be compiled for any CPU."""
        return self.tail == "clamped lanes"
