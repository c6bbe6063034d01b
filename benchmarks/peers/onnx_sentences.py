"""A sentence encoder in ONNX Runtime, from its own fused operators: what its optimiser makes of models of BERT."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers.sentences import Array, Library, Padded, Prepare
from cora.kernels import SentenceEncoder

#: Domain of the fused operators.
FUSED = "com.microsoft"
OPSET, IR_VERSION = 17, 8


def model_bytes(model: SentenceEncoder) -> bytes:
    """The model as ONNX: ids and lengths and shares of padded texts to vectors."""
    onnx = import_module("onnx")
    graph = _Graph(onnx.helper, onnx.numpy_helper)
    e, config = model.embeddings, model.encoder.config
    graph.constants(word=e.word, place=e.position + e.kind, gamma=e.gamma, beta=e.beta)
    none = ""
    norm = {"domain": FUSED, "epsilon": config.epsilon}
    x, _ = graph.add(
        "EmbedLayerNormalization",
        ["ids", none, "word", "place", none, "gamma", "beta"],
        outputs=("x", "unused"),
        **norm,
    )
    for number, w in enumerate(model.encoder.layers):
        p = f"layer{number}."
        graph.constants(p, **{field: getattr(w, field) for field in config.shapes()})

        def weights(*fields: str, p: str = p) -> list[str]:
            return [p + field for field in fields]

        (mixed,) = graph.add(
            "Attention",
            [x, *weights("qkv", "qkv_bias"), "lengths"],
            outputs=weights("mixed"),
            domain=FUSED,
            num_heads=config.heads,
        )
        (projected,) = graph.add("MatMul", [mixed, *weights("out")], outputs=weights("projected"))
        (first,) = graph.add(
            "SkipLayerNormalization",
            [projected, x, *weights("norm1_gamma", "norm1_beta", "out_bias")],
            outputs=weights("first"),
            **norm,
        )
        (wide,) = graph.add("MatMul", [first, *weights("inner")], outputs=weights("wide"))
        (active,) = graph.add(
            "BiasGelu", [wide, *weights("inner_bias")], outputs=weights("active"), domain=FUSED
        )
        (narrow,) = graph.add("MatMul", [active, *weights("outer")], outputs=weights("narrow"))
        (x,) = graph.add(
            "SkipLayerNormalization",
            [narrow, first, *weights("norm2_gamma", "norm2_beta", "outer_bias")],
            outputs=weights("second"),
            **norm,
        )
    graph.constants(axis=np.array([1], np.int64))
    graph.add("MatMul", ["shares", x], outputs=["mean"])
    graph.add("Squeeze", ["mean", "axis"], outputs=["flat"])
    graph.add("LpNormalization", ["flat"], outputs=["vectors"], axis=-1, p=2)
    return graph.serialised(config.hidden)


def _load(model: SentenceEncoder, threads: int) -> dict[str, Prepare]:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # Its workers spin while a call runs, and not beside what is timed next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = runtime.InferenceSession(model_bytes(model), options, providers=["CPUExecutionProvider"])

    def prepare(padded: Padded) -> Callable[[], Array]:
        inputs = {"ids": padded.ids, "lengths": padded.lengths, "shares": padded.shares}
        return lambda: np.asarray(session.run(["vectors"], inputs)[0])

    return {"onnxruntime": prepare}


ONNX = Library("ONNX Runtime", ("onnx", "onnxruntime"), _load)


class _Graph:
    """Nodes and constants of an ONNX graph, as they are added."""

    def __init__(self, helper: Any, numpy_helper: Any) -> None:
        self._helper, self._numpy = helper, numpy_helper
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constants(self, prefix: str = "", **values: npt.NDArray[Any]) -> None:
        """Named arrays."""
        for name, value in values.items():
            self._constants.append(self._numpy.from_array(np.ascontiguousarray(value), prefix + name))

    def add(
        self, kind: str, inputs: list[str], *, outputs: list[str] | tuple[str, ...], **attributes: Any
    ) -> list[str] | tuple[str, ...]:
        """An operator; gives the names of its outputs."""
        self._nodes.append(self._helper.make_node(kind, inputs, list(outputs), **attributes))
        return outputs

    def serialised(self, hidden: int) -> bytes:
        """The model, whose inputs are named as in `Padded`, and whose output is `vectors`."""
        helper = self._helper
        proto = import_module("onnx").TensorProto

        def value(name: str, kind: int, *shape: str | int) -> Any:
            return helper.make_tensor_value_info(name, kind, list(shape))

        graph = helper.make_graph(
            self._nodes,
            "sentences",
            [
                value("ids", proto.INT32, "texts", "longest"),
                value("lengths", proto.INT32, "texts"),
                value("shares", proto.FLOAT, "texts", 1, "longest"),
            ],
            [value("vectors", proto.FLOAT, "texts", hidden)],
            self._constants,
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(FUSED, 1)]
        return bytes(
            helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()
        )
