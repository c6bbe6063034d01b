"""What lowering makes of a program: functions over flat buffers, and what the run time must know to call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cora.ir.stmt import Buffer, Function, Stmt
from cora.ir.tensor import Tensor
from cora.ir.ufun import UFun
from cora.lower.records import Guard, IndexCheck
from cora.prove import Effort, Method
from cora.schedule.nest import LoopNest
from cora.storage.layout import Layout


@dataclass(frozen=True, slots=True)
class Lowered:
    """A lowered program.

    kernel: computes the outputs. check: counts the violations of each index check (one int64 output per check);
    None where no index is read from data.
    tensors: what each tensor buffer of the functions holds. tables: what each table buffer holds.
    stages: the program after each pass, outermost statement of the kernel. effort: what the proofs cost, by method.
    """

    name: str
    kernel: Function
    check: Function | None
    checks: tuple[IndexCheck, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    intermediates: tuple[Tensor, ...]
    layouts: Mapping[str, Layout]
    nests: Mapping[str, LoopNest]
    tables: Mapping[Buffer, UFun]
    guards: tuple[Guard, ...]
    stages: Mapping[str, Stmt]
    undefined_padding: frozenset[str]
    effort: Mapping[Method, Effort]
