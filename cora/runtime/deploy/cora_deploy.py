"""Runs what `python -m cora build` has written into this folder, with NumPy and the run time of TVM alone.

    import cora_deploy

    layer = cora_deploy.load("lib")
    weights = layer.pack(**weights)                         # once: as the kernels read them
    y = layer(x=x, lens=[3, 0, 5], **weights)

    session = layer.session(threads=2)                      # memory of its own; one run at a time
    session.run(x=x, lens=lengths, **weights, outputs={"y": y})

Arguments are the arrays, lengths and sizes that manifest.json lists. An array of a dense tensor has its shape; one of a
ragged tensor holds the values of all rows, one after the other. Nothing is converted. What does not fit is refused with
a DeployError before anything runs.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import math
import os
import platform
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1
ALIGNMENT_BYTES = 64
MAX_WORKERS = 4096
LARGEST_LENGTH = 2**31 - 1

# What the function `prelude_compute` of a library returns: 0, or (table + 1) * PER_TABLE + fault.
PER_TABLE = 16
NO_ROOM, WRONG_COUNT = 9, 10
FAULTS = {
    1: "a value does not fit in 64 bits",
    2: "division by zero",
    8: "more than 2^31 - 1 entries",
    11: "a fact that the code rests on does not hold",
}

#: The function of TVM's run time that sets how many workers a thread's loops run on.
CONFIGURE = "runtime.config_threadpool"
SPIN_COUNT = "20000"  # how often an idle worker looks for work before it sleeps

Array = np.ndarray[Any, Any]


class DeployError(ValueError):
    """What was wrong: the folder, this machine, or an argument."""


def load(folder: str | Path, runtime: str | Path | None = None) -> Program:
    """The program in a folder. runtime: libtvm_runtime.so; by default the one in the folder, or that of package tvm.

    Raises DeployError for a folder that is damaged or of another format, or a processor that lacks what the code needs.
    """
    folder = Path(folder)
    try:
        data = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        raise DeployError(f"{folder}: no manifest: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise DeployError(f"{folder}: expected a manifest of format {FORMAT}")
    _check_processor(data["target"])
    _start_runtime(folder, runtime)
    return Program(data, {name: Kernel(folder, kernel) for name, kernel in data["kernels"].items()})


class Program:
    """Kernels that are called in turn. Any number of threads may call it; each has a session of its own."""

    def __init__(self, data: Mapping[str, Any], kernels: Mapping[str, Kernel]) -> None:
        self.name: str = data["name"]
        self.about: Mapping[str, Any] = data["about"]
        self.kernels = kernels
        self.arrays: Mapping[str, Any] = data["program"]["arrays"]
        self.lengths: Mapping[str, Any] = data["program"]["lengths"]
        self.sizes: tuple[str, ...] = tuple(data["program"]["sizes"])
        self.calls = [(kernels[c["kernel"]], c["arrays"]) for c in data["program"]["calls"]]
        self.inputs = tuple(name for name, a in self.arrays.items() if a["role"] == "input")
        self.outputs = tuple(name for name, a in self.arrays.items() if a["role"] == "output")
        self._local = threading.local()

    def pack(self, **dense: Array) -> dict[str, Array]:
        """Arrays of these inputs in the order in which kernels read them, copied where that is another.

        dense: arrays of dense tensors by name, in their shape.
        """
        packed = {}
        for name, array in dense.items():
            data = self.arrays.get(name)
            if data is None or data["shape"] is None:
                raise DeployError(f"pack: '{name}' is no dense array of the program")
            _check_type(name, array, data)
            wanted = data["shape"]
            if array.ndim != len(wanted) or any(
                isinstance(e, int) and e != actual for e, actual in zip(wanted, array.shape, strict=True)
            ):
                raise DeployError(f"pack: '{name}': expected the shape {tuple(wanted)}; got {array.shape}")
            packed[name] = array if data["pack"] is None else _packed(array, data["pack"])
        return packed

    def session(self, threads: int | None = None) -> Session:
        """Memory to run with; `threads` workers share the loops, by default as many as the process may run on."""
        return Session(self, threads)

    def __call__(
        self, *, threads: int | None = None, outputs: Mapping[str, Array] | None = None, **named: Any
    ) -> Any:
        """Run in a session that this thread keeps; see `Session.run`."""
        session: Session | None = getattr(self._local, "session", None)
        workers = _worker_count(threads)
        if session is None or session.threads != workers:
            session = self._local.session = Session(self, workers)
        return session.run(outputs=outputs, **named)


class Session:
    """Tables of the lengths, scratch and arrays between kernels. They grow with the batches, and never shrink.

    One run at a time: a second is refused. Any number of sessions may run in different threads.
    """

    def __init__(self, program: Program, threads: int | None = None) -> None:
        self.program = program
        self.threads = _worker_count(threads)
        self._lock = threading.Lock()
        self._tables: dict[str, Memory] = {}  # by key: tables of one meaning are computed once
        self._scratch = Memory()
        self._buffers: dict[int, Memory] = {}
        self._batch: object = None
        self._filled: dict[str, int] = {}  # the entries of each table of this batch
        self.counts: dict[str, int] = {}  # the elements of each array of this batch
        self._frames: list[tuple[Any, Any, Any]] = []

    @property
    def memory_bytes(self) -> int:
        """All memory of the session."""
        memories = [*self._tables.values(), self._scratch, *self._buffers.values()]
        return sum(memory.capacity for memory in memories)

    def run(self, *, outputs: Mapping[str, Array] | None = None, **named: Any) -> Any:
        """The outputs: one array, or a dict of them by name where there are several.

        named: arrays, lengths and sizes. outputs: arrays to write, by name; others are new. Sizes and lengths that were
        those of the last run cost nothing.
        """
        program = self.program
        if not self._lock.acquire(blocking=False):
            raise DeployError("the session is running already: use one for each thread")
        try:
            arrays, lengths, sizes = self._sorted(named)
            key = (*sizes.values(), *(values.tobytes() for values in lengths.values()))
            if key != self._batch:
                self._batch = None  # until all of it is done
                self._measure(lengths, sizes)
            for name, array in arrays.items():
                _check_array(name, array, program.arrays[name], self.counts[name], sizes)
            if self._batch is None:
                self._allocate(sizes)
                self._batch = key
            results = self._outputs(outputs or {}, sizes)
            self._check_outputs(arrays, results, sizes)
            self._launch({**arrays, **results})
        finally:
            self._lock.release()
        return results if len(results) > 1 else next(iter(results.values()))

    def _sorted(self, named: dict[str, Any]) -> tuple[dict[str, Array], dict[str, Array], dict[str, int]]:
        """The arguments as input arrays, lengths, and sizes, which lengths and shapes tell if they are not given."""
        program = self.program
        known = (*program.inputs, *program.lengths, *program.sizes)
        for name in named:
            if name not in known:
                raise DeployError(f"unknown argument '{name}'; expected {', '.join(known)}")
        for name in (*program.inputs, *program.lengths):
            if name not in named:
                raise DeployError(f"argument '{name}' is missing")
        found = {name: (_size(name, named[name]), "by name") for name in program.sizes if name in named}

        def tell(name: str, value: int, where: str) -> None:
            size, source = found.setdefault(name, (value, where))
            if size != value:
                raise DeployError(f"size '{name}' is {size} {source}, but {value} {where}")

        lengths = {name: _lengths(name, named[name]) for name in program.lengths}
        for name, values in lengths.items():
            if program.lengths[name]["size"] is not None:
                tell(program.lengths[name]["size"], len(values), f"by lengths '{name}'")
        arrays = {name: named[name] for name in program.inputs}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise DeployError(f"'{name}': expected a NumPy array; got {type(array).__name__}")
            data = program.arrays[name]
            shape = data["shape"] or ()
            if array.ndim == len(shape) and data["pack"] is None:
                for extent, actual in zip(shape, array.shape, strict=True):
                    if isinstance(extent, str):
                        tell(extent, actual, f"by the shape of '{name}'")
        for name in program.sizes:
            if name not in found:
                raise DeployError(f"size '{name}' is missing")
        return arrays, lengths, {name: found[name][0] for name in program.sizes}

    def _measure(self, lengths: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Fill the tables of a batch, which tell how many elements everything has."""
        program, values = self.program, {**sizes, "%workers": self.threads}
        self._filled.clear()
        self.counts.clear()
        for kernel in program.kernels.values():
            self._fill_tables(kernel, lengths, values)
        for kernel, arrays in program.calls:
            for position, tensor in enumerate(kernel.tensors):
                if tensor["role"] != "workspace":
                    name, count = arrays[tensor["name"]], self._elements(kernel, position)
                    if self.counts.setdefault(name, count) != count:
                        raise DeployError(
                            f"'{name}' has {self.counts[name]} elements, and {count} in {kernel.name}"
                        )

    def _allocate(self, sizes: Mapping[str, int]) -> None:
        """Make room for scratch and the arrays between kernels; fill the frames but for the arrays of a call."""
        program = self.program
        scratch = [self._scratch_places(kernel) for kernel, _ in program.calls]
        base = self._scratch.room(max(end for _, end in scratch))
        for name, array in program.arrays.items():
            if array["buffer"] is not None:
                memory = self._buffers.setdefault(array["buffer"], Memory())
                memory.room(self.counts[name] * np.dtype(array["memory"]).itemsize)
        self._frames = []
        for (kernel, arrays), (places, _) in zip(program.calls, scratch, strict=True):
            known = {position: base + start for position, start in places.items()}
            for position, tensor in enumerate(kernel.tensors):
                buffer = program.arrays[arrays[tensor["name"]]]["buffer"] if position not in places else None
                if buffer is not None:
                    known[position] = self._buffers[buffer].address
            counters = np.zeros(max(len(kernel.messages), 1), np.int64)
            values = {**sizes, "%workers": self.threads}
            frames = [self._frame(kernel, f, known, counters, values) for f in (kernel.run, kernel.check)]
            self._frames.append((*frames, counters))

    def _scratch_places(self, kernel: Kernel) -> tuple[dict[int, int], int]:
        """Where the intermediate tensors of a kernel lie in the scratch memory, and where the last one ends."""
        places: dict[int, int] = {}
        end = 0
        for position, tensor in enumerate(kernel.tensors):
            if tensor["role"] == "workspace":
                places[position] = end
                end += _aligned(self._elements(kernel, position) * np.dtype(tensor["memory"]).itemsize)
        return places, end

    def _fill_tables(self, kernel: Kernel, lengths: Mapping[str, Array], sizes: Mapping[str, int]) -> None:
        """Run the prelude of a kernel. A table that has too little room gets more, and the prelude goes on there."""
        tables, filled = kernel.tables, self._filled
        for table in tables:
            memory = self._tables.setdefault(table["key"], Memory())
            if table["given"] is not None and table["key"] not in filled:
                values = lengths[table["name"]]
                if table["given"] == "permutation":
                    _check_permutation(table["name"], values)
                ctypes.memmove(memory.room(values.nbytes), values.ctypes.data, values.nbytes)
                filled[table["key"]] = len(values)
        count = len(tables)
        while True:
            memories = [self._tables[t["key"]] for t in tables]
            room = [
                ~filled[t["key"]] if t["key"] in filled else m.capacity // np.dtype(t["dtype"]).itemsize
                for t, m in zip(tables, memories, strict=True)
            ]
            words = [sizes[name] for name in kernel.prelude_sizes]
            words += [m.address for m in memories] + room
            frame = (ctypes.c_int64 * (len(words) + count + 1))(*words)
            result = kernel.prelude(frame)
            entries = frame[len(words) : len(words) + count]
            at, fault = (count, 0) if result == 0 else (result // PER_TABLE - 1, result % PER_TABLE)
            filled.update((t["key"], n) for t, n in zip(tables[:at], entries[:at], strict=True))
            if at == count:
                return
            table = tables[at]
            if fault == NO_ROOM:
                memories[at].room(entries[at] * np.dtype(table["dtype"]).itemsize)
            elif fault == WRONG_COUNT:
                raise DeployError(f"'{table['name']}': expected {entries[at]} values; got {~room[at]}")
            else:
                raise DeployError(f"table '{table['name']}': {FAULTS.get(fault, fault)} ({table['meaning']})")

    def _elements(self, kernel: Kernel, position: int) -> int:
        """The elements of a tensor on this batch: the one entry of a table."""
        memory = self._tables[kernel.tables[kernel.tensors[position]["elements"]]["key"]]
        return ctypes.c_int64.from_address(memory.address).value

    def _frame(
        self,
        kernel: Kernel,
        function: Function | None,
        known: Mapping[int, int],
        counters: Array,
        sizes: Mapping[str, int],
    ) -> Any:
        """The argument of a function: addresses, then sizes."""
        if function is None:
            return None
        words = []
        for kind, position in function.buffers:
            match kind:
                case "tensor":
                    words.append(known.get(position, 0))
                case "table":
                    words.append(self._tables[kernel.tables[position]["key"]].address)
                case _:
                    words.append(counters.ctypes.data + position * counters.itemsize)
        words += [sizes[name] for name in function.sizes]
        return (ctypes.c_int64 * max(len(words), 1))(*words)

    def _outputs(self, given: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
        """The arrays of the outputs: those given, and new ones in their shape."""
        program = self.program
        for name in given:
            if name not in program.outputs:
                raise DeployError(f"outputs: no output '{name}'; expected {', '.join(program.outputs)}")
        results = {}
        for name in program.outputs:
            data = program.arrays[name]
            if name in given:
                results[name] = given[name]
            else:
                kind = "bool" if data["dtype"] == "bool" else data["memory"]
                results[name] = _new(_shape(data, self.counts[name], sizes), kind)
        return results

    def _check_outputs(
        self, inputs: Mapping[str, Array], outputs: Mapping[str, Array], sizes: Mapping[str, int]
    ) -> None:
        for name, array in outputs.items():
            _check_array(name, array, self.program.arrays[name], self.counts[name], sizes)
            if not array.flags.writeable:
                raise DeployError(f"'{name}': the array must be writable")
            for other, taken in (*inputs.items(), *outputs.items()):
                if other != name and np.may_share_memory(array, taken):
                    raise DeployError(f"output '{name}' overlaps '{other}' in memory")

    def _launch(self, arrays: Mapping[str, Array]) -> None:
        addresses = {name: array.__array_interface__["data"][0] for name, array in arrays.items()}
        _use_workers(self.threads)
        for (kernel, names), (run, check, counters) in zip(self.program.calls, self._frames, strict=True):
            for function, frame in ((kernel.run, run), (kernel.check, check)):
                for place, tensor in () if function is None else function.places:
                    if names[tensor] in addresses:
                        frame[place] = addresses[names[tensor]]
            if kernel.check is not None:
                kernel.check.call(ctypes.c_void_p(ctypes.addressof(check)))
                for message, count in zip(kernel.messages, counters, strict=True):
                    if count:
                        raise DeployError(message.replace("{count}", str(count)))
            kernel.run.call(ctypes.c_void_p(ctypes.addressof(run)))


class Function:
    """A function of a library, and what its frame holds."""

    def __init__(self, module: Any, data: Mapping[str, Any], tensors: list[Mapping[str, Any]]) -> None:
        self.call: Callable[[ctypes.c_void_p], None] = module.get_function(data["name"])
        self.buffers: list[tuple[str, int]] = data["buffers"]
        self.sizes: list[str] = data["sizes"]
        self.places = [
            (place, tensors[position]["name"])
            for place, (kind, position) in enumerate(self.buffers)
            if kind == "tensor" and tensors[position]["role"] != "workspace"
        ]


class Kernel:
    """A library, loaded: the kernel, its check of indices if it has one, and its prelude."""

    def __init__(self, folder: Path, data: Mapping[str, Any]) -> None:
        import tvm_ffi

        path = (folder / data["library"]).resolve()
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DeployError(f"cannot read {path}: {error}") from error
        if hashlib.sha256(content).hexdigest() != data["sha256"]:
            raise DeployError(f"{path} is not the file of the manifest: write the folder again")
        self.name: str = data["name"]
        self.tensors: list[Mapping[str, Any]] = data["tensors"]
        self.tables: list[Mapping[str, Any]] = data["prelude"]["tables"]
        self.prelude_sizes: list[str] = data["prelude"]["sizes"]
        self.messages: list[str] = data["messages"]
        module = tvm_ffi.load_module(str(path))
        self.run = Function(module, data["function"], self.tensors)
        self.check = None if data["check"] is None else Function(module, data["check"], self.tensors)
        self.prelude: Any = ctypes.CDLL(str(path)).prelude_compute
        self.prelude.argtypes, self.prelude.restype = [ctypes.c_void_p], ctypes.c_int64


class Memory:
    """Aligned memory that only grows; what it held is lost then."""

    def __init__(self) -> None:
        self._array = np.empty(0, np.uint8)
        self.capacity = self.address = 0
        self.room(ALIGNMENT_BYTES)

    def room(self, size_bytes: int) -> int:
        """Make room for so many bytes; gives the address."""
        if size_bytes > self.capacity:
            wanted = _aligned(size_bytes + size_bytes // 4 if self.capacity else size_bytes)
            self._array = _new((wanted + ALIGNMENT_BYTES,), "uint8")
            self.capacity = wanted
            self.address = _aligned(self._array.ctypes.data)
        return self.address


def _new(shape: tuple[int, ...], kind: str) -> Array:
    try:
        return np.empty(shape, kind)
    except (MemoryError, ValueError):
        raise DeployError(f"no memory for {math.prod(shape):,} elements of type {kind}") from None


def _aligned(number: int) -> int:
    return -(-number // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _check_array(
    name: str, array: Array, data: Mapping[str, Any], count: int, sizes: Mapping[str, int]
) -> None:
    _check_type(name, array, data)
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise DeployError(
            f"'{name}': the array must be C-contiguous and aligned; got strides {array.strides}"
        )
    wanted = _shape(data, count, sizes)
    if array.ndim == len(wanted) and array.shape != wanted:
        raise DeployError(f"'{name}': expected the shape {wanted} on this batch; got {array.shape}")
    if array.ndim != 1 and (data["pack"] is not None or not data["row_major"]):
        hint = "" if data["pack"] is None else f": pack it once, with pack({name}=array)"
        raise DeployError(
            f"'{name}': expected flat values, stored as {data['layout']}; got shape {array.shape}{hint}"
        )
    if array.size != count:
        raise DeployError(f"'{name}': {data['layout']} has {count} elements on this batch; got {array.size}")


def _check_type(name: str, array: Array, data: Mapping[str, Any]) -> None:
    if not isinstance(array, np.ndarray):
        raise DeployError(f"'{name}': expected a NumPy array; got {type(array).__name__}")
    if array.dtype.name not in (data["dtype"], data["memory"]):
        raise DeployError(f"'{name}': expected values of type {data['dtype']}; got {array.dtype}")


def _packed(array: Array, steps: list[list[Any]]) -> Array:
    """The memory of a dense array, after the steps of the manifest."""
    names: list[str] = []
    for step in steps:
        match step:
            case ["axes", *names]:
                pass
            case ["pad", axis, multiple]:
                more = [
                    (0, -n % multiple if name == axis else 0)
                    for name, n in zip(names, array.shape, strict=True)
                ]
                array = np.pad(array, more)
            case ["split", axis, factor, outer, inner]:
                k = names.index(axis)
                blocks = array.shape[k] // factor
                array = array.reshape(*array.shape[:k], blocks, factor, *array.shape[k + 1 :])
                names[k : k + 1] = [outer, inner]
            case ["fuse", outer, inner, name]:
                array = np.moveaxis(array, (names.index(outer), names.index(inner)), (0, 1))
                array = array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])
                names = [name, *(n for n in names if n not in (outer, inner))]
            case ["order", *wanted]:
                array = array.transpose([names.index(n) for n in wanted])
    return np.ascontiguousarray(array).reshape(-1)


def _shape(data: Mapping[str, Any], count: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an array of `count` elements: that of a dense tensor, else rows of its constant inner dims."""
    if data["shape"] is not None and None not in data["shape"] and data["pack"] is None:
        return tuple(sizes[extent] if isinstance(extent, str) else extent for extent in data["shape"])
    row = math.prod(data["inner"])
    return (count // row, *data["inner"]) if row else (count,)


def _lengths(name: str, given: Any) -> Array:
    values = np.asarray(given)
    if values.size and values.dtype.kind not in "iu":
        raise DeployError(f"lengths '{name}': expected integers; got {values.dtype}")
    if values.size and not (values.min() >= 0 and values.max() <= LARGEST_LENGTH):
        bad = int(np.argmax((values < 0) | (values > LARGEST_LENGTH)))
        raise DeployError(
            f"lengths '{name}': expected values from 0 to 2^31 - 1; got {values.flat[bad]} at {bad}"
        )
    return np.ascontiguousarray(values.reshape(-1), np.int32)


def _check_permutation(name: str, values: Array) -> None:
    if not np.array_equal(np.sort(values), np.arange(len(values))):
        raise DeployError(f"permutation '{name}': expected each of 0..{len(values) - 1} once")


def _size(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise DeployError(f"size '{name}': expected an integer from 0; got {value!r}")
    return int(value)


def _worker_count(threads: int | None) -> int:
    if threads is None:
        pool = os.environ.get("TVM_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS", "")
        first = pool.split(",")[0].strip()
        return min(max(int(first) if first.isdigit() else 1, 1), MAX_WORKERS)
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_WORKERS:
        raise DeployError(f"threads: expected an integer from 1 to {MAX_WORKERS}; got {threads!r}")
    return threads


def _check_processor(target: Mapping[str, Any]) -> None:
    """The code uses instructions without asking for them."""
    if platform.machine() != target["arch"]:
        raise DeployError(f"the code is for {target['arch']}; this machine is {platform.machine()}")
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    flags = next((line for line in lines if line.split(":")[0].strip() in ("flags", "Features")), "")
    missing = sorted(set(target["needs"]) - set(flags.replace("_", "").split()))
    if missing:
        raise DeployError(f"the code needs a processor with {', '.join(missing)}, which this one lacks")


def _start_runtime(folder: Path, runtime: str | Path | None) -> None:
    """Load TVM's run time, unless the process has it. Its pool gets a worker for each processor that the process may
    run on, none pinned, none spinning for longer than the next call of a program may take to come.

    TVM's FFI would import PyTorch where it is installed, to take its tensors; nothing here needs that.
    """
    if "TVM_NUM_THREADS" not in os.environ and "OMP_NUM_THREADS" not in os.environ:
        os.environ["TVM_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", SPIN_COUNT)
    modules: dict[str, Any] = sys.modules
    hide = "torch" not in modules
    if hide:
        modules["torch"] = None
    try:
        import tvm_ffi
    finally:
        if hide:
            del modules["torch"]
    if tvm_ffi.get_global_func(CONFIGURE, allow_missing=True) is not None:
        return  # a second copy, from another folder, would end the process
    path = Path(runtime) if runtime is not None else folder / "libtvm_runtime.so"
    if runtime is None and not path.exists():
        spec = importlib.util.find_spec("tvm")
        places = [] if spec is None else list(spec.submodule_search_locations or ())
        path = next((p for p in (Path(x, "lib", path.name) for x in places) if p.exists()), path)
    try:
        ctypes.CDLL(str(path.resolve()), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise DeployError(f"TVM's run time was not found: {error}") from error


class _Pool(threading.local):
    workers = 0


_POOL = _Pool()


def _use_workers(count: int) -> None:
    """Loops that this thread launches run on so many workers; on one, in the thread itself."""
    if _POOL.workers != count:
        import tvm_ffi

        tvm_ffi.get_global_func(CONFIGURE)(1, count)
        _POOL.workers = count
