"""Encoders on packed tokens: layers share their kernels, and one plan serves all of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

import cora
from cora import UserError
from cora.kernels.arrays import Lengths, Values, tokens
from cora.kernels.attention.definition import Attention, define, packed_qkv
from cora.kernels.attention.schedules import schedule as attention_schedule
from cora.kernels.encoder import definition, schedules
from cora.kernels.encoder.config import LayerConfig, LayerWeights, from_torch_layer
from cora.kernels.gemm.linear import linear
from cora.kernels.gemm.schedules import tokens_prepacked

#: Plans that an encoder keeps for each thread.
PLANS_KEPT = 4


@dataclass(frozen=True, slots=True, eq=False)
class LayerKernels:
    """The kernels of a layer: inputs X (QKV for attention), W, bias, residual, gamma, beta; outputs named as here."""

    qkv: cora.Kernel
    attended: cora.Kernel
    projected: cora.Kernel
    normed: cora.Kernel
    inner: cora.Kernel
    outer: cora.Kernel

    @property
    def all(self) -> tuple[cora.Kernel, ...]:
        """In the order in which a layer runs them first."""
        return (self.qkv, self.attended, self.projected, self.normed, self.inner, self.outer)


def layer_schedules(config: LayerConfig) -> dict[str, cora.Schedule]:
    """The schedule of each kernel of a layer, by its name in `LayerKernels`."""
    h, f = config.hidden, config.inner
    size = config.head_size
    kind = Attention(config.heads, config.heads, size, size, size**-0.5)

    def product(name: str, inputs: int, outputs: int, **more: Any) -> cora.Schedule:
        return tokens_prepacked(linear(inputs, outputs, bias=True, name=name, **more))

    return {
        "qkv": product("qkv", h, 3 * h),
        "attended": attention_schedule(define(kind, packed_qkv, name="attended")),
        "projected": product("projected", h, h, residual=True),
        "normed": schedules.layer_norm(*definition.layer_norm("normed", h, config.epsilon)),
        "inner": product("inner", h, f, activation=config.activation),
        "outer": product("outer", f, h, residual=True),
    }


@lru_cache(maxsize=16)
def layer_kernels(config: LayerConfig) -> LayerKernels:
    """The kernels of a configuration, built (or taken from the cache on disk) once in a process."""
    return LayerKernels(**{name: cora.build(s) for name, s in layer_schedules(config).items()})


@dataclass(frozen=True, slots=True, eq=False)
class Panels:
    """The matrices of a layer as its products read them: in panels of columns, converted once."""

    qkv: cora.RaggedArray
    out: cora.RaggedArray
    inner: cora.RaggedArray
    outer: cora.RaggedArray

    @staticmethod
    def of(w: LayerWeights, kernels: LayerKernels) -> Panels:
        """Copies of the matrices in `w`."""
        matrices = (
            (w.qkv, kernels.qkv),
            (w.out, kernels.projected),
            (w.inner, kernels.inner),
            (w.outer, kernels.outer),
        )
        return Panels(*(cora.ragged(matrix, kernel.layout("W")) for matrix, kernel in matrices))


@dataclass(frozen=True, slots=True)
class Memory:
    """What a plan holds, in bytes: activations between kernels, scratch of kernels, tables of the prelude."""

    activations_bytes: int
    workspace_bytes: int
    tables_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it: the peak memory of a run, besides input, output and weights."""
        return self.activations_bytes + self.workspace_bytes + self.tables_bytes


