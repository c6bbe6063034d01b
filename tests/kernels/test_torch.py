"""PyTorch's tensors, and its own encoder as the reference; skipped where it is not installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cora
from cora.kernels import Encoder, EncoderLayer, attention

torch: Any = pytest.importorskip("torch")

LENGTHS = [3, 1, 40, 17]


def packed(*shape: int) -> Any:
    """Random tokens, packed."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sum(LENGTHS), *shape, generator=generator)


def starts() -> Any:
    """cu_seqlens."""
    return torch.tensor([0, *np.cumsum(LENGTHS)])


def by_sequence(module: Any, x: Any) -> Any:
    """What a module gives for each sequence alone."""
    with torch.no_grad():
        return torch.cat([module(part[None])[0] for part in x.split(LENGTHS)])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_encoder_layer(norm_first: bool, activation: str, bias: bool) -> None:
    module = torch.nn.TransformerEncoderLayer(
        32, 4, 48, activation=activation, norm_first=norm_first, bias=bias, batch_first=True
    ).eval()
    layer = EncoderLayer.from_torch(module)
    x = packed(32)
    y = layer(x, cu_seqlens=starts())
    assert isinstance(y, torch.Tensor)
    torch.testing.assert_close(y, by_sequence(module, x), rtol=1e-5, atol=1e-5)


def test_encoder_of_layers_with_a_final_norm() -> None:
    inner = torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    module = torch.nn.TransformerEncoder(inner, 3, torch.nn.LayerNorm(32), enable_nested_tensor=False).eval()
    encoder = Encoder.from_torch(module)
    x = packed(32)
    torch.testing.assert_close(encoder(x, LENGTHS), by_sequence(module, x), rtol=1e-5, atol=1e-5)
    jagged = torch.nested.nested_tensor_from_jagged(x, starts())
    y = encoder(jagged)
    assert y.is_nested
    torch.testing.assert_close(y.values(), encoder(x, LENGTHS), rtol=0, atol=0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_attention_of_jagged_tensors(causal: bool, transposed: bool) -> None:
    q, k, v = (torch.nested.nested_tensor_from_jagged(packed(2, 8) * f, starts()) for f in (1.0, 0.5, 2.0))
    given = [t.transpose(1, 2) if transposed else t for t in (q, k, v)]
    result = attention(*given, causal=causal)
    assert result.shape[1:3] == given[0].shape[1:3] or transposed
    plain = result.transpose(1, 2) if transposed else result
    expected = [
        torch.nn.functional.scaled_dot_product_attention(
            *(t.transpose(0, 1) for t in parts), is_causal=causal
        ).transpose(0, 1)
        for parts in zip(q.unbind(), k.unbind(), v.unbind(), strict=True)
    ]
    torch.testing.assert_close(plain.values(), torch.cat(expected), rtol=1e-5, atol=1e-5)


def test_memory_is_shared() -> None:
    layer = EncoderLayer.from_torch(torch.nn.TransformerEncoderLayer(8, 1, 8, batch_first=True).eval())
    x = packed(8)
    plan, out = layer.plan(LENGTHS), torch.full((sum(LENGTHS), 8), float("nan"))
    layer.run(plan, np.from_dlpack(x), np.from_dlpack(out))
    torch.testing.assert_close(out, layer(x, LENGTHS), rtol=0, atol=0)


def test_what_is_refused() -> None:
    q = packed(2, 8)
    with pytest.raises(cora.UnsupportedError, match="'q' requires gradients"):
        attention(q.clone().requires_grad_(), q, q, LENGTHS)
    with pytest.raises(cora.UserError, match=r"float32; got torch\.float64"):
        attention(q.double(), q, q, LENGTHS)
    with pytest.raises(cora.UserError, match="C-contiguous"):
        attention(q.transpose(1, 2), q, q, LENGTHS)
    with pytest.raises(cora.UserError, match=r"torch\.jagged"):
        attention(torch.nested.nested_tensor([q, q]), q, q)
    with pytest.raises(cora.UserError, match=r"call module.eval\(\)"):
        EncoderLayer.from_torch(torch.nn.TransformerEncoderLayer(8, 1, 8))
    with pytest.raises(cora.UserError, match="TransformerEncoderLayer; got Linear"):
        EncoderLayer.from_torch(torch.nn.Linear(2, 2))
    with pytest.raises(cora.UnsupportedError, match="expected relu or gelu"):
        EncoderLayer.from_torch(
            torch.nn.TransformerEncoderLayer(8, 1, 8, activation=torch.nn.functional.silu).eval()
        )
