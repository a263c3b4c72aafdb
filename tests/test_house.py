"""The order of the house: imports of the package run one way, and each room says what may live in it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

from tools.size import (
    BUDGETS,
    PACKAGE,
    ROOT,
    TOKENS_OF_TESTS,
    constants,
    figures_of_the_package,
    imported,
    modules,
    size_of,
)

LAB = ROOT / "lab" / "fabricheck_lab"

#: From the ground up, as in CONTRIBUTING.md: a room imports from its own floor and those below.
FLOORS = (
    (
        "errors",
        "units",
        "visible",
        "jsonfile",
        "locks",
        "patterns",
        "yamlfile",
        "suite",
        "building",
        "wholefile",
        "mpi",
        "begin",
        "prolog",
        "trust",
        "waiting",
        "__init__",
    ),
    ("records",),
    ("results",),
    ("vendor",),
    ("tuning", "extras"),
    ("state",),
    ("statistics",),
    ("topology",),
    ("limits",),
    ("yardsticks",),
    ("judge",),
    ("diagnosis",),
    ("store",),
    ("history",),
    ("suites",),
    ("fleet",),
    ("rfm",),
    ("site",),
    ("report",),
    ("session",),
    ("upgrade",),
    ("commands",),
    ("cli", "__main__"),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
MOST_LINES = 450
MOST_LINES_OF_A_FUNCTION = 80


def test_the_package_keeps_its_budgets() -> None:
    """A figure that is above its budget may not grow."""
    figures = figures_of_the_package()
    assert {name: figures[name] for name, limits in BUDGETS.items() if figures[name] > max(limits)} == {}


def test_the_tests_keep_their_budget() -> None:
    assert size_of(ROOT / "tests").tokens <= max(TOKENS_OF_TESTS)
    for folder in ("tests", "lab", "benchmarks"):
        size = size_of(ROOT / folder)
        assert size.deepest <= BUDGETS["deepest comprehension"][0] and not size.long_signatures, folder


def test_every_room_has_a_floor() -> None:
    assert {name.partition(".")[0] for name, _ in modules()} == set(FLOOR)


def test_the_list_of_rooms_is_that_of_the_documentation() -> None:
    lines = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## The rooms of the package")[1].splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("| `")]
    listed = [name.rstrip("/") for cell in cells for name in re.findall("`([^`]+)`", cell)]
    assert listed == [room for rooms in FLOORS for room in rooms if not room.startswith("__")]


def test_imports_point_down() -> None:
    assert [
        f"{name} imports {each}"
        for name, file in modules()
        for each in imported(file)
        if FLOOR[each.partition(".")[0]] > FLOOR[name.partition(".")[0]]
    ] == []


@pytest.mark.parametrize("package", [PACKAGE, LAB])
def test_no_imports_in_a_circle(package: Path) -> None:
    """An import of `a.b` runs the `__init__` of `a` as well, but from inside of `a`."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, file in modules(package):
        user = name.removesuffix(".__init__")
        for used in imported(file, package):
            graph.add_edges_from((user, each) for each in {used, *rooms_of(used)} - {user, *rooms_of(user) - {used}})
    assert list(nx.simple_cycles(graph)) == []


def rooms_of(module: str) -> set[str]:
    """The packages that a module is in, below the uppermost."""
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


@pytest.mark.parametrize("folder", ["fabricheck", "checks", "config", "site_configs", "ci"])
def test_what_a_site_runs_does_not_know_the_lab(folder: str) -> None:
    """But for the one door: the command line has `emulate` where the lab is installed."""
    door = ROOT / "fabricheck" / "cli.py"
    files = (file for file in (ROOT / folder).rglob("*.py") if file != door)
    assert [file.name for file in files if LAB.name in file.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("room", sorted(each.name for each in PACKAGE.iterdir() if (each / "__init__.py").exists()))
def test_a_room_says_what_may_live_in_it(room: str) -> None:
    docstring = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text()))
    assert docstring and "Not here:" in docstring


