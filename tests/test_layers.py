"""Who may import whom, how long a file may be, and what no file may contain.

A *unit* is a folder or a top-level module of `cora`, e.g. `ir` or `errors`. The
folders behind the links `cora/prelude`, `cora/tune` and `cora/kernels` are units
like the others.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 600

#: What each unit may import, besides itself. A unit that is missing here is an error.
_BASE = frozenset({"errors", "settings"})
_IR = _BASE | {"ir"}
_LANG = _IR | {"prove", "lang", "storage"}
_SCHEDULE = _LANG | {"tiles", "schedule"}
_LOWER = _SCHEDULE | {"prelude", "lower"}
_CODEGEN = _LOWER | {"codegen"}
_RUNTIME = _CODEGEN | {"runtime"}
MAY_IMPORT = {
    "errors": frozenset[str](),
    "settings": frozenset({"errors"}),
    "ir": _BASE,
    "prove": _IR,
    "lang": _LANG,
    "storage": _LANG,
    "interp": _IR | {"lang", "storage"},
    "tiles": _IR,
    "schedule": _SCHEDULE,
    "prelude": _IR,
    "lower": _LOWER,
    "codegen": _CODEGEN,
    "runtime": _RUNTIME,
    "tune": frozenset({"errors"}),
    "kernels": frozenset({"cora"}),
    "autotune": _RUNTIME | {"interp", "tune", "kernels", "cora"},
    "cli": _RUNTIME | {"interp", "tune", "kernels", "cora", "autotune"},
    "__main__": frozenset({"cli"}),
    # The public surface joins the pipeline together.
    "cora": _RUNTIME | {"interp"},
}

#: The only units that may import these packages.
RESERVED = {
    "tvm": {"codegen", "runtime"},
    "tvm_ffi": {"codegen", "runtime"},
    "z3": {"prove"},
    "llvmlite": {"prelude", "tiles", "codegen"},
}

#: Folders that are reached as cora.<name>, never by their own name.
LINKED = {"prelude", "tune", "kernels"}


def units() -> dict[str, list[Path]]:
    """The modules of each unit; `cora` stands for the package's own `__init__`."""
    found: dict[str, list[Path]] = {}
    for entry in sorted((ROOT / "cora").iterdir()):
        if entry.is_dir():
            # resolve(): glob does not enter a link to a folder on every Python.
            modules = sorted(entry.resolve().rglob("*.py"))
            if modules:
                found[entry.name] = modules
        elif entry.suffix == ".py":
            found["cora" if entry.stem == "__init__" else entry.stem] = [entry]
    return found


def module_name(unit: str, path: Path) -> str:
    """The dotted name of a module, e.g. "cora.prelude.spec" for prelude/spec.py."""
    if unit == "cora":
        return "cora"
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(part for part in parts if part != "__init__")
    return name if name.startswith("cora.") else f"cora.{name}"


