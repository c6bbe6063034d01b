"""Encoder layers as PyTorch's users run them on batches of unequal lengths, on the same weights.

All data is put into the form that suits each way beforehand: padded, nested, sorted into micro-batches, packed. Only
the computation is timed.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from cora.kernels import LayerConfig, LayerWeights

Array = npt.NDArray[np.float32]
Lengths = npt.NDArray[np.int32]

MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


@dataclass(frozen=True, slots=True)
class Way:
    """One way: `call` computes, `result` gives what it computed last, [tokens, hidden]."""

    call: Callable[[], object]
    result: Callable[[], Array]


def installed() -> bool:
    """Whether PyTorch is there."""
    return find_spec("torch") is not None


def keep_memory() -> bool:
    """Tell the C library to keep freed memory: PyTorch, which allocates every result, is 10 to 15 % faster then."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    return all(libc.mallopt(option, 1 << 30) == 1 for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD))


def hush_nested(torch: Any) -> None:
    """Let PyTorch say, unheard, what it says once in a process: that nested tensors may change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        torch.nested.nested_tensor([torch.zeros(1)])


def encoder_layer(config: LayerConfig, weights: LayerWeights) -> Any:
    """torch.nn.TransformerEncoderLayer with these weights, in evaluation mode; of activation relu or gelu."""
    torch = import_module("torch")
    module = torch.nn.TransformerEncoderLayer(
        config.hidden,
        config.heads,
        config.inner,
        activation=config.activation,
        batch_first=True,
        layer_norm_eps=config.epsilon,
    ).eval()
    attention = module.self_attn
    pairs = (
        (attention.in_proj_weight, weights.qkv.T),
        (attention.in_proj_bias, weights.qkv_bias),
        (attention.out_proj.weight, weights.out.T),
        (attention.out_proj.bias, weights.out_bias),
        (module.linear1.weight, weights.inner.T),
        (module.linear1.bias, weights.inner_bias),
        (module.linear2.weight, weights.outer.T),
        (module.linear2.bias, weights.outer_bias),
        (module.norm1.weight, weights.norm1_gamma),
        (module.norm1.bias, weights.norm1_beta),
        (module.norm2.weight, weights.norm2_gamma),
        (module.norm2.bias, weights.norm2_beta),
    )
    with torch.no_grad():
        for parameter, values in pairs:
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))
    return module


def padded(
    config: LayerConfig, weights: LayerWeights, x: Array, lengths: Lengths, threads: int
) -> Way | None:
    """The layer on the longest's length, with a mask of the padding; None where PyTorch is not installed."""
    if not installed():
        return None
    torch = import_module("torch")
    torch.set_num_threads(threads)
    parts = [p for p in torch.from_numpy(x).split(lengths.tolist()) if len(p)]
    return _padded(torch, encoder_layer(config, weights), parts)


def ways(
    config: LayerConfig, weights: LayerWeights, x: Array, lengths: Lengths, threads: int
) -> Mapping[str, Way]:
    """All ways for one batch of packed tokens x [tokens, hidden]; empty where PyTorch is not installed."""
    if not installed():
        return {}
    torch = import_module("torch")
    torch.set_num_threads(threads)
    hush_nested(torch)
    module = encoder_layer(config, weights)
    parts = [p for p in torch.from_numpy(x).split(lengths.tolist()) if len(p)]
    found = {
        "torch padded": _padded(torch, module, parts),
        "torch nested": _nested(torch, module, parts),
        "torch by sequence": _packed(torch, config, _Linear(torch, module), x, lengths),
        "torch oneDNN prepacked": _packed(torch, config, _Prepacked(torch, module, len(x)), x, lengths),
    }
    for size in MICRO_BATCHES:
        if size < len(parts):
            found[f"torch micro-batches of {size}"] = _micro(torch, module, parts, size)
    return found


def inferring(torch: Any, compute: Callable[[], Any], packed: Callable[[Any], Any]) -> Way:
    """The way that runs `compute` without gradients; `packed` makes what it gave the tokens of the batch."""
    last: list[Any] = [None]

    def call() -> None:
        with torch.inference_mode():
            last[0] = compute()

    return Way(call, lambda: np.asarray(packed(last[0]).numpy()))


def _pad(torch: Any, parts: Sequence[Any]) -> tuple[Any, Any]:
    """Padded tokens, and the mask of the padding."""
    padded = torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True)
    counts = torch.tensor([len(p) for p in parts])
    return padded, torch.arange(padded.shape[1])[None] >= counts[:, None]


