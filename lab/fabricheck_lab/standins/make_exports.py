"""Writes what a stand-in exports beside its own calls: every call of the real library, each with its symbol version.

    make_exports.py REAL_LIBRARY NAME STUBS.cpp VERSIONS.map

A call that the stand-in does not define itself ends the run, and is named.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

# C++ names and data are nothing that a program of ours links.
_FUNCTION = re.compile(r"[0-9a-f]+ [TW] ((?!_Z)[A-Za-z_][A-Za-z0-9_]*)(?:@@?(\S+))?")
_OWN = {"_init", "_fini"}


def exports(library: Path) -> dict[str, list[str]]:
    """Names of a library's functions by their symbol version ("" for none)."""
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    symbols: dict[str, list[str]] = defaultdict(list)
    for line in listed.stdout.splitlines():
        if (match := _FUNCTION.fullmatch(line.strip())) is not None and match[1] not in _OWN:
            symbols[match[2] or ""].append(match[1])
    return symbols


def main(real: str, name: str, stubs: str, versions: str) -> None:
    symbols = exports(Path(real))
    lines = [f"// Written by make_exports.py from {name}.", '#include "core/ending.hpp"', 'extern "C" {']
    for call in sorted({call for calls in symbols.values() for call in calls}):
        end = f'{{ emulation::end_for_missing_call("{name}", "{call}"); }}'
        lines.append(f'__attribute__((weak, visibility("default"))) void {call}() {end}')
    Path(stubs).write_text("\n".join([*lines, "}", ""]), encoding="utf-8")
    nodes = [f"{version} {{ global: {' '.join(f'{call};' for call in calls)} }};" for version, calls in symbols.items()]
    Path(versions).write_text("\n".join([*nodes, ""]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:5])
