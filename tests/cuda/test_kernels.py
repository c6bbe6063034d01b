"""The kernels of the library on a GPU or its emulator: every recipe's schedules, against the interpreter."""

from __future__ import annotations

from typing import Any

import pytest

from cora.ir.expr import Const
from cora.kernels import RECIPES
from cora.kernels.encoder import LayerConfig
from cora.kernels.encoder.cuda import layer_schedules
from cora.kernels.gemm import Storage
from cora.kernels.triangular import Triangle
from cora.runtime.cuda.kernel import CudaKernel
from tests.cuda.built import Built
from tests.operators.harness import TF32_ULPS, Batch, Case, check, work_of

_TOKENS = tuple(Batch({"lens": n}, {"batch_size": len(n)}) for n in ((), (0,), (0, 3, 130), (1, 128)))
_SIZES = (
    ((), (), ()),
    ((0, 3), (2, 0), (0, 5)),
    ((1, 129), (130, 1), (17, 16)),
)
_PRODUCTS = tuple(Batch({"m": m, "n": n, "k": k}, {"batch_size": len(m)}) for m, n, k in _SIZES)
_TRIANGLES = tuple(Batch({}, {"n": n}) for n in (0, 1, 31, 64))
_DENSE = tuple(
    Batch({}, {"n": n, "width": w}) for n, w in ((0, 3), (1, 1), (33, 40), (40, 0), (129, 17), (160, 130))
)
_BANDS = tuple(Batch({}, {"n": n, "width": 5, "below": 2, "above": 1}) for n in (0, 1, 20))

#: name, recipe, how it is defined, choices of the schedule, batches
USES: tuple[tuple[str, str, dict[str, Any], dict[str, Any], tuple[Batch, ...]], ...] = (
    ("vgemm", "vgemm", {"alpha": True, "bias": True, "activation": "gelu"}, {}, _PRODUCTS),
    ("vgemm_columns", "vgemm", {}, {"storage": Storage(a="column", b="column")}, _PRODUCTS),
    ("vgemm_padded", "vgemm", {"beta": True}, {"storage": Storage(multiple=4)}, _PRODUCTS),
    (
        "linear",
        "linear",
        {"features_in": 32, "features_out": 128, "bias": True, "residual": True},
        {},
        _TOKENS,
    ),
    ("linear_odd", "linear", {"features_in": 19, "features_out": 70, "activation": "relu"}, {}, _TOKENS),
    *(
        (
            f"linear_{dtype}",
            "linear",
            {"features_in": 64, "features_out": 128, "dtype": dtype, "bias": True, "activation": "gelu"},
            {"variant": "tensor_cores"},
            _TOKENS,
        )
        for dtype in ("float16", "bfloat16")
    ),
    (
        "linear_tf32",
        "linear",
        {"features_in": 48, "features_out": 128, "bias": True},
        {"variant": "tensor_cores", "tf32": True},
        _TOKENS,
    ),
    ("trmm", "trmm", {"storage": "packed", "alpha": True}, {}, _DENSE),
    (
        "trmm_unit",
        "trmm",
        {"side": "right", "uplo": "upper", "unit": True},
        {"triangle": Triangle("right", "upper", unit=True)},
        _DENSE,
    ),
    (
        "trmm_right",
        "trmm",
        {"side": "right", "uplo": "upper"},
        {"triangle": Triangle("right", "upper"), "variant": "tiled_small"},
        _DENSE,
    ),
    (
        "trmm_shrinking",
        "trmm",
        {"transposed": True},
        {"triangle": Triangle(transposed=True), "variant": "tiled_small"},
        _DENSE,
    ),
    ("banded", "banded_matmul", {}, {}, _BANDS),
    ("layer_norm", "layer_norm", {"size": 40}, {}, _TOKENS),
    ("attention", "attention", {"heads": 2, "head_size": 8}, {}, _TOKENS),
    ("tradd", "tradd", {}, {}, _TRIANGLES),
    ("trmul", "trmul", {}, {}, _TRIANGLES),
)


@pytest.mark.parametrize(
    ("name", "recipe", "definition", "choices", "batches"), USES, ids=[u[0] for u in USES]
)
def test_recipe(
    name: str,
    recipe: str,
    definition: dict[str, Any],
    choices: dict[str, Any],
    batches: tuple[Batch, ...],
    built: Built,
) -> None:
    made = RECIPES[recipe].schedule(RECIPES[recipe].define(**definition), target="cuda", **choices)
    undefined = made.state.undefined_padding
    ulps = TF32_ULPS if choices.get("tf32") else 8
    case = Case(
        f"recipe_{name}",
        made.outputs,
        batches,
        {"cuda": lambda _: made},
        ulps=ulps,
        undefined_padding=undefined,
    )
    kernel = built.get(case, "cuda")
    assert isinstance(kernel, CudaKernel)
    assert all(call.launch.grid != (Const(1),) * 3 for call in kernel.artifact.calls)
    for number in range(len(batches)):
        check(case, kernel, work_of(case, number))


def test_every_recipe_has_a_schedule() -> None:
    for recipe in RECIPES.values():
        assert recipe.variant("cuda").summary


@pytest.mark.parametrize("name", ["qkv", "attended", "projected", "normed", "inner", "outer"])
def test_a_layer_of_the_encoder(name: str, built: Built) -> None:
    made = layer_schedules(LayerConfig(hidden=32, heads=2, inner=128))[name]
    case = Case(f"layer_{name}", made.outputs, _TOKENS[2:], {"cuda": lambda _: made}, ulps=8)
    kernel = built.get(case, "cuda")
    for number in range(len(case.batches)):
        check(case, kernel, work_of(case, number))
