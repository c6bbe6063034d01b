"""Encoders on packed tokens: layers share their kernels, and one plan serves all of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

import cora
from cora import UserError
from cora.kernels.arrays import Lengths, Values, tokens
from cora.kernels.attention.schedules import schedule as attention_schedule
from cora.kernels.encoder import schedules
from cora.kernels.encoder.calls import layer_calls
from cora.kernels.encoder.config import LayerConfig, LayerWeights, from_torch_layer
from cora.kernels.encoder.definition import layer_operators
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

    def named(self, name: str) -> cora.Kernel:
        """The kernel that calls name so."""
        kernel: cora.Kernel = getattr(self, name)
        return kernel


def layer_schedules(config: LayerConfig) -> dict[str, cora.Schedule]:
    """The schedule of each kernel of a layer, by its name in `LayerKernels`."""
    o = layer_operators(config)
    return {
        "qkv": tokens_prepacked(o.qkv),
        "attended": attention_schedule(o.attended),
        "projected": tokens_prepacked(o.projected),
        "normed": schedules.layer_norm(*o.normed),
        "inner": tokens_prepacked(o.inner),
        "outer": tokens_prepacked(o.outer),
    }


@lru_cache(maxsize=16)
def layer_kernels(config: LayerConfig) -> LayerKernels:
    """The kernels of a configuration, built (or taken from the cache on disk) once in a process."""
    schedules = cache(lambda: layer_schedules(config))

    def build(name: str) -> cora.Kernel:
        return cora.build(cora.Deferred(("layer", name, config), lambda: schedules()[name]))

    return LayerKernels(**{field.name: build(field.name) for field in fields(LayerKernels)})


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

    calls: of a layer, in order. between: the arrays that one call writes and others read, by name.
    """

    def __init__(self, config: LayerConfig, lengths: Any, threads: int | None = None) -> None:
        self.config = config
        self.kernels = layer_kernels(config)
        self.plan = cora.plan(self.kernels.all, lens=lengths, threads=threads)
        self.lengths: Lengths = np.asarray(self.plan.lengths["lens"])
        self.count = count = int(self.lengths.sum(dtype=np.int64))
        h = config.hidden
        shared = np.empty(count * max(4 * h, config.inner), np.float32)
        qkv = shared[: 3 * count * h].reshape(count, 3 * h)
        attended = shared[3 * count * h : 4 * count * h].reshape(count, h)
        inner = shared[: count * config.inner].reshape(count, config.inner)
        self.states: tuple[Values, ...] = tuple(np.empty((count, h), np.float32) for _ in range(4))
        self._shared_bytes = shared.nbytes
        self.calls = layer_calls(config)
        wide = {"projections": qkv, "attended": attended, "activated": inner}
        written = [call.arrays[call.kernel] for call in self.calls]
        # The others are as wide as a token, and each is read for the last time before the next but one is written.
        tokens_wide = [name for name in written if name not in wide and name != "y"]
        turns = {name: self.states[turn % 2] for turn, name in enumerate(tokens_wide)}
        self.between: Mapping[str, Values] = wide | turns

    @property
    def threads(self) -> int:
        """Workers of every kernel."""
        return self.plan.threads

    def run(self, call: cora.KernelCall, arrays: Mapping[str, Any]) -> None:
        """One call of a layer, on arrays by name: what a kernel writes has the kernel's name."""
        kernel = self.kernels.named(call.kernel)
        inputs = (arrays[call.arrays[name]] for name in kernel.inputs)
        kernel.run(self.plan, *inputs, outputs={call.kernel: arrays[call.arrays[call.kernel]]})

    def arrays(self, weights: Mapping[str, Any], x: Values, out: Values) -> dict[str, Any]:
        """All arrays of the calls of a layer by name."""
        return {**self.between, **weights, "x": x, "y": out}

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
        return {f.name: self.kernels.named(f.name).waste(self.plan) for f in fields(self.kernels)}


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
        calls = layer_calls(config)
        self.weights = tuple(_as_read(calls, self.kernels, layer) for layer in self.layers)
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
        for number, weights in enumerate(self.weights):
            last = number == layers - 1 and self.final_norm is None
            target = out if last else plan.states[2 + number % 2]
            arrays = plan.arrays(weights, current, target)
            for call in plan.calls:
                plan.run(call, arrays)
            current = target
        if self.final_norm is not None:
            gamma, beta = self.final_norm
            final = cora.KernelCall("normed", {"X": "X", "gamma": "gamma", "beta": "beta", "normed": "y"})
            plan.run(final, {"X": current, "gamma": gamma, "beta": beta, "y": out})
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


def _as_read(
    calls: Sequence[cora.KernelCall], kernels: LayerKernels, weights: LayerWeights
) -> dict[str, Values | cora.RaggedArray]:
    """The weights of a layer by name, as its kernels read them: the matrices are copied into panels of columns."""
    found: dict[str, Values | cora.RaggedArray] = {f.name: getattr(weights, f.name) for f in fields(weights)}
    for call in calls:
        if "W" in call.arrays:
            name = call.arrays["W"]
            found[name] = cora.ragged(getattr(weights, name), kernels.named(call.kernel).layout("W"))
    return found
