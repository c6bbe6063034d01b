"""One operator through seventeen schedules: a batch of matrix products, each of its own shape.

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


def peeled() -> cora.Schedule:
    """peel: the last row of each matrix has code of its own."""
    return cora.schedule(C).peel(C, i, last=1).parallel(C, b)


def remapped() -> cora.Schedule:
    """remap: the matrices with the most rows first, whoever is free takes the next (lists of the workers)."""
    return cora.schedule(C).remap(C, b, "descending").parallel(C, b, balance="longest_first")


def two_stages() -> cora.Schedule:
    """rfactor: chunks of 16 products are reduced on their own, then their sums: a long k keeps all workers busy."""
    return cora.schedule(C).rfactor(C, k, 16).parallel("C_partial", "k_o")


def accumulated_in_blocks() -> cora.Schedule:
    """cache_write: accumulators live in a block of k; between blocks the partial sum is in memory."""
    s = cora.schedule(C).split(C, k, 32, names=("block", "step")).split(C, j, 16)
    s = s.reorder(C, "block", "j_o", "step", "j_i").cache_write(C, "j_o")
    return s.vectorize(C, "j_i").parallel(C, b)


def stored_in_panels() -> cora.Schedule:
    """split_dim and fuse_dims: B by panels of 16 columns, all rows of A one behind another as one dim."""
    s = cora.schedule(C).split_dim(B, j, 16, names=("bo", "bi")).reorder_dims(B, b, "bo", k, "bi")
    s = s.fuse_dims(A, b, i, name="rows")
    s = s.split(C, j, 16, names=("jo", "ji")).reorder(C, "jo", k, "ji")
    return s.vectorize(C, "ji").parallel(C, b)


def in_scratch() -> cora.Schedule:
    """compute_at and set_scope: the product of four rows stays in memory of the worker, where the bias is added."""
    s = cora.schedule(D).split(D, i, 4, names=("tile", "row"), tail="balanced")
    return s.compute_at(C, D, "tile").set_scope(C, "scratch").parallel(D, b)


def tensorized() -> cora.Schedule:
    """tensorize: tiles of at most 6 x 64 by micro-kernels, along panels of B that stay in the cache."""
    s = cora.schedule(D).inline(C)
    s = s.split(D, j, 64, names=("panel", "column")).split(D, i, 6, names=("tile", "row"), tail="balanced")
    return s.reorder(D, "panel", "tile", "row", "column", k).tensorize(D, "row").parallel(D, b)


def at_the_peak() -> cora.Schedule:
    """How a dense library computes products, for matrices of any shapes: blocks of columns, rows and k that fit the
    caches, in near-equal parts; tiles of 6 rows by 4 vectors in registers, of which the last vector alone has a mask;
    panels of B that the first tile writes while it uses them; bias and gelu behind each tile; shares of equal cost."""
    E = cora.compute("E", [b, i, j], cora.gelu(C[b, i, j] + bias[b, j], approximate="tanh"))
    s = cora.schedule(E).inline(C)
    s = s.split(E, j, 64, names=("panel", "column"))
    s = s.split(E, "panel", 8, names=("columns", "panel_in"), tail="balanced")
    s = s.split(E, k, 1024, names=("depth", "step"), tail="balanced")
    s = s.split(E, i, 1536, names=("rows", "row_in"), tail="balanced")
    s = s.split(E, "row_in", 6, names=("tile", "row"), tail="balanced")
    s = s.reorder(E, "columns", "rows", "depth", "tile", "panel_in", "row", "column", "step")
    s = s.fuse(E, b, "columns", "rows", name="share").tensorize(E, "row")
    s = s.cache_read(E, B, "depth", "panels").split_dim("panels", j, 64, names=("po", "pi"))
    s = s.reorder_dims("panels", b, "po", k, "pi").fill_at_use("panels")
    return s.parallel(E, "share", balance="cost")


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
    peeled,
    remapped,
    two_stages,
    accumulated_in_blocks,
    stored_in_panels,
    in_scratch,
    tensorized,
    at_the_peak,
)


def largest_error(
    result: cora.RaggedArray, output: cora.Tensor, arrays: dict[str, cora.RaggedArray]
) -> float:
    """The largest error of a result against cora.interpret, in units of its bound; infinite for a NaN."""
    used = {name: array for name, array in arrays.items() if output is not C or name != "bias"}
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
        made = make()
        output = made if isinstance(made, cora.Tensor) else made.outputs[0]
        kernel = cora.build(made)
        given = (arrays[name].to_layout(kernel.layout(name)) for name in kernel.inputs)
        result = kernel(*given, **LENGTHS)
        error = largest_error(result, output, arrays)
        print(f"{number}. {make.__doc__}\n\n{kernel.ir('schedule')}\n\n{kernel.ir('lowered')}\n")
        print(f"{'right' if error <= BOUNDS else 'WRONG'}: error {error:.2f} of {BOUNDS:g} bounds\n")
        if error > BOUNDS:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
