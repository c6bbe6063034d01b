"""Ragged programs with schedules for a GPU, whose resources `cuda_resources` reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import cora
from cora.kernels import RECIPES
from cora.kernels.attention.cuda import ROWS
from cora.kernels.gemm import Storage

HEADS = 8
HEAD_SIZE = 64
WIDTH = 512


@dataclass(frozen=True, slots=True)
class Program:
    """A name and a schedule; None: the default one of the outputs."""

    name: str
    outputs: tuple[cora.Tensor, ...]
    schedule: cora.Schedule | None = None

    @property
    def built_from(self) -> Any:
        """What `cora.build` takes."""
        return self.outputs if self.schedule is None else self.schedule


def _rows() -> tuple[cora.Dim, cora.Dim, Callable[[str], cora.Dim]]:
    """batch, pos < lens[batch], and further dims of the same extent."""
    batch = cora.Dim("batch", cora.size("M"))
    lens = cora.lengths("lens", batch)
    return batch, cora.Dim("pos", lens[batch]), lambda name: cora.Dim(name, lens[batch])


def elementwise() -> Program:
    """Bias and gelu of packed tokens."""
    batch, pos, _ = _rows()
    d = cora.Dim("d", WIDTH)
    X, bias = cora.placeholder("X", [batch, pos, d]), cora.placeholder("bias", [d])
    Y = cora.compute("Y", [batch, pos, d], cora.gelu(X[batch, pos, d] + bias[d]))
    return Program("bias_gelu", (Y,))


def row_softmax() -> Program:
    """Softmax of attention scores: a warp for each row, in one kernel."""
    batch, i, dim = _rows()
    j, h = dim("j"), cora.Dim("h", HEADS)
    X = cora.placeholder("X", [batch, i, h, j])
    top = cora.compute("top", [batch, i, h], cora.max(X[batch, i, h, j], over=j))
    total = cora.compute(
        "total", [batch, i, h], cora.sum(cora.exp(X[batch, i, h, j] - top[batch, i, h]), over=j)
    )
    Y = cora.compute(
        "Y", [batch, i, h, j], cora.exp(X[batch, i, h, j] - top[batch, i, h]) / total[batch, i, h]
    )
    s = cora.schedule(Y).fuse(Y, batch, i, h, name="row").split(Y, "row", 4, names=("block", "warp"))
    s = s.compute_at(total, Y, "warp").compute_at(top, Y, "warp")
    for t in (top, total, Y):
        s = s.split(t, j, 32, names=("turn", "lane")).bind(t, "lane", "threadIdx.x")
    return Program("softmax", (Y,), s.bind(Y, "block", "blockIdx.x").bind(Y, "warp", "threadIdx.y"))


def triangle_times_vector() -> Program:
    """A lower triangle times a vector: a warp for each row."""
    row = cora.Dim("row", cora.size("N"))
    column = cora.Dim("column", row + 1)
    L, x = cora.placeholder("L", [row, column]), cora.placeholder("x", [row])
    Y = cora.compute("Y", [row], cora.sum(L[row, column] * x[column], over=column))
    return Program("trmv", (Y,))


def recipe(
    name: str,
    variant: str | None = None,
    schedule: Mapping[str, Any] = MappingProxyType({}),
    **definition: Any,
) -> Program:
    """A kernel of the library; `schedule` are choices of its schedule."""
    made = RECIPES[name].schedule(
        RECIPES[name].define(**definition), target="cuda", variant=variant, **schedule
    )
    return Program(name, made.outputs, made)


def projection(width: int = WIDTH) -> Program:
    """Packed tokens times a square matrix."""
    return recipe("linear", features_in=width, features_out=width, bias=True)


def attention(variant: str) -> Program:
    """Attention of packed tokens."""
    return recipe("attention", variant, heads=HEADS, head_size=HEAD_SIZE, block=ROWS)


PROGRAMS: Mapping[str, Callable[[], Program]] = {
    "bias_gelu": elementwise,
    "softmax": row_softmax,
    "layer_norm": lambda: recipe("layer_norm", size=WIDTH),
    "trmv": triangle_times_vector,
    "tradd": lambda: recipe("tradd"),
    "trmm": lambda: recipe("trmm"),
    "trmm_packed": lambda: recipe("trmm", storage="packed"),
    "trmm_small": lambda: recipe("trmm", "tiled_small"),
    "linear": projection,
    "linear_float16": lambda: recipe(
        "linear", "tensor_cores", features_in=WIDTH, features_out=WIDTH, bias=True, dtype="float16"
    ),
    "linear_tf32": lambda: recipe(
        "linear", "tensor_cores", {"tf32": True}, features_in=WIDTH, features_out=WIDTH, bias=True
    ),
    "vgemm": lambda: recipe("vgemm"),
    "vgemm_padded": lambda: recipe("vgemm", schedule={"storage": Storage(multiple=4)}),
    "attention": lambda: attention("stored"),
    "attention_flash": lambda: attention("flash"),
}
