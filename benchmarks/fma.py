"""What the processor's multiply-add units reach: the yardstick of kernels that are bound by arithmetic.

A loop of independent vector multiply-adds on registers, in machine code made for this machine, run on as many
threads as asked for at once. Float32; two operations each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

#: Independent chains: more than a unit's latency times the number of units.
_CHAINS: Final = 12
_ROUNDS: Final = 200_000


class FmaPeak:
    """Calls that do nothing but multiply-adds; use it as a context manager, leaving it ends the threads.

    Args:
        threads: how many run at once.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._function, self._lanes, self._owner = _loop()
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __enter__(self) -> FmaPeak:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def flops(self) -> int:
        """Floating-point operations of one call."""
        return 2 * self._lanes * _CHAINS * _ROUNDS * self.threads

    def __call__(self) -> None:
        """Run the loop on all threads, and wait for them."""
        if self._pool is None:
            self._function(_ROUNDS)
            return
        for done in [self._pool.submit(self._function, _ROUNDS) for _ in range(self.threads)]:
            done.result()


@cache
def _loop() -> tuple[Callable[[int], float], int, Any]:
    """The compiled loop, the lanes of its vectors, and what keeps the code alive."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    features = binding.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8 if features.get("avx2") else 4
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=features.flatten(), opt=2, codemodel="jitdefault", jit=True
    )
    module = binding.parse_assembly(_text(lanes))
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(engine.get_function_address("fma_loop"))
    return function, lanes, engine


def _text(lanes: int) -> str:
    """The loop in LLVM IR: chain c does x = x * 0.5 + 1, which stays near 2, so that nothing is subnormal."""
    kind = f"<{lanes} x float>"
    half, one = (f"<{', '.join([f'float {v}'] * lanes)}>" for v in ("5.000000e-01", "1.000000e+00"))
    chains = range(_CHAINS)
    phis = [f"  %x{c} = phi {kind} [ {one}, %entry ], [ %y{c}, %loop ]" for c in chains]
    steps = [
        f"  %y{c} = call {kind} @llvm.fma.v{lanes}f32({kind} %x{c}, {kind} {half}, {kind} {one})"
        for c in chains
    ]
    sums = [f"  %s{c} = fadd {kind} {f'%s{c - 1}' if c > 1 else '%y0'}, %y{c}" for c in chains if c]
    return "\n".join(
        [
            "define float @fma_loop(i64 %n) {",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]",
            *phis,
            *steps,
            "  %j = add i64 %i, 1",
            "  %more = icmp ult i64 %j, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *sums,
            f"  %r = extractelement {kind} %s{_CHAINS - 1}, i32 0",
            "  ret float %r",
            "}",
            f"declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})",
        ]
    )
