"""Small programs to tune."""

from __future__ import annotations

import cora


def doubled() -> cora.Tensor:
    """O[batch, pos] = 2 * A[batch, pos], of lengths `lens`."""
    batch = cora.Dim("batch", cora.size("M"))
    pos = cora.Dim("pos", cora.lengths("lens", batch)[batch])
    A = cora.placeholder("A", [batch, pos])
    return cora.compute("O", [batch, pos], 2 * A[batch, pos])


def product() -> cora.Tensor:
    """C[b, i, j] = sum over k of A[b, i, k] * B[b, k, j]; m, n and k are lengths."""
    b = cora.Dim("b", cora.size("M"))
    i, j, k = (cora.Dim(d, cora.lengths(f, b)[b]) for d, f in (("i", "m"), ("j", "n"), ("k", "k")))
    A, B = cora.placeholder("A", [b, i, k]), cora.placeholder("B", [b, k, j])
    return cora.compute("C", [b, i, j], cora.sum(A[b, i, k] * B[b, k, j], over=k))


def triangle() -> cora.Tensor:
    """C[i, j] = sum over k <= i of L[i, k] * B[k, j]; no lengths, two sizes."""
    n = cora.size("N")
    row, column, inner = cora.Dim("i", n), cora.Dim("j", cora.size("W")), cora.Dim("r", n)
    k = cora.Dim("k", row + 1)
    L, B = cora.placeholder("L", [row, k]), cora.placeholder("B", [inner, column])
    return cora.compute("C", [row, column], cora.sum(L[row, k] * B[k, column], over=k))


def softmax() -> cora.Tensor:
    """Y[batch, pos]: the softmax of each row; four operators."""
    batch = cora.Dim("batch", cora.size("M"))
    pos = cora.Dim("pos", cora.lengths("lens", batch)[batch])
    X = cora.placeholder("X", [batch, pos])
    largest = cora.compute("largest", [batch], cora.max(X[batch, pos], over=pos))
    e = cora.compute("e", [batch, pos], cora.exp(X[batch, pos] - largest[batch]))
    total = cora.compute("total", [batch], cora.sum(e[batch, pos], over=pos))
    return cora.compute("Y", [batch, pos], e[batch, pos] / total[batch])


def gathered() -> cora.Tensor:
    """G[batch, pos] = table[idx[batch, pos]]: an index that is read from data."""
    batch = cora.Dim("batch", cora.size("M"))
    pos = cora.Dim("pos", cora.lengths("lens", batch)[batch])
    idx = cora.placeholder("idx", [batch, pos], "int32")
    table = cora.placeholder("table", [cora.Dim("row", cora.size("V"))])
    return cora.compute("G", [batch, pos], table[idx[batch, pos]])


def nested() -> cora.Tensor:
    """N[doc, line] = sum over word of T[doc, line, word]: lengths over two dims."""
    doc = cora.Dim("doc", cora.size("D"))
    line = cora.Dim("line", cora.lengths("lines", doc)[doc])
    word = cora.Dim("word", cora.lengths("words", doc, line)[doc, line])
    T = cora.placeholder("T", [doc, line, word])
    return cora.compute("N", [doc, line], cora.sum(T[doc, line, word], over=word))
