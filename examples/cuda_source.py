"""A ragged kernel for a GPU, looked at on any machine: its CUDA C++, and what it takes of a multiprocessor.

Each row of a ragged batch is normalised by softmax. A warp takes a row: its 32 threads read side by side, combine
maximum and sum by shuffles, and keep both in registers. Building needs the extra `cuda` (NVRTC), no GPU.
"""

import cora
from cora.kernels import RECIPES

batch = cora.Dim("batch", cora.size("M"))
lens = cora.lengths("lens", batch)
pos = cora.Dim("pos", lens[batch])

X = cora.placeholder("X", [batch, pos])
top = cora.compute("top", [batch], cora.max(X[batch, pos], over=pos))
total = cora.compute("total", [batch], cora.sum(cora.exp(X[batch, pos] - top[batch]), over=pos))
Y = cora.compute("Y", [batch, pos], cora.exp(X[batch, pos] - top[batch]) / total[batch])

s = cora.schedule(Y).split(Y, batch, 4, names=("block", "warp"))  # four rows a block
s = s.compute_at(total, Y, "warp").compute_at(top, Y, "warp")
for tensor in (top, total, Y):
    s = s.split(tensor, pos, 32, names=("turn", "lane")).bind(tensor, "lane", "threadIdx.x")
s = s.bind(Y, "block", "blockIdx.x").bind(Y, "warp", "threadIdx.y")

try:
    for arch in ("sm_80", "sm_90"):
        kernel = cora.build(s, {"kind": "cuda", "arch": arch})
        for taken in kernel.resources:
            print(taken)
except cora.UnsupportedError as error:  # the compiler is not installed
    raise SystemExit(str(error)) from None

# A kernel of the library: a linear layer on all tokens of a batch, by tensor cores.
layer = RECIPES["linear"].build(
    target="cuda",
    variant="tensor_cores",
    definition={"features_in": 512, "features_out": 512, "dtype": "bfloat16"},
)
print(layer.resources[0])

print(kernel.ir("lowered"))
source = kernel.source()
print(source[source.index('extern "C" __global__') :])
try:
    print(kernel(cora.ragged([[1, 2, 3], [4], []], X)).to_list())
except cora.UnsupportedError as error:  # building needs no GPU; running does
    print(error)
