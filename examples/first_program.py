"""The first program: double every element of a ragged batch.

Prints the result, [[2.0, 4.0, 6.0], [8.0], []], and what the compiled kernel does. The same
kernel serves every batch: neither the number of rows nor their lengths are known when it is built.
"""

import cora

M = cora.size("M")  # a run-time size
batch = cora.Dim("batch", M)  # a named dimension: a name and an extent
lens = cora.lengths("lens", batch)  # one run-time length per batch entry
pos = cora.Dim("pos", lens[batch])  # a variable dimension: its extent depends on batch

A = cora.placeholder("A", [batch, pos])  # float32 unless dtype= says otherwise
O = cora.compute("O", [batch, pos], 2 * A[batch, pos])  # noqa: E741  (the paper's name)

s = cora.schedule(O)
s = s.pad_loop(O, pos, 32).pad_dim(O, pos, 64)  # storage padding must cover loop padding for every length
s = s.fuse(O, batch, pos, name="f")  # vloop fusion
s = s.split(O, "f", 32, names=("fo", "fi")).parallel(O, "fo").vectorize(O, "fi")

kernel = cora.build(s, target="llvm")  # compiled once, for every batch
a = cora.ragged([[1, 2, 3], [4], []], A)  # a RaggedArray in A's layout
out = kernel(a)  # lengths are taken from the array; storage is allocated with the padding the schedule needs
print(out.to_list())  # [[2.0, 4.0, 6.0], [8.0], []]
print(kernel.explain())  # loops, guards kept and removed (and why), auxiliary arrays
