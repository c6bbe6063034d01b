"""The most floating-point operations a second that a processor does: a loop of independent fused multiply-adds.

This is what the share of the peak of a kernel refers to, measured in the same run and on the same threads.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from benchmarks.timer import measure

ACCUMULATORS = 24
ITERATIONS = 20_000


def peak_gflops(threads: int, *, repeats: int = 10) -> float:
    """The best sample of `threads` threads together, in float32, in 1e9 operations a second (an FMA is two)."""
    run, lanes = _loop()
    with ThreadPoolExecutor(threads) as pool:

        def all_threads() -> None:
            for done in [pool.submit(run, ITERATIONS) for _ in range(threads)]:
                done.result()

        taken = measure({"fma": all_threads}, repeats=repeats, min_sample_ms=5.0)["fma"].min_ms
    return 2.0 * lanes * ACCUMULATORS * ITERATIONS * threads / (taken * 1e6)


@cache
def _loop() -> tuple[Any, int]:
    """A native function of the number of iterations, and the lanes of a vector. ctypes releases the lock in it."""
    from llvmlite import binding, ir

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    features = binding.get_host_cpu_features()
    lanes = 16 if features.get("avx512f") else 8 if features.get("avx2") else 4
    vector = ir.VectorType(ir.FloatType(), lanes)
    module = ir.Module("fma")
    i64 = ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(ir.FloatType(), [i64]), "fma")
    fma = ir.Function(module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{lanes}f32")
    entry, loop, end = (function.append_basic_block(name) for name in ("entry", "loop", "end"))
    b = ir.IRBuilder(entry)
    factor = ir.Constant(vector, [0.5] * lanes)
    b.branch(loop)
    b.position_at_end(loop)
    count = b.phi(i64)
    sums = [b.phi(vector) for _ in range(ACCUMULATORS)]
    count.add_incoming(ir.Constant(i64, 0), entry)
    following = [b.call(fma, [total, factor, factor]) for total in sums]
    for number, (total, new) in enumerate(zip(sums, following, strict=True)):
        total.add_incoming(ir.Constant(vector, [float(number)] * lanes), entry)
        total.add_incoming(new, loop)
    more = b.add(count, ir.Constant(i64, 1))
    count.add_incoming(more, loop)
    b.cbranch(b.icmp_signed("<", more, function.args[0]), loop, end)
    b.position_at_end(end)
    total = following[0]
    for other in following[1:]:
        total = b.fadd(total, other)
    b.ret(b.extract_element(total, ir.Constant(i64, 0)))
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=features.flatten(), opt=2, jit=True
    )
    parsed = binding.parse_assembly(str(module))
    engine = binding.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    native: Any = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(engine.get_function_address("fma"))
    native.engine = engine  # lives as long as the function
    return native, lanes