class EncoderPlan:
    """Tables, scratch and activations for one batch of lengths: nothing is allocated while an encoder runs with it.

    One run at a time. Projections and scores' output, and the feed-forward part, use the same memory in turn.
    """

    def __init__(self, config: LayerConfig, lengths: Any, threads: int | None = None) -> None:
        self.config = config
        self.kernels = layer_kernels(config)
        self.plan = cora.plan(self.kernels.all, lens=lengths, threads=threads)
        self.lengths: Lengths = np.asarray(self.plan.lengths["lens"])
        self.count = count = int(self.lengths.sum(dtype=np.int64))
        h = config.hidden
        shared = np.empty(count * max(4 * h, config.inner), np.float32)
        self.qkv = shared[: 3 * count * h].reshape(count, 3 * h)
        self.attended = shared[3 * count * h : 4 * count * h].reshape(count, h)
        self.inner = shared[: count * config.inner].reshape(count, config.inner)
        self.states: tuple[Values, ...] = tuple(np.empty((count, h), np.float32) for _ in range(4))
        self._shared_bytes = shared.nbytes

    @property
    def threads(self) -> int:
        """Workers of every kernel."""
        return self.plan.threads

    def memory(self) -> Memory:
        """What the plan holds."""
        prepared = [self.plan.prepared(kernel) for kernel in self.kernels.all]
        return Memory(
            self._shared_bytes + sum(state.nbytes for state in self.states),
            sum(p.workspace_bytes for p in prepared),
            self.plan.arena.used_bytes,
        )

    def waste(self) -> Mapping[str, Any]:
        """Executed and useful FLOPs of each kernel, by its name in `LayerKernels`."""
        names = ("qkv", "attended", "projected", "normed", "inner", "outer")
        return {name: getattr(self.kernels, name).waste(self.plan) for name in names}


class Encoder:
    """Transformer encoder layers, one after the other, with an optional layer norm at the end. Forward only.

    config: of all layers. layers: their weights, of which the matrices are copied. final_norm: gamma and beta.
    """

    def __init__(
        self,
        config: LayerConfig,
        layers: Sequence[LayerWeights],
        final_norm: tuple[Values, Values] | None = None,
    ) -> None:
        if not isinstance(config, LayerConfig):
            raise UserError(f"encoder: expected a LayerConfig; got {type(config).__name__}")
        if not layers:
            raise UserError("encoder: expected at least one layer")
        self.config = config
        self.layers = tuple(layer.checked(config) for layer in layers)
        self.final_norm = None if final_norm is None else _norm(final_norm, config)
        self.kernels = layer_kernels(config)
        self.panels = tuple(Panels.of(layer, self.kernels) for layer in self.layers)
        self._plans = threading.local()

    @classmethod
    def from_torch(cls, module: Any) -> Encoder:
        """The encoder of a torch.nn.TransformerEncoder or TransformerEncoderLayer, with a copy of its weights.

        Raises UserError for another module, one in training mode that drops out, or layers of different kinds.
        """
        modules = list(module.layers) if hasattr(module, "layers") else [module]
        pairs = [from_torch_layer(m) for m in modules]
        if any(config != pairs[0][0] for config, _ in pairs):
            raise UserError("from_torch: the layers have different configurations")
        norm = getattr(module, "norm", None)
        if norm is not None and norm.eps != pairs[0][0].epsilon:
            raise UserError("from_torch: the final layer norm has another eps than the layers")
        final = None if norm is None else tuple(p.detach().numpy().copy() for p in (norm.weight, norm.bias))
        return cls(pairs[0][0], [weights for _, weights in pairs], final)

    def plan(self, lengths: Any, threads: int | None = None) -> EncoderPlan:
        """A plan for `run`: for one batch of sequences of these lengths."""
        return EncoderPlan(self.config, lengths, threads)

    def __call__(
        self, x: Any, lengths: Any = None, *, cu_seqlens: Any = None, threads: int | None = None
    ) -> Any:
        """The encoded tokens, as an array of the kind of x.

        x: [tokens, hidden] with `lengths` or `cu_seqlens` (NumPy, PyTorch), or a RaggedArray or jagged nested tensor
        [batch, i, hidden]; float32, used without a copy. Raises UserError for what does not fit; UnsupportedError
        for tensors that require gradients.
        """
        given = tokens("x", x, lengths, cu_seqlens, inner=1)
        out = np.empty_like(given.values)
        self.run(self._plan_for(given.lengths, threads), given.values, out)
        return given.wrap(out)

    def run(self, plan: EncoderPlan, x: Values, out: Values) -> Values:
        """Encode x [tokens, hidden] into `out`, with nothing allocated; gives `out`.

        Raises UserError for a plan of another configuration, and for arrays that do not fit or overlap.
        """
        if plan.config != self.config:
            raise UserError("encoder: the plan was made for another configuration")
        current, layers = x, len(self.layers)
        for number, weights in enumerate(zip(self.layers, self.panels, strict=True)):
            last = number == layers - 1 and self.final_norm is None
            current = _layer(plan, *weights, current, out if last else plan.states[2 + number % 2])
        if self.final_norm is not None:
            _normed(plan, current, *self.final_norm, out)
        return out

    def _plan_for(self, lengths: Lengths, threads: int | None) -> EncoderPlan:
        """A plan of this thread for the batch: one of the last few, or a new one."""
        kept: OrderedDict[object, EncoderPlan] | None = getattr(self._plans, "kept", None)
        if kept is None:
            kept = self._plans.kept = OrderedDict()
        key = (threads, lengths.tobytes())
        plan = kept.pop(key, None) or self.plan(lengths, threads)
        kept[key] = plan
        if len(kept) > PLANS_KEPT:
            kept.popitem(last=False)
        return plan


