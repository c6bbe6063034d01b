"""What measurements depend on besides the program: the processor, the compilers, and cora's own version."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

from cora.autotune.machine import this_machine
from cora.codegen.target import detect

__all__ = ["device_text", "differences"]

#: The folders whose sources decide what machine code a schedule becomes.
COMPILER = ("ir", "prove", "lang", "storage", "schedule", "lower", "prelude", "tiles", "codegen")


@cache
def device_text() -> str:
    """The fingerprint of this machine and its software: JSON with sorted keys, the same for equal ones only.

    The compiler's sources count by content: an installation elsewhere of the same version is equal.
    """
    machine = this_machine()
    fields = {
        "cpu": machine.cpu,
        "cores": str(machine.cores),
        "target": detect().key,
        "python": machine.python,
        **{f"version of {name}": version for name, version in machine.packages},
        "compiler sources": _sources(),
    }
    return json.dumps(fields, sort_keys=True)


def differences(mine: str, other: str) -> str:
    """In what two fingerprints differ, in words."""
    a, b = json.loads(mine), json.loads(other)
    return "; ".join(
        f"{name} is {a.get(name, '(none)')}, not {b.get(name, '(none)')}"
        for name in sorted({*a, *b})
        if a.get(name) != b.get(name)
    )


def _sources() -> str:
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for folder in COMPILER:
        for path in sorted((root / folder).resolve().rglob("*.py")):
            digest.update(path.name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
