"""What the run time knows about a kernel for a GPU, its machine code included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from cora.codegen.cuda.compile import Cubin
from cora.codegen.cuda.launches import Launch
from cora.ir.stmt import Function
from cora.runtime.artifact import Artifact, Signature


@dataclass(frozen=True, slots=True)
class Call:
    """A launch and where its arguments come from."""

    launch: Launch
    signature: Signature


@dataclass(frozen=True, slots=True)
class CudaArtifact(Artifact):
    """A kernel for a GPU: the launches of its function, in order, and of the function that checks indices.

    table_positions: where in the prelude the tables lie that the launches name. source: the CUDA C++.
    """

    calls: tuple[Call, ...]
    check_calls: tuple[Call, ...]
    table_positions: Mapping[str, int]
    source: str
    cubin: Cubin
    index_bits: int


def make_calls(function: Function, signature: Signature, launches: Sequence[Launch]) -> tuple[Call, ...]:
    """The launches of a function with the origin of their arguments, from that of the function's."""
    origin = dict(zip(function.buffers, signature.buffers, strict=True))
    return tuple(
        Call(
            launch,
            Signature(
                launch.name, tuple(origin[b] for b in launch.buffers), tuple(s.name for s in launch.sizes)
            ),
        )
        for launch in launches
    )


def cuda_artifact(
    base: Artifact,
    calls: tuple[Call, ...],
    check_calls: tuple[Call, ...],
    source: str,
    cubin: Cubin,
    index_bits: int,
) -> CudaArtifact:
    """`base` with the code of its launches."""
    common = {f.name: getattr(base, f.name) for f in fields(Artifact)}
    positions = {name: position for position, name in base.table_names.items()}
    return CudaArtifact(**common, calls=calls, check_calls=check_calls, table_positions=positions, source=source,
                        cubin=cubin, index_bits=index_bits)  # fmt: skip
