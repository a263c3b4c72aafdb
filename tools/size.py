"""Counts the house: code lines, rooms, modules with one user, constants. `python -m tools.size [--list]`.

- A *code line* holds something that is neither a comment nor a docstring. The package is `fabricheck/`, which is what
  pip installs; `checks/`, `config/` and `ci/`, which the wheel takes along, and `lab/`, which is a distribution of its
  own, have their own lines.
- A *room* is a folder or a module just below the package.
- A module *with one neighbour* is imported by one module of the package alone, which is of its room. A module that has
  its name as a text imports it too: so `cli` loads commands, and jobs start programs.
- A *constant* is a name in capitals of judge, diagnosis or history whose value is a number, or arithmetic of numbers
  and names; tables and what a function returns do not count. `--list` prints the modules and the constants.
"""

from __future__ import annotations

import ast
import functools
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fabricheck"
_BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
ROOMS_OF_CONSTANTS = ("judge", "diagnosis", "history")


@functools.cache
def tree_of(file: Path) -> ast.Module:
    """A module, parsed."""
    return ast.parse(file.read_text(encoding="utf-8"))


def modules(package: Path = PACKAGE) -> Iterator[tuple[str, Path]]:
    """Name below the package, and file, of each module."""
    for file in sorted(package.rglob("*.py")):
        yield ".".join(file.relative_to(package).with_suffix("").parts), file


def imported(file: Path, package: Path = PACKAGE) -> Iterator[str]:
    """Modules of a package that a module imports anywhere, without the package's name."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package.name:
            for alias in node.names:
                full = package.parent / "/".join([*node.module.split("."), alias.name])
                below = (full.with_suffix(".py"), full / "__init__.py")
                name = f"{node.module}.{alias.name}" if any(map(Path.exists, below)) else node.module
                yield name.removeprefix(package.name).removeprefix(".") or "__init__"


def code_lines(file: Path) -> int:
    """How many lines of a module hold code."""
    docstrings = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            docstrings |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline):
        if token.type not in _BLANK:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def lines_below(folder: Path) -> int:
    """Code lines of all modules below a folder."""
    return sum(map(code_lines, folder.rglob("*.py")))


def with_one_neighbour() -> Iterator[tuple[str, str]]:
    """Modules that one module of their room imports and nothing else of the package, with that one."""
    imports = {name: {*imported(file), *_named(file)} - {name} for name, file in modules()}
    for name in imports:
        users = [user for user, names in imports.items() if name in names]
        room = name.partition(".")[0]
        if "." in name and len(users) == 1 and users[0].partition(".")[0] == room:
            yield name, users[0]


def _named(file: Path) -> Iterator[str]:
    """Modules of the package whose names are texts of a module."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Constant) and str(node.value).startswith(f"{PACKAGE.name}."):
            yield str(node.value).removeprefix(f"{PACKAGE.name}.")


def constants(file: Path) -> Iterator[tuple[str, str]]:
    """Names in capitals of a module that are numbers, and their values."""
    for node in tree_of(file).body:
        if isinstance(node, ast.Assign):
            pairs = [(node.targets[0], node.value)]
            if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(node.targets[0].elts, node.value.elts, strict=True))
            for name, part in pairs:
                if isinstance(name, ast.Name) and name.id.isupper() and _is_number(part):
                    yield name.id, ast.unparse(part)


def _is_number(value: ast.expr) -> bool:
    """Whether a value is arithmetic with a number in it."""
    parts = [part for part in ast.walk(value) if isinstance(part, ast.expr)]
    numbers = [part for part in parts if isinstance(part, ast.Constant) and type(part.value) in (int, float)]
    return bool(numbers) and all(
        isinstance(part, (ast.BinOp, ast.UnaryOp, ast.Name, ast.Attribute)) or part in numbers for part in parts
    )


def main() -> None:
    """Prints the table."""
    single = list(with_one_neighbour())
    numbers = [
        (file.relative_to(ROOT), *constant)
        for room in ROOMS_OF_CONSTANTS
        for file in sorted((PACKAGE / room).rglob("*.py"))
        for constant in constants(file)
    ]
    rooms = [file for file in PACKAGE.iterdir() if (file / "__init__.py").exists()]
    rows = {"code lines of fabricheck/": lines_below(PACKAGE)}
    rows |= {f"  {room.name}/": lines_below(room) for room in sorted(rooms)}
    rows |= {f"code lines of {name}/": lines_below(ROOT / name) for name in ("checks", "config", "ci", "lab", "tests")}
    rows |= {f"constants of {', '.join(ROOMS_OF_CONSTANTS)}": len(numbers)}
    rows |= {"modules": len(list(modules())), "  with one neighbour": len(single)}
    rows |= {"rooms: folders": len(rooms), "  modules beside them": len(list(PACKAGE.glob("[!_]*.py")))}
    for name, count in rows.items():
        print(f"{name:46} {count:7,}")
    if "--list" in sys.argv[1:]:
        print(*(f"{name} <- {user}" for name, user in single), sep="\n")
        print(*(f"{file}: {name} = {value}" for file, name, value in numbers), sep="\n")


if __name__ == "__main__":
    main()
