"""What a run of an experiment is asked for, the same for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.lengths import draw_lengths, read_lengths
from cora import UserError

TARGET = "llvm"


@dataclass(frozen=True, slots=True)
class Options:
    """How an experiment is run.

    Attributes:
        quick: fewer repeats and smaller data: seconds instead of minutes.
        out: folder of the results.
        lengths: folder with recorded lengths, `<dataset>.npy`; without one they are drawn.
        threads: threads of the kernels, and of NumPy where it is compared with them.
    """

    quick: bool
    out: Path
    lengths: Path | None
    threads: int

    def batch(self, dataset: str, count: int, *, seed: int = 0) -> npt.NDArray[np.int32]:
        """The lengths (in tokens) of `count` sequences of a dataset; `seed` counts when drawn.

        Raises UserError as `draw_lengths` and `read_lengths` do, and where no sequence read has a token.
        """
        if self.lengths is not None:
            given = read_lengths(self.lengths, dataset, count)
            if not given.any():
                raise UserError(
                    f"{dataset} in {self.lengths}: the first {count} lengths are 0; nothing to measure"
                )
            return given
        return draw_lengths(dataset, count, seed=seed)
