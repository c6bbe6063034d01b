"""Attention as a folder of libraries that runs without cora."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cora
from cora.kernels.attention.definition import Attention, Causal, define
from cora.kernels.attention.schedules import schedule


def deploy_attention(
    folder: str | Path,
    *,
    heads: int,
    head_size: int,
    kv_heads: int | None = None,
    value_size: int | None = None,
    causal: Causal = "no",
    window: int | None = None,
    scale: float | None = None,
    one_length: bool = True,
    lse: bool = False,
    target: Any = "llvm",
    runtime: bool = False,
) -> Path:
    """Write the kernel of a kind of attention (`cora.deploy`); gives the path of the manifest.

    Its arguments are Q, K, V and `lens`, and `kv_lens` unless queries and keys have the same lengths; see
    `cora.kernels.attention` for what is computed. Raises UserError for a kind that does not exist.
    """
    spec = Attention(
        heads,
        heads if kv_heads is None else kv_heads,
        head_size,
        head_size if value_size is None else value_size,
        float(max(head_size, 1) ** -0.5 if scale is None else scale),
        causal,
        window,
        one_length,
        lse=lse,
    )
    about = {name: getattr(spec, name) for name in ("heads", "kv_heads", "head_size", "value_size", "scale")}
    about |= {"causal": causal, "window": window, "one_length": one_length, "lse": lse}
    kernel = cora.build(schedule(define(spec)), target=target)
    return cora.deploy(folder, kernel, name="attention", about=about, runtime=runtime)