@pytest.mark.parametrize("folder", ["fabricheck", "lab", "benchmarks"])
def test_only_tests_import_tests(folder: str) -> None:
    """What both need lives in the lab."""
    lines = ((file.name, line) for file in (ROOT / folder).rglob("*.py") for line in file.read_text().splitlines())
    assert [each for each in lines if re.match(r"\s*(from|import) tests\b", each[1])] == []


def test_a_number_that_one_module_uses_stands_beside_its_rule() -> None:
    """statistics/constants.py has those that several modules decide by."""
    shared = PACKAGE / "statistics" / "constants.py"
    users: dict[str, set[str]] = {name: set() for name, _ in constants(shared)}
    for module, file in modules():
        for name in set(names_in(ast.parse(file.read_text()))) & users.keys() if file != shared else ():
            users[name].add(module)
    statements = [node for node in ast.parse(shared.read_text()).body if isinstance(node, ast.Assign)]
    needed = {name for node in statements for name in names_in(node.value)}
    assert [
        sorted(names)
        for names in (set(names_in(node.targets[0])) for node in statements)
        if names <= users.keys() and not names & needed and len(set[str]().union(*(users[name] for name in names))) < 2
    ] == []


def names_in(tree: ast.AST) -> Iterator[str]:
    """All that a module calls, imports, reads of something else, or has in a short text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(r"\w+", node.value)


def test_no_function_is_for_tests_alone() -> None:
    """By name, so that one of a common name may escape. What has a decorator is called by who decorates."""
    folders = ("fabricheck", "lab", "benchmarks", "checks", "config", "site_configs", "ci", "tools")
    trees = {file: ast.parse(file.read_text()) for name in folders for file in (ROOT / name).rglob("*.py")}
    used = {name for tree in trees.values() for name in names_in(tree)}
    assert [
        f"{file.relative_to(ROOT)}: {node.name}"
        for file, tree in trees.items()
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.decorator_list and node.name not in used
        if file.is_relative_to(PACKAGE)
    ] == []


def too_long(name: str, file: Path) -> Iterator[tuple[str, int]]:
    text = file.read_text()
    tree = ast.parse(text)
    lines = len(text.splitlines())
    if lines > MOST_LINES and "Long because" not in (ast.get_docstring(tree) or ""):
        yield name, lines
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > MOST_LINES_OF_A_FUNCTION and "Long because" not in (ast.get_docstring(node) or ""):
                yield f"{name}.{node.name}", lines


@pytest.mark.parametrize("header", ["filesystem", "memory_resource", "execution"])
def test_fabricbench_needs_nothing_that_gcc_8_has_in_another_library_or_not_at_all(header: str) -> None:
    """GCC 8 links `<filesystem>` with -lstdc++fs alone; the others came with GCC 9 (gcc.gnu.org/gcc-9/changes.html)."""
    sources = [file for kind in ("hpp", "cpp", "cu") for file in (ROOT / "src").rglob(f"*.{kind}")]
    assert [file for file in sources if f"#include <{header}>" in file.read_text(encoding="utf-8")] == []


def test_a_program_starts_when_all_of_its_module_is_there() -> None:
    """`if __name__ == "__main__"` is the last statement: what stands after it is not defined yet."""
    for name, file in (*modules(), *modules(LAB)):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        assert not [part for part in body[:-1] if isinstance(part, ast.If) and "__name__" in ast.dump(part.test)], name


def test_modules_and_functions_are_short() -> None:
    """A longer one gives its reason in its docstring, after `Long because`."""
    files = (*modules(), *modules(LAB))
    assert {each: lines for name, file in files for each, lines in too_long(name, file)} == {}


@pytest.mark.parametrize(
    "folder", ["fabricheck", "lab", "checks", "ci", "tools", "benchmarks", "config", "site_configs"]
)
def test_a_variable_is_the_noun_of_what_it_holds(folder: str) -> None:
    """No `each`, `one` or `found` outside a comprehension or a lambda."""
    assert [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in sorted((ROOT / folder).rglob("*.py"))
        for name, line in bound_names(ast.parse(file.read_text(encoding="utf-8")))
        if name in ("each", "one", "found")
    ] == []


def test_a_variable_of_the_benchmark_is_a_noun_too() -> None:
    """The same of C++, by what stands before and after a name that is declared."""
    declared = re.compile(r"[\w>*&] ?[*&]?\b(each|one|found)\b *[=:;,){]")
    for file in sorted((ROOT / "src").rglob("*")):
        if file.suffix in (".hpp", ".cpp", ".cu"):
            text = re.sub(r'"(\\.|[^"\\\n])*"|//.*', "", file.read_text(encoding="utf-8"))
            assert [line.strip() for line in text.splitlines() if declared.search(line)] == [], file.name


def test_a_public_class_has_a_name_of_its_own() -> None:
    """One name for one thing: a reader who meets it knows which it is."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for _, file in modules()]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1 and not name.startswith("_")] == []