def _padded(torch: Any, module: Any, parts: Sequence[Any]) -> Way:
    """The layer's fast path with a padding mask."""
    padded, mask = _pad(torch, parts)
    return inferring(torch, lambda: module(padded, src_key_padding_mask=mask), lambda y: y[~mask])


def _nested(torch: Any, module: Any, parts: Sequence[Any]) -> Way:
    """The layer's fast path on a nested tensor."""
    nested = torch.nested.nested_tensor(list(parts))
    return inferring(torch, lambda: module(nested), lambda y: torch.cat(y.unbind()))


def _micro(torch: Any, module: Any, parts: Sequence[Any], size: int) -> Way:
    """Sorted by length, a few sequences at a time, each padded to the longest of its few."""
    order = sorted(range(len(parts)), key=lambda n: len(parts[n]))
    groups = [order[at : at + size] for at in range(0, len(order), size)]
    batches = [_pad(torch, [parts[n] for n in group]) for group in groups]
    equal = [not bool(mask.any()) for _, mask in batches]

    def compute() -> list[Any]:
        return [
            module(padded) if same else module(padded, src_key_padding_mask=mask)
            for (padded, mask), same in zip(batches, equal, strict=True)
        ]

    def packed(results: list[Any]) -> Any:
        by_number = {
            n: result[place][: len(parts[n])]
            for group, result in zip(groups, results, strict=True)
            for place, n in enumerate(group)
        }
        return torch.cat([by_number[n] for n in range(len(parts))])

    return inferring(torch, compute, packed)


class _Linear:
    """The products of a layer by torch.nn.functional.linear."""

    def __init__(self, torch: Any, module: Any) -> None:
        functional = torch.nn.functional
        attention = module.self_attn
        self.module = module
        self.qkv: Callable[..., Any]
        self.out: Callable[..., Any]
        self.inner: Callable[..., Any]
        self.outer: Callable[..., Any]
        self.qkv = lambda x: functional.linear(x, attention.in_proj_weight, attention.in_proj_bias)
        self.out = lambda x, r: functional.linear(x, attention.out_proj.weight, attention.out_proj.bias) + r
        self.inner = lambda x: functional.gelu(module.linear1(x))
        self.outer = lambda x, r: module.linear2(x) + r


class _Prepacked:
    """The same by oneDNN, with weights in its own layout, and gelu and residual fused: a private path of PyTorch."""

    def __init__(self, torch: Any, module: Any, count: int) -> None:
        operations = torch.ops.mkldnn
        attention = module.self_attn

        def pack(weight: Any) -> Any:
            return operations._reorder_linear_weight(weight.detach(), count)

        self.module = module
        self.qkv: Callable[..., Any]
        self.out: Callable[..., Any]
        self.inner: Callable[..., Any]
        self.outer: Callable[..., Any]
        qkv, out = pack(attention.in_proj_weight), pack(attention.out_proj.weight)
        inner, outer = pack(module.linear1.weight), pack(module.linear2.weight)
        pointwise = operations._linear_pointwise
        self.qkv = lambda x: pointwise(x, qkv, attention.in_proj_bias, "none", [], "")
        self.out = lambda x, r: pointwise(x, r, out, attention.out_proj.bias, "add")
        self.inner = lambda x: pointwise(x, inner, module.linear1.bias, "gelu", [], "none")
        self.outer = lambda x, r: pointwise(x, r, outer, module.linear2.bias, "add")


def _packed(
    torch: Any, config: LayerConfig, products: _Linear | _Prepacked, x: Array, lengths: Lengths
) -> Way:
    """Projections on packed tokens, and attention sequence by sequence."""
    tokens, module = torch.from_numpy(x), products.module
    sizes = [n for n in lengths.tolist() if n]
    attend = torch.nn.functional.scaled_dot_product_attention

    def compute() -> Any:
        qkv = products.qkv(tokens).view(len(x), 3, config.heads, config.head_size)
        mixed = torch.empty(len(x), config.heads, config.head_size)
        at = 0
        for n in sizes:
            q, k, v = qkv[at : at + n].permute(1, 2, 0, 3)
            mixed[at : at + n] = attend(q, k, v).transpose(0, 1)
            at += n
        first = module.norm1(products.out(mixed.view(len(x), config.hidden), tokens))
        return module.norm2(products.outer(products.inner(first), first))

    return inferring(torch, compute, lambda y: y)
