"""One operator through ten schedules: a batch of matrix products, each of its own shape.

C[b, i, j] is the sum over k of A[b, i, k] * B[b, k, j], where i, j and k run to lengths of the entry b. For every
schedule this prints its steps and the loops that they make, and compares the result with what cora.interpret computes.
The kernels are built once and would serve any other batch as well.
"""

import numpy as np

import cora

entries = cora.size("entries")
b = cora.Dim("b", entries)
m, n, depth = (cora.lengths(name, b) for name in ("m", "n", "depth"))
i = cora.Dim("i", m[b])
j = cora.Dim("j", n[b])
k = cora.Dim("k", depth[b])
A = cora.placeholder("A", [b, i, k])
B = cora.placeholder("B", [b, k, j])
bias = cora.placeholder("bias", [b, j])
C = cora.compute("C", [b, i, j], cora.sum(A[b, i, k] * B[b, k, j], over=k))
D = cora.compute("D", [b, i, j], C[b, i, j] + bias[b, j])

LENGTHS = {"m": [48, 1, 0, 97, 130], "n": [64, 5, 9, 100, 131], "depth": [32, 7, 3, 0, 65]}
SIZES = {"entries": 5}
#: How far a result may be off, in units of the interpreter's first-order bound of rounding.
BOUNDS = 4.0


def default() -> cora.Tensor:
    """No schedule: columns in vector lanes inside the reduction, the batch in parallel, cut by cost."""
    return C


def fused() -> cora.Schedule:
    """fuse: one loop over the rows of all matrices, in equal shares, however unequal the matrices."""
    return cora.schedule(C).fuse(C, b, i, name="row").parallel(C, "row")


def tiled() -> cora.Schedule:
    """split and vectorize: tiles of 4 x 16 in registers; what is past the end of a matrix is masked."""
    s = cora.schedule(C).tile(C, (i, j), (4, 16)).reorder(C, "i_o", "j_o", k, "i_i", "j_i")
    return s.unroll(C, "i_i").vectorize(C, "j_i").parallel(C, b)


def balanced() -> cora.Schedule:
    """A balanced tail: parts of nearly equal size, none above 16, instead of full ones and a short one."""
    return cora.schedule(C).split(C, i, 16, tail="balanced").parallel(C, b)


def anchored() -> cora.Schedule:
    """An anchored tail: the short part comes first, all others are full."""
    return cora.schedule(C).split(C, k, 8, tail="anchored").parallel(C, b)


def across() -> cora.Schedule:
    """reorder a loop outside the one that it depends on: row i of every matrix that has one."""
    return cora.schedule(C).reorder(C, i, b).parallel(C, i)


def in_pieces() -> cora.Schedule:
    """split_op: rows up to a multiple of 4, in fours without any condition; the rest in loops of their own."""
    s = cora.schedule(C).split_op(C, i, multiple=4)
    s = s.split("C_main", i, 4).split("C_main", j, 16).reorder("C_main", "i_o", "j_o", k, "i_i", "j_i")
    s = s.unroll("C_main", "i_i").vectorize("C_main", "j_i")
    s = s.split("C_tail", j, 16).reorder("C_tail", "j_o", k, "j_i").vectorize("C_tail", "j_i")
    return s.parallel("C_main", b).parallel("C_tail", b)


def side_by_side() -> cora.Schedule:
    """hfuse: both pieces in one parallel loop, so that nobody waits between them."""
    return in_pieces().hfuse("C_main", "C_tail")


def with_epilogue() -> cora.Schedule:
    """inline: the bias is added where the sum is in registers; C itself is never stored."""
    s = cora.schedule(D).inline(C).split(D, j, 16).reorder(D, "j_o", k, "j_i")
    return s.vectorize(D, "j_i").parallel(D, b)


def tensorized() -> cora.Schedule:
    """tensorize: tiles of at most 6 x 64 by micro-kernels, along panels of B that stay in the cache."""
    s = cora.schedule(D).inline(C)
    s = s.split(D, j, 64, names=("panel", "column")).split(D, i, 6, names=("tile", "row"), tail="balanced")
    return s.reorder(D, "panel", "tile", "row", "column", k).tensorize(D, "row").parallel(D, b)


TOUR = (
    default,
    fused,
    tiled,
    balanced,
    anchored,
    across,
    in_pieces,
    side_by_side,
    with_epilogue,
    tensorized,
)


def largest_error(
    result: cora.RaggedArray, output: cora.Tensor, arrays: dict[str, cora.RaggedArray]
) -> float:
    """The largest error of a result against cora.interpret, in units of its bound; infinite for a NaN."""
    used = {name: array for name, array in arrays.items() if output is D or name != "bias"}
    reference = cora.interpret(output, used, lengths=LENGTHS, sizes=SIZES)
    off = np.abs(result.packed() - reference.values)
    scaled = np.where(off == 0, 0.0, off / np.where(reference.error > 0, reference.error, np.nan))
    return float(np.nan_to_num(scaled, nan=np.inf).max(initial=0.0))


def main() -> None:
    """Take the tour; exits with status 1 if a result is wrong."""
    rng = np.random.default_rng(0)
    arrays = {}
    for tensor in (A, B, bias):
        used = {name: LENGTHS[name] for name in ("m", "n", "depth")}
        array = cora.RaggedArray.empty(tensor, used, SIZES)
        array.values[:] = rng.standard_normal(array.values.size)
        arrays[tensor.name] = array
    for number, make in enumerate(TOUR, 1):
        kernel = cora.build(make())
        output = D if "D" in kernel.ir("schedule").splitlines()[0] else C
        result = kernel(*(arrays[name] for name in kernel.inputs), **LENGTHS)
        error = largest_error(result, output, arrays)
        print(f"{number}. {make.__doc__}\n\n{kernel.ir('schedule')}\n\n{kernel.ir('lowered')}\n")
        print(f"{'right' if error <= BOUNDS else 'WRONG'}: error {error:.2f} of {BOUNDS:g} bounds\n")
        if error > BOUNDS:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