def test_modules_of_one_name_are_of_one_subject() -> None:
    """On several floors, as what one asks a node for, reads and judges; a command has the name that a user types."""
    subjects = {
        "burn_in",
        "coverage",
        "cross_check",
        "doctor",
        "fleet",
        "nics",
        "node_state",
        "nvidia",
        "other_gpus",
        "resume",
        "screen",
    }
    subjects |= {"bundle", "explain", "history", "judge", "run", "upgrade", "vendor"}
    names = Counter(name.rpartition(".")[2] for name, file in modules() if file.name != "__init__.py")
    assert {name for name, count in names.items() if count > 1} <= subjects


def test_a_public_function_has_a_docstring() -> None:
    assert [
        f"{name}: {part.name}"
        for name, file in modules()
        for part in public_functions(ast.parse(file.read_text(encoding="utf-8")).body)
        if not ast.get_docstring(part)
    ] == []


def test_a_public_function_says_what_it_raises() -> None:
    """What it raises itself: the mistakes of users and of callers. Commands and ReFrame's hooks have one caller."""
    silent = []
    for name, file in modules():
        if name.partition(".")[0] not in ("commands", "rfm"):
            for part in public_functions(ast.parse(file.read_text(encoding="utf-8")).body):
                raised = [node.exc for node in ast.walk(part) if isinstance(node, ast.Raise)]
                names = {
                    node.func.id for node in raised if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                }
                told = re.search("[Rr]aise|refuse|Error", ast.get_docstring(part) or "")
                if names & {"UserError", "ValueError"} and not told:
                    silent.append(f"{name}: {part.name}")
    assert silent == []


def public_functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Those of a module and of its public classes."""
    for part in body:
        if isinstance(part, ast.ClassDef) and not part.name.startswith("_"):
            yield from public_functions(part.body)
        elif isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            yield part


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that are assigned, looped over or parameters, with their lines; not those of comprehensions and lambdas."""
    nodes = list(ast.walk(tree))
    short: list[ast.AST] = [node.target for node in nodes if isinstance(node, ast.comprehension)]
    short += [node.args for node in nodes if isinstance(node, ast.Lambda)]
    inside = {id(node) for part in short for node in ast.walk(part)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in inside:
            yield node.id, node.lineno
        elif isinstance(node, ast.arg) and id(node) not in inside:
            yield node.arg, node.lineno


def test_the_places_of_decisions_exist() -> None:
    """The files of CONTRIBUTING's table of what is decided where, with the names that it gives."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("| what is decided | where |")[1]
    rows = [line.split("|")[2] for line in table.split("\n\n")[0].splitlines() if line.startswith("| ")]
    assert len(rows) >= 5
    for row in rows:
        words = re.findall("`([^`]+)`", row)
        files = [ROOT / word.replace("MODEL", "h100") for word in words if "/" in word]
        assert files and all(file.is_file() for file in files), row
        assert all(word in "".join(map(Path.read_text, files)) for word in words if "/" not in word), row
