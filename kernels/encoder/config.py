"""What an encoder layer is: sizes and kinds, and its weights as arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cora import UnsupportedError, UserError
from cora.kernels.epilogue import ACTIVATIONS, chosen

Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """Sizes and kinds of an encoder layer; all layers of an encoder have the same.

    hidden: elements of a token, a multiple of heads. inner: elements between the two feed-forward products.
    activation: between these, a name of `cora.kernels.epilogue.ACTIVATIONS`. norm: "post" (after each residual, as in
    the original transformer and BERT) or "pre". epsilon: of the layer norms.
    """

    hidden: int
    heads: int
    inner: int
    activation: str = "relu"
    norm: Literal["post", "pre"] = "post"
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("hidden", "heads", "inner"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"encoder: {name}: expected a positive integer; got {value!r}")
        if self.hidden % self.heads:
            raise UserError(
                f"encoder: hidden must be a multiple of heads; got {self.hidden} and {self.heads}"
            )
        chosen("encoder: activation", self.activation, tuple(ACTIVATIONS))
        if self.norm not in ("post", "pre"):
            raise UserError(f"encoder: norm: expected 'post' or 'pre'; got {self.norm!r}")
        if not self.epsilon >= 0:
            raise UserError(f"encoder: epsilon: expected a number from 0; got {self.epsilon!r}")

    @property
    def head_size(self) -> int:
        """Elements of a head."""
        return self.hidden // self.heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, by its name in `LayerWeights`."""
        h, f = self.hidden, self.inner
        return {
            "qkv": (h, 3 * h),
            "qkv_bias": (3 * h,),
            "out": (h, h),
            "out_bias": (h,),
            "norm1_gamma": (h,),
            "norm1_beta": (h,),
            "inner": (h, f),
            "inner_bias": (f,),
            "outer": (f, h),
            "outer_bias": (h,),
            "norm2_gamma": (h,),
            "norm2_beta": (h,),
        }


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """The weights of a layer, in float32: matrices are [inputs, outputs], as in `x @ W + b`.

    qkv [hidden, 3 * hidden]: queries, keys and values side by side, each head by head. out [hidden, hidden]: after
    attention. inner [hidden, inner], outer [inner, hidden]: the feed-forward products. norm1: of attention, norm2: of
    the feed-forward part.
    """

    qkv: Weights
    qkv_bias: Weights
    out: Weights
    out_bias: Weights
    norm1_gamma: Weights
    norm1_beta: Weights
    inner: Weights
    inner_bias: Weights
    outer: Weights
    outer_bias: Weights
    norm2_gamma: Weights
    norm2_beta: Weights

    def checked(self, config: LayerConfig) -> LayerWeights:
        """The same weights, contiguous in float32; UserError for one that does not fit the configuration."""
        shapes = config.shapes()
        arrays = {}
        for field in fields(self):
            value = np.asarray(getattr(self, field.name))
            if value.shape != shapes[field.name]:
                raise UserError(
                    f"encoder: weight '{field.name}': expected the shape {shapes[field.name]}; got {value.shape}"
                )
            if value.dtype != np.float32:
                raise UserError(f"encoder: weight '{field.name}': expected float32; got {value.dtype}")
            arrays[field.name] = np.ascontiguousarray(value)
        return LayerWeights(**arrays)

    @staticmethod
    def random(config: LayerConfig, seed: int = 0) -> LayerWeights:
        """Random weights that keep the size of activations."""
        rng = np.random.default_rng(seed)

        def make(name: str, shape: tuple[int, ...]) -> Weights:
            values = rng.standard_normal(shape, np.float32)
            if name.endswith("gamma"):
                return np.float32(1.0) + np.float32(0.1) * values
            return values * np.float32(0.1 if len(shape) == 1 else shape[0] ** -0.5)

        return LayerWeights(**{name: make(name, shape) for name, shape in config.shapes().items()})


def from_torch_layer(module: Any) -> tuple[LayerConfig, LayerWeights]:
    """Configuration and weights of a torch.nn.TransformerEncoderLayer, copied.

    Raises UserError for another module and one in training mode with dropout; UnsupportedError for an activation
    other than relu and gelu.
    """
    needed = ("self_attn", "linear1", "linear2", "norm1", "norm2", "norm_first")
    if not all(hasattr(module, name) for name in needed):
        raise UserError(
            f"from_torch: expected a torch.nn.TransformerEncoderLayer; got {type(module).__name__}"
        )
    attention = module.self_attn
    if module.training and any(
        p > 0 for p in (attention.dropout, module.dropout.p, module.dropout1.p, module.dropout2.p)
    ):
        raise UserError("from_torch: the module drops out at random: call module.eval() first")
    if attention.in_proj_weight is None:
        raise UnsupportedError("from_torch: keys or values of another size than queries")
    config = LayerConfig(
        attention.embed_dim,
        attention.num_heads,
        module.linear1.out_features,
        _activation(module),
        "pre" if module.norm_first else "post",
        float(module.norm1.eps),
    )
    if module.norm2.eps != module.norm1.eps:
        raise UnsupportedError("from_torch: the two layer norms have different eps")
    weights = LayerWeights(
        _matrix(attention.in_proj_weight),
        _vector(attention.in_proj_bias, 3 * config.hidden),
        _matrix(attention.out_proj.weight),
        _vector(attention.out_proj.bias, config.hidden),
        _vector(module.norm1.weight, config.hidden, 1.0),
        _vector(module.norm1.bias, config.hidden),
        _matrix(module.linear1.weight),
        _vector(module.linear1.bias, config.inner),
        _matrix(module.linear2.weight),
        _vector(module.linear2.bias, config.hidden),
        _vector(module.norm2.weight, config.hidden, 1.0),
        _vector(module.norm2.bias, config.hidden),
    )
    return config, weights.checked(config)


def _activation(module: Any) -> str:
    function = module.activation
    name = getattr(function, "__name__", type(function).__name__).lower()
    match name:
        case "relu":
            return "relu"
        case "gelu":
            return "gelu_tanh" if getattr(function, "approximate", "none") == "tanh" else "gelu"
    raise UnsupportedError(f"from_torch: activation {function}: expected relu or gelu")


def _matrix(parameter: Any) -> Weights:
    """PyTorch stores [outputs, inputs]."""
    return np.ascontiguousarray(parameter.detach().cpu().float().numpy().T)


def _vector(parameter: Any, size: int, default: float = 0.0) -> Weights:
    if parameter is None:
        return np.full(size, default, np.float32)
    return np.array(parameter.detach().cpu().float().numpy())
