"""An encoder layer as a folder of libraries that runs without cora."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import cora
from cora.kernels.encoder.calls import layer_calls
from cora.kernels.encoder.config import LayerConfig
from cora.kernels.encoder.layer import layer_schedules


def deploy_encoder(
    folder: str | Path, config: LayerConfig, *, target: Any = "llvm", runtime: bool = False
) -> Path:
    """Write the kernels of a layer and the order of its calls (`cora.deploy`); gives the path of the manifest.

    The program is from `x` [tokens, hidden] to `y`; its other arguments are the weights, by their names in
    `LayerWeights`, and `lens`, the lengths of the sequences. Layers of one configuration share it. target: as for
    `cora.build`. runtime: also copy TVM's run time.
    """
    kernels = {name: cora.build(s, target=target) for name, s in layer_schedules(config).items()}
    return cora.deploy(
        folder, kernels, layer_calls(config), name="encoder", about=asdict(config), runtime=runtime
    )
