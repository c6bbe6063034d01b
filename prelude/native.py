"""Native code of a prelude, compiled with llvmlite (which is imported only when something is compiled).

The module of a specification has one public function,

    int64 <prefix>prelude_compute(int64 *frame)

whose `frame` is `sizes[S], tables[T], room[T], counts[T], entry[1]`, with sizes in the order of
`spec.sizes` and tables in that of `spec.tables`. `tables[t]` is the address of table t; `room[t]` is the
number of entries that it has room for, or `-1 - n` if it is filled already and has n entries (lengths
always are). On return `counts[t]` is the number of entries. The result is 0, or tells which table is at
fault and why (`cora.prelude.status`); `entry` is then the entry that violates a fact. The tables before the
one at fault are complete, and nothing else was written.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from cora.ir.ufun import UFun
from cora.prelude.evaluate import NativePrelude, entry_point
from cora.prelude.keys import Keys
from cora.prelude.spec import PreludeSpec
from cora.prelude.status import FACT_VIOLATED, PER_TABLE


def llvm_ir(spec: PreludeSpec, *, prefix: str = "") -> str:
    """The module of `spec` as LLVM IR, before optimisation, with the functions that all preludes share."""
    return str(_build(spec, prefix, alone=True))


def object_code(spec: PreludeSpec, *, cpu: str, features: str, prefix: str = "") -> bytes:
    """A relocatable, position-independent object with the code of `spec`; it needs that of `shared_code` beside it.

    `cpu` ("native": this machine's) and `features` are LLVM's names ("znver4", "+avx2,..."), for this
    architecture. Two objects in one library need different prefixes.
    """
    machine = _machine(cpu, features, jit=False)
    return bytes(machine.emit_object(_optimised(_build(spec, prefix, alone=False), machine)))


@cache
def shared_code(cpu: str, features: str) -> bytes:
    """An object with the functions that the objects of all preludes call, hidden; see `object_code`."""
    from llvmlite import ir

    from cora.prelude.orders import HELPERS as ORDERS
    from cora.prelude.rows import HELPERS as ROWS
    from cora.prelude.rows import Helpers

    module = ir.Module(name="prelude")
    helpers = Helpers(module, inside=True)
    names = [helpers.function(helper).name for helper in (*ROWS, *ORDERS)]
    machine = _machine(cpu, features, jit=False)
    optimised = _optimised(module, machine)
    for name in names:
        optimised.get_function(name).visibility = "hidden"
    return bytes(machine.emit_object(optimised))


def jit(spec: PreludeSpec) -> NativePrelude:
    """Compile `spec` for this machine into this process."""
    from llvmlite import binding

    machine = _machine(binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), jit=True)
    engine = binding.create_mcjit_compiler(_optimised(_build(spec, "", alone=True), machine), machine)
    engine.finalize_object()
    return NativePrelude(spec, engine.get_function_address(entry_point("")), owner=engine)


def _machine(cpu: str, features: str, *, jit: bool) -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(
        cpu=binding.get_host_cpu_name() if cpu == "native" else cpu,
        features=features,
        opt=2,
        reloc="pic",
        codemodel="jitdefault" if jit else "default",
        jit=jit,
    )


def _optimised(built: Any, machine: Any) -> Any:
    """A module after LLVM's passes. Few: long fills are vectors as they are written."""
    from llvmlite import binding

    module = binding.parse_assembly(str(built))
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    passes = binding.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    options = binding.create_pipeline_tuning_options(speed_level=2)
    passes.run(module, binding.create_pass_builder(machine, options))
    return module


def _build(spec: PreludeSpec, prefix: str, *, alone: bool) -> Any:
    """The module, as an llvmlite object; `alone`: with all that it calls."""
    from llvmlite import ir

    from cora.prelude.emit import I64, PTR, Emitter, const
    from cora.prelude.fills import emit_check, emit_fill
    from cora.prelude.rows import ADMIT, Helpers

    module = ir.Module(name="prelude")
    helpers = Helpers(module, inside=alone)
    function = ir.Function(module, ir.FunctionType(I64, [PTR]), name=entry_point(prefix))
    function.attributes.add("nounwind")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    frame, count = function.args[0], len(spec.tables)

    def at(index: int) -> Any:
        return b.gep(frame, [const(index)], source_etype=I64)

    sizes = {name: b.load(at(i), typ=I64) for i, name in enumerate(spec.sizes)}
    groups = [len(spec.sizes) + group * count for group in range(4)]
    tables, room, counts, entry = groups
    addresses = [b.load(at(tables + t), typ=PTR) for t in range(count)]
    x = Emitter(b, sizes, list(zip(spec.tables, addresses, strict=True)), _Finder(spec))
    for t, table in enumerate(spec.tables):

        def fail_if(condition: Any, fault: Any, t: int = t) -> None:
            with b.if_then(condition, likely=False):
                b.ret(b.add(const((t + 1) * PER_TABLE), fault))

        entries, entries_room = x.count(table.size, {}), b.load(at(room + t), typ=I64)
        b.store(entries, at(counts + t))
        fault = helpers.call(x, ADMIT, [x.status(), entries, entries_room])
        fail_if(b.icmp_signed("!=", fault, const(0)), fault)
        with b.if_then(b.icmp_signed(">=", entries_room, const(0))), x.scope():
            emit_fill(x, helpers, table, addresses[t], entries)
            status = x.status()
            fail_if(b.icmp_signed("!=", status, const(0)), status)
        wrong = emit_check(x, helpers, table, addresses[t], entries)
        b.store(wrong, at(entry))
        fail_if(b.icmp_signed(">=", wrong, const(0)), const(FACT_VIOLATED))
    b.ret(const(0))
    return module


class _Finder:
    """Position of a function's table, by meaning."""

    def __init__(self, spec: PreludeSpec) -> None:
        self._keys = Keys()
        self._positions = {table.key: position for position, table in enumerate(spec.tables)}

    def __call__(self, fun: UFun) -> int:
        return self._positions[self._keys.of(fun)]
