"""Machine code of kernels as counts of instructions, loop by loop; needs nvdisasm (pip: nvidia-cuda-nvdisasm)."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

_KERNEL = re.compile(r"\s*\.section\s+\.text\.(\w+)")
_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"\s*(?:/\*[0-9a-f]+\*/)?\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s?(.*?);")


def disassembler() -> str | None:
    """The path of nvdisasm, if it is installed."""
    found = shutil.which("nvdisasm")
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder, "cu13", "bin", "nvdisasm")
        if found is None and path.exists():
            found = str(path)
    return found


def inner_loops(cubin: bytes, tool: str, folder: Path) -> dict[str, list[Counter[str]]]:
    """Of each kernel, the instructions of each loop that contains no other, widths told apart: `LDG.128`."""
    path = folder / "code.cubin"
    path.write_bytes(cubin)
    text = subprocess.run([tool, "-c", str(path)], check=True, capture_output=True, text=True).stdout
    kernels: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if found := _KERNEL.match(line):
            lines = kernels.setdefault(found[1], [])
        lines.append(line)
    return {name: _inner_loops(lines) for name, lines in kernels.items()}


def _inner_loops(lines: list[str]) -> list[Counter[str]]:
    places: dict[str, int] = {}
    code: list[tuple[str, str]] = []
    for line in lines:
        if label := _LABEL.match(line):
            places[label[1]] = len(code)
        elif found := _INSTRUCTION.match(line):
            code.append((found[1], found[2]))
    loops = [
        (places[target[1]], end)
        for end, (name, arguments) in enumerate(code)
        if name.startswith("BRA") and (target := re.search(r"(\.L_x_\d+)", arguments))
        if places.get(target[1], end + 1) < end
    ]
    inner = [(a, b) for a, b in loops if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in loops)]
    return [Counter(_short(name) for name, _ in code[a : b + 1]) for a, b in inner]


def _short(name: str) -> str:
    width = next((w for w in (".128", ".64") if w in name), "")
    return name.split(".")[0] + width
