"""What lowering tells about a program, as plain data that is stored beside its code."""

from __future__ import annotations

from dataclasses import dataclass

from cora.ir.expr import Dim, Expr


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard of a kernel: where it stands, its condition, and what became of it."""

    operator: str
    where: str
    condition: str
    kept: bool
    method: str
    reason: str

    def __str__(self) -> str:
        state = "kept   " if self.kept else "removed"
        why = f"{self.method}: {self.reason}" if self.reason else self.method
        return f"{state} {self.where}: {self.condition}   [{why}]"


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """An index read from data: `0 <= index < extent` must hold for all valid values of `dims` where `path` holds."""

    operator: str
    tensor: str
    dim: str
    index: Expr
    extent: Expr
    path: tuple[Expr, ...]
    dims: tuple[Dim, ...]

    def message(self, bad: int | str) -> str:
        """What to tell when it does not hold for `bad` of the indices."""
        return (
            f"compute '{self.operator}': the index {self.index} into dim '{self.dim}' of '{self.tensor}' must be at "
            f"least 0 and below {self.extent}; it is not for {bad} of the indices "
            f"[{', '.join(d.name for d in self.dims)}]"
        )