class EncoderLayer(Encoder):
    """One transformer encoder layer: `EncoderLayer(config, weights)`, called like an `Encoder`."""

    def __init__(
        self,
        config: LayerConfig,
        weights: LayerWeights | Sequence[LayerWeights],
        final_norm: tuple[Values, Values] | None = None,
    ) -> None:
        layers = [weights] if isinstance(weights, LayerWeights) else list(weights)
        if len(layers) != 1:
            raise UserError(f"EncoderLayer: expected one layer; got {len(layers)}")
        super().__init__(config, layers, final_norm)


def _norm(pair: tuple[npt.NDArray[Any], npt.NDArray[Any]], config: LayerConfig) -> tuple[Values, Values]:
    gamma, beta = (np.ascontiguousarray(p, np.float32) for p in pair)
    if gamma.shape != (config.hidden,) or beta.shape != (config.hidden,):
        raise UserError(f"encoder: final_norm: expected two arrays of {config.hidden} elements")
    return gamma, beta


def _layer(plan: EncoderPlan, w: LayerWeights, panels: Panels, x: Values, out: Values) -> Values:
    """One layer from x to out; x is not one of the first two states, out neither, and not x."""
    first, second = plan.states[:2]
    if plan.config.norm == "post":
        _attention(plan, w, panels, x, x, first)
        _normed(plan, first, w.norm1_gamma, w.norm1_beta, second)
        _feed_forward(plan, w, panels, second, second, first)
        return _normed(plan, first, w.norm2_gamma, w.norm2_beta, out)
    _normed(plan, x, w.norm1_gamma, w.norm1_beta, first)
    _attention(plan, w, panels, first, x, second)
    _normed(plan, second, w.norm2_gamma, w.norm2_beta, first)
    return _feed_forward(plan, w, panels, first, second, out)


def _attention(
    plan: EncoderPlan, w: LayerWeights, panels: Panels, x: Values, residual: Values, out: Values
) -> Values:
    kernels, p = plan.kernels, plan.plan
    kernels.qkv.run(p, x, panels.qkv, w.qkv_bias, outputs={"qkv": plan.qkv})
    kernels.attended.run(p, plan.qkv, outputs={"attended": plan.attended})
    kernels.projected.run(p, plan.attended, panels.out, w.out_bias, residual, outputs={"projected": out})
    return out


def _feed_forward(
    plan: EncoderPlan, w: LayerWeights, panels: Panels, x: Values, residual: Values, out: Values
) -> Values:
    kernels, p = plan.kernels, plan.plan
    kernels.inner.run(p, x, panels.inner, w.inner_bias, outputs={"inner": plan.inner})
    kernels.outer.run(p, plan.inner, panels.outer, w.outer_bias, residual, outputs={"outer": out})
    return out


def _normed(plan: EncoderPlan, x: Values, gamma: Values, beta: Values, out: Values) -> Values:
    kernel = plan.kernels.normed
    arrays = {"X": x, "gamma": gamma, "beta": beta}
    kernel.run(plan.plan, *(arrays[name] for name in kernel.inputs), outputs={"normed": out})
    return out
