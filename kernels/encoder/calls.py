"""The calls of an encoder layer as data: which kernel, on which arrays, in which order."""

from __future__ import annotations

from cora import KernelCall
from cora.kernels.encoder.config import LayerConfig


def layer_calls(config: LayerConfig) -> tuple[KernelCall, ...]:
    """The calls of one layer, from `x` to `y` [tokens, hidden]; weights have their names in `LayerWeights`."""

    def attention(x: str, out: str) -> tuple[KernelCall, ...]:
        return (
            KernelCall("qkv", {"X": x, "W": "qkv", "bias": "qkv_bias", "qkv": "projections"}),
            KernelCall("attended", {"QKV": "projections", "attended": "attended"}),
            KernelCall(
                "projected",
                {"X": "attended", "W": "out", "bias": "out_bias", "residual": "x", "projected": out},
            ),
        )

    def norm(number: int, x: str, out: str) -> KernelCall:
        arrays = {"X": x, "gamma": f"norm{number}_gamma", "beta": f"norm{number}_beta", "normed": out}
        return KernelCall("normed", arrays)

    def feed_forward(x: str, residual: str, out: str) -> tuple[KernelCall, ...]:
        return (
            KernelCall("inner", {"X": x, "W": "inner", "bias": "inner_bias", "inner": "activated"}),
            KernelCall(
                "outer",
                {"X": "activated", "W": "outer", "bias": "outer_bias", "residual": residual, "outer": out},
            ),
        )

    if config.norm == "post":
        return (
            *attention("x", "added"),
            norm(1, "added", "normed"),
            *feed_forward("normed", "normed", "fed"),
            norm(2, "fed", "y"),
        )
    return (
        norm(1, "x", "normed"),
        *attention("normed", "added"),
        norm(2, "added", "normed_again"),
        *feed_forward("normed_again", "added", "y"),
    )