def imports(source: str, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that `source` imports, at any depth."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(module=origin, names=names, level=level):
                if level:
                    parents = module.split(".")
                    parents = parents[: len(parents) - level + is_package]
                    origin = ".".join([*parents, origin] if origin else parents)
                for alias in names:
                    yield node.lineno, f"{origin}.{alias.name}"


def unit_of(name: str) -> str | None:
    """The unit that an imported name belongs to; None if it is not of ours.

    A name that is no unit comes from the package itself: `from cora import build`.
    """
    head, _, rest = name.partition(".")
    if head != "cora":
        return None
    unit = rest.partition(".")[0]
    return unit if unit in MAY_IMPORT and unit != "cora" else "cora"


def fault_of(unit: str, name: str) -> str | None:
    """The rule that `unit` breaks by importing `name`, if it does."""
    top = name.partition(".")[0]
    target = unit_of(name)
    if target is not None and target != unit and target not in MAY_IMPORT[unit]:
        return f"{unit} may not import {name}"
    if top in RESERVED and unit not in RESERVED[top]:
        return f"{unit} may not import {name}: only {', '.join(sorted(RESERVED[top]))} may"
    if top in LINKED:
        return f"import cora.{top} instead of {name}"
    if top in {"benchmarks", "tests", "examples"}:
        return f"{name} is not part of the package"
    return None


def module_imports(path: Path, unit: str) -> Iterator[tuple[str, int, str]]:
    """Module, line and name of everything that the module at `path` imports."""
    module = module_name(unit, path)
    for line, name in imports(path.read_text(), module, is_package=path.name == "__init__.py"):
        yield module, line, name


def test_every_unit_has_its_place() -> None:
    assert set(units()) <= set(MAY_IMPORT), "add the new unit to MAY_IMPORT"


@pytest.mark.parametrize("unit", units())
def test_imports_point_downwards(unit: str) -> None:
    found = [
        f"{module}:{line}: {fault}"
        for path in units()[unit]
        for module, line, name in module_imports(path, unit)
        if (fault := fault_of(unit, name))
    ]
    assert not found, "\n".join(found)


def test_of_lang_and_storage_one_is_below_the_other() -> None:
    targets = {
        unit: {unit_of(name) for path in paths for _, _, name in module_imports(path, unit)}
        for unit, paths in units().items()
    }
    assert not ("storage" in targets.get("lang", ()) and "lang" in targets.get("storage", ()))


def faults(unit: str, source: str) -> list[str | None]:
    """One entry for each import in `source`, were it a module of `unit`."""
    names = imports(source, f"cora.{unit}.module", is_package=False)
    return [fault_of(unit, name) for _, name in names]


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        ("ir", "from cora.lang import Dim"),
        ("ir", "import cora"),
        ("ir", "from cora import build"),
        ("ir", "from ..lang.dims import Dim"),
        ("ir", "from .. import lang"),
        ("ir", "def f():\n    import cora.lower.pipeline"),
        ("lower", "import tvm"),
        ("lower", "from tvm import tirx"),
        ("runtime", "import z3"),
        ("lower", "from llvmlite import binding"),
        ("runtime", "import prelude.spec"),
        ("prelude", "from cora.storage import layout"),
        ("tune", "from cora.settings import Settings"),
        ("tune", "import cora"),
        ("kernels", "from cora.runtime import plan"),
        ("codegen", "import benchmarks.timer"),
    ],
)
def test_faults_are_seen(unit: str, source: str) -> None:
    assert any(faults(unit, source))


@pytest.mark.parametrize(
    ("unit", "source"),
    [
        ("lang", "from cora.ir import expr\nfrom cora import errors, settings"),
        ("lang", "from .dims import Dim\nfrom . import dims"),
        ("codegen", "import tvm\nimport tvm_ffi\nimport llvmlite.ir as ll"),
        ("prove", "import z3"),
        ("kernels", "import cora\nfrom cora import Dim\nfrom cora.kernels.common import f"),
        ("tune", "from cora.errors import UserError\nfrom cora.tune.score import Score"),
        ("autotune", "from cora import tune\nfrom cora.runtime import plan"),
    ],
)
def test_what_is_allowed_is_not_a_fault(unit: str, source: str) -> None:
    assert not any(faults(unit, source))


def test_relative_imports_of_a_package_start_at_itself() -> None:
    source = "from .dims import Dim\nfrom ..ir import expr"
    assert [name for _, name in imports(source, "cora.lang", is_package=True)] == [
        "cora.lang.dims.Dim",
        "cora.ir.expr",
    ]


def test_no_file_is_too_long() -> None:
    paths = [path for paths in units().values() for path in paths]
    paths += (ROOT / "benchmarks").rglob("*.py")
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in paths}
    assert not {str(path): lines for path, lines in lengths.items() if lines > MAX_LINES}


def tracked_files() -> list[Path]:
    """Files that are in version control, or would be added to it."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_file_names_a_path_of_one_machine() -> None:
    # A path that follows a word, a dot or a bracket is a relative one.
    machine_path = re.compile(r"(?<![\w.)}\]])/(?:work|root|home/\w+|tmp/\w+)/")
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if machine_path.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)
