"""A deployed encoder layer in a process that can import neither cora nor a compiler: the bits of cora's own layer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cora.kernels import EncoderLayer, LayerConfig, LayerWeights, deploy_attention, deploy_encoder
from cora.kernels import attention as cora_attention
from tests.kernels.reference import HOSTILE

#: Each batch in turn in one session, of one and of several threads; then all batches in several threads at once.
PROCESS = """
import importlib.abc, json, sys, threading
folder, cases, names = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("cora", "kernels", "prelude", "tvm", "llvmlite", "z3", "torch"):
            raise ImportError(f"{name} is not for deployed programs")

sys.meta_path.insert(0, Blocker())
sys.path.insert(0, folder)
import numpy as np
import cora_deploy

program = cora_deploy.load(folder)
stored = dict(np.load(cases))
fixed = program.pack(**{k: v for k, v in stored.items() if "@" not in k})
batches = [
    ({n: stored[f"{n}@{b}"] for n in names["given"]}, {n: stored[f"{n}@{b}"] for n in names["expected"]})
    for b in range(names["batches"])
]

def wrong(run, times=1):
    found = []
    for number, (given, expected) in list(enumerate(batches)) * times:
        outputs = {n: np.full_like(a, np.nan) for n, a in expected.items()}
        run(**given, **fixed, outputs=outputs)
        found += [number] * any(not np.array_equal(outputs[n], a) for n, a in expected.items())
    return found

report = {}
for threads in (1, 2, 3):
    session = program.session(threads)
    report[f"session of {threads}"] = wrong(session.run)
    size = session.memory_bytes
    report[f"again, of {threads}"] = wrong(session.run)
    report[f"bytes grown on known batches, {threads}"] = [session.memory_bytes - size] * (session.memory_bytes != size)
found = [None] * 3

def work(place):
    found[place] = wrong(program, times=5)

workers = [threading.Thread(target=work, args=(place,)) for place in range(3)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
report["at once"] = found[0] + found[1] + found[2] if None not in found else ["a thread failed"]
new = program(**batches[-1][0], **fixed)
last = batches[-1][1]
new = new if isinstance(new, dict) else {next(iter(last)): new}
report["new arrays"] = [n for n, a in last.items() if not np.array_equal(new[n].reshape(a.shape), a)]
report["imported"] = [n for n in ("cora", "tvm", "llvmlite", "z3", "torch") if n in sys.modules]
print(json.dumps(report))
"""


def run_alone(
    folder: Path,
    fixed: dict[str, Any],
    batches: list[tuple[dict[str, Any], dict[str, Any]]],
    tmp_path: Path,
) -> None:
    """Run the batches (arguments, expected outputs) in a process of its own; nothing may be wrong."""
    stored = dict(fixed)
    for number, pair in enumerate(batches):
        for values in pair:
            stored |= {f"{name}@{number}": np.asarray(value) for name, value in values.items()}
    np.savez(tmp_path / "cases.npz", **stored)
    names = {"given": list(batches[0][0]), "expected": list(batches[0][1]), "batches": len(batches)}
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, str(folder), str(tmp_path / "cases.npz"), json.dumps(names)],
        cwd=tmp_path,
        env={},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert not {what: found for what, found in report.items() if found}
    assert len(report) == 12


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_an_encoder_layer_without_cora(norm: Any, tmp_path: Path) -> None:
    config = LayerConfig(hidden=24, heads=2, inner=40, activation="gelu", norm=norm)
    weights = LayerWeights.random(config)
    layer = EncoderLayer(config, weights)
    manifest = deploy_encoder(tmp_path / "lib", config, runtime=True)
    rng = np.random.default_rng(0)
    batches = []
    for lengths in HOSTILE:
        x = rng.standard_normal((sum(lengths), config.hidden), np.float32)
        given = {"x": x, "lens": np.asarray(lengths, np.int64)}
        batches.append((given, {"y": layer(x, lengths, threads=1)}))
    fixed = {name: getattr(weights, name) for name in config.shapes()}
    run_alone(manifest.parent, fixed, batches, tmp_path)


def test_attention_without_cora(tmp_path: Path) -> None:
    kind = {"heads": 4, "kv_heads": 2, "head_size": 8, "causal": "bottom-right"}
    manifest = deploy_attention(tmp_path / "lib", **kind, one_length=False, lse=True, runtime=True)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    batches = []
    for lengths in HOSTILE:
        keys = [length + 2 for length in lengths]
        q, k, v = (
            rng.standard_normal(shape, np.float32)
            for shape in ((sum(lengths), 4, 8), (sum(keys), 2, 8), (sum(keys), 2, 8))
        )
        o, lse = cora_attention(q, k, v, lengths, keys, causal=True, lse=True, threads=1)
        given = {"Q": q, "K": k, "V": v, "lens": np.int32(lengths), "kv_lens": np.int32(keys)}
        batches.append((given, {"O": o, "lse": lse}))
    run_alone(manifest.parent, {}, batches, tmp_path)


def test_the_manifest_tells_what_the_layer_is(tmp_path: Path) -> None:
    config = LayerConfig(hidden=24, heads=2, inner=40)
    data = json.loads(deploy_encoder(tmp_path / "lib", config).read_text())
    assert data["about"] == {
        "hidden": 24,
        "heads": 2,
        "inner": 40,
        "activation": "relu",
        "norm": "post",
        "epsilon": 1e-5,
    }
    program = data["program"]
    assert program["lengths"] == {"lens": {"domain": ["batch_size"], "size": "batch_size"}}
    arrays = program["arrays"]
    shapes = {n: tuple(a["shape"]) for n, a in arrays.items() if a["role"] == "input" and a["shape"]}
    assert shapes == config.shapes()
    assert {n: a["inner"] for n, a in arrays.items() if n in ("x", "y")} == {"x": [24], "y": [24]}
    order = ["qkv", "attended", "projected", "normed", "inner", "outer", "normed"]
    assert [call["kernel"] for call in program["calls"]] == order
    assert set(data["kernels"]) == set(order)
    # three buffers are enough for what is between the kernels of a layer
    assert {a["buffer"] for a in arrays.values() if a["role"] == "temporary"} == {0, 1, 2}
