"""A batch of products of many shapes: define, take the library's schedule, check, time against a loop of NumPy's."""

from timeit import repeat

import numpy as np

import cora
from cora.kernels.gemm import VGEMM

rng = np.random.default_rng(0)
shapes = rng.integers(1, 400, (32, 3))  # m, n and k of each product: multiples of nothing
A = [rng.standard_normal((m, k), np.float32) for m, n, k in shapes]
B = [rng.standard_normal((k, n), np.float32) for m, n, k in shapes]

C = VGEMM.define()  # C[batch, i, j] is the sum over p of A[batch, i, p] * B[batch, p, j]
kernel = cora.build(VGEMM.schedule(C))
plan = cora.plan(kernel, m=shapes[:, 0].copy(), n=shapes[:, 1].copy(), k=shapes[:, 2].copy())
a, b = (np.concatenate([matrix.ravel() for matrix in matrices]) for matrices in (A, B))
out = kernel.run(plan, a, b)

for result, left, right in zip(out.to_rows(), A, B, strict=True):
    np.testing.assert_allclose(result, left @ right, rtol=1e-3, atol=1e-3)
print("all products are right")
ours = min(repeat(lambda: kernel.run(plan, a, b, outputs={"C": out}), number=1, repeat=9))
numpy = min(repeat(lambda: [left @ right for left, right in zip(A, B, strict=True)], number=1, repeat=9))
gigaflops = 2e-9 * float(shapes.prod(axis=1).sum())
print(
    f"cora {gigaflops / ours:.1f} GFLOP/s, NumPy {gigaflops / numpy:.1f} GFLOP/s: {numpy / ours:.2f} times as fast"
)
