"""Generated inputs for every command that reads a file: no traceback, no hang, no wrong green.

    python -m tests.fuzz.fuzz [--inputs 100000] [--command NAME]... [--keep FOLDER] [--minutes MINUTES]

Valid files (tests/fuzz/fuzz_targets.py) are damaged (tests/fuzz/damage.py) and given to their command, in this
process, by a generator from the batch's number. What was given to the command before in this call is not given again.
Found is: an exit status that is none of those documented, a mistake in Fabricheck itself (70) or anything else that
would be a traceback, more than 5 s of processor time or 8 GiB of memory, and a green verdict on a measurement that is
not there or too slow.

What is not damaged is read once: topologies, references, parts, policies, tuning and settings of the same content,
sessions of a store with the same files, the machine's MPI libraries; most sites get what ReFrame listed of another. The
limit of 5 s is for what is left.

Commands take turns, a batch each (500 inputs, fewer where they take more than 10 s), always the one that took the least
processor time so far, and of its rows that which did. All rows of a command count together for --inputs. A batch that
is done is a line of FOLDER/batches.jsonl, and a later call goes on from there. Prints the table of all of them, and the
inputs that were taken wrongly lie beside it; the exit status is 1 where anything was found.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import json
import os
import pkgutil
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any
from unittest import mock

import fabricheck as package
from fabricheck import mpi
from fabricheck.cli import main as fabricheck
from fabricheck.store import changes, reading
from fabricheck.store.folders import SessionFolder
from fabricheck.suite import outside_roots
from tests.fuzz.damage import damaged
from tests.fuzz.fuzz_targets import Target, command_of, seen, targets

LIMIT_S = 5.0
MEMORY = 8 << 30
BATCH, BATCH_S = 500, 10.0
#: Of the sites that `init` and `validate` make or see, one in so many is listed by ReFrame, which takes seconds for it.
SITES = 2000
STATUSES = frozenset(range(6))


class Hang(BaseException):
    """More than LIMIT_S of processor time. No Exception, so that no command takes it for a mistake of its own."""


class InTurn(contextlib.nullcontext[Any]):
    """In place of threads: of sessions that were read before, they would take the most time."""

    def map(self, function: Callable[[Any], Any], values: Iterable[Any]) -> Iterator[Any]:
        return map(function, values)

    def __enter__(self) -> InTurn:
        return self


@dataclass
class Found:
    runs: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0  # of a processor


def status_of(
    arguments: Sequence[str | Path], program: Callable[[Sequence[str]], int | None] = fabricheck
) -> int | str:
    """The exit status of a command, or what would have been a traceback or a hang."""

    def too_long(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        # What a command sets for its own children is gone with its process: no other input is to find it.
        with (
            mock.patch.dict(os.environ),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()) as said,
        ):
            return program([str(each) for each in arguments]) or 0
    except SystemExit as ended:
        return said.getvalue().strip() if ended.code == 70 else int(ended.code or 0)
    except Hang:
        return f"more than {LIMIT_S:g} s"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def little_memory() -> Iterator[None]:
    """Whoever asks for more gets a MemoryError, and does not take all of the machine's."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def the_same_read_once() -> Iterator[None]:
    """What is not damaged is the same for each input: reading it anew would be most of the time of a command."""
    modules: list[ModuleType] = [
        importlib.import_module(each.name)
        for each in pkgutil.walk_packages(package.__path__, "fabricheck.")
        if not each.name.endswith("__main__")
    ]

    def of_file(read: Callable[..., Any]) -> Callable[..., Any]:
        cached = functools.lru_cache(512)(lambda _, file, *more: read(file, *more))

        def once(file: Any, *more: str) -> Any:
            try:
                content = Path(file).read_bytes()
            except (OSError, ValueError):
                return read(file, *more)  # which says so
            return cached(content, Path(file), *more)

        return once

    def of_site(list_suite: Callable[..., Any]) -> Callable[..., Any]:
        listings: dict[bytes, Any] = {}

        def once(suite: Any, selection: Any, output: Path) -> Any:
            files = sorted(file for root in outside_roots() for file in root.rglob("*") if file.is_file())
            key = blake2b(repr([(str(each), each.read_bytes()) for each in files]).encode(), digest_size=8).digest()
            if key not in listings and listings and int.from_bytes(key, "big") % SITES != 0:
                return listings[next(reversed(listings))]
            if key not in listings:
                listings[key] = list_suite(suite, selection, output)
            return listings[key]

        return once

    def of_entry(read: Callable[[SessionFolder], Any]) -> Callable[[SessionFolder], Any]:
        cached = functools.lru_cache(512)(lambda _, entry: read(entry))

        def once(entry: SessionFolder) -> Any:
            return cached(tuple(sorted(seen(str(entry.path)))), entry)

        return once

    files = ("load_part", "load_policy", "load_profiles", "load_published", "load_references", "load_topology")
    wrappers: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
        **dict.fromkeys((*files, "_loaded"), of_file),  # the last by ReFrame, of a site's settings
        "list_suite": of_site,
        "test_classes": functools.cache,  # of checks/
    }
    wrapped: dict[Callable[..., Any], Callable[..., Any]] = {}
    with contextlib.ExitStack() as stack:
        # By name in each module, since they import these functions and not the modules that have them.
        for module in modules:
            for name in wrappers.keys() & vars(module).keys():
                original = getattr(module, name)
                if original not in wrapped:
                    wrapped[original] = wrappers[name](original)
                stack.enter_context(mock.patch.object(module, name, wrapped[original]))
        stack.enter_context(mock.patch.object(mpi, "find_all", functools.cache(mpi.find_all)))  # starts each of them
        stack.enter_context(mock.patch.object(changes, "_revision", functools.cache(changes._revision)))  # by git
        for name in ("_content_or_damage", "_height"):  # of a session in a store
            stack.enter_context(mock.patch.object(reading, name, of_entry(getattr(reading, name))))
        stack.enter_context(mock.patch.object(reading, "ThreadPoolExecutor", InTurn))
        yield


def fuzz(target: Target, inputs: int, start: int, keep: Path, given_before: set[bytes] | None = None) -> Found:
    """Gives `inputs` damaged files to a command; what it did wrong is in the result, and its input below `keep`.

    Those whose digests are in `given_before` are left out, and the new ones added to it.
    """
    began = _processor_seconds()
    found, known = Found(), set() if given_before is None else given_before
    valid = [(file, file.read_bytes()) for file in target.inputs]
    known.update(_digest(file, content) for file, content in valid)
    with tempfile.TemporaryDirectory() as temporary:

        def run(file: Path, content: bytes) -> None:
            if (digest := _digest(file, content)) in known or _processor_seconds() - began > BATCH_S:
                return
            known.add(digest)
            given_file = Path(temporary) / f"input{file.suffix}"
            given_file.write_bytes(content)
            status = status_of(target.arguments(given_file, file), target.program)
            found.runs += 1
            wrong = status if isinstance(status, str) else "" if status in STATUSES else f"exit status {status}"
            if status == 0 and target.is_wrong_green(content, file.read_bytes()):
                wrong = "a wrong green"
            if isinstance(status, int):
                found.statuses[status] += 1
            if wrong:
                keep.mkdir(parents=True, exist_ok=True)
                name = f"{target.name} {start} {len(found.wrong)} {file.name}".replace(" ", "_")
                (keep / name).write_bytes(content)
                found.wrong.append(f"{wrong} ({keep / name})")

        # Of a small file there may be no more inputs than were given before.
        others = damaged(f"{target.name} {start}", valid)
        for made, _ in zip(others, range(10 * inputs), strict=False):
            if found.runs >= inputs or _processor_seconds() - began > BATCH_S:
                break
            run(*made)
    found.seconds = round(_processor_seconds() - began, 2)
    return found


def _processor_seconds() -> float:
    """Of this process and those that it waited for."""
    return sum(os.times()[:4])


def _digest(file: Path, content: bytes) -> bytes:
    return blake2b(bytes(file) + b"\0" + content, digest_size=12).digest()


def done_before(rows: Path) -> dict[str, list[Found]]:
    """The batches of earlier calls, by command; that with number N had the seed N."""
    found: dict[str, list[Found]] = {}
    for line in rows.read_text(encoding="utf-8").splitlines() if rows.exists() else ():
        row = json.loads(line)
        statuses = Counter({int(status): number for status, number in row["statuses"].items()})
        found.setdefault(row["command"], []).append(Found(row["runs"], statuses, row["wrong"], row["seconds"]))
    return found


def table(found: dict[str, list[Found]]) -> Iterator[str]:
    """A row for each command, and one for all of them."""
    yield "| command | inputs | exit status 0, 1, 2, 3, 4, 5 | tracebacks, hangs, wrong greens |"
    yield "|---|---|---|---|"
    everything = [batch for batches in found.values() for batch in batches]
    for command, batches in {**found, "all": everything}.items():
        statuses = [f"{sum(each.statuses[status] for each in batches):,}" for status in sorted(STATUSES)]
        runs = sum(each.runs for each in batches)
        wrong = sum(len(each.wrong) for each in batches)
        yield f"| {command} | {runs:,} | {', '.join(statuses)} | {wrong} |"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Generated inputs for every command that reads a file.")
    parser.add_argument("--inputs", type=int, default=100_000, help="for each command, earlier calls included")
    parser.add_argument("--command", action="append", help="only those whose names begin so; may be repeated")
    parser.add_argument("--keep", type=Path, default=Path("output") / "fuzz", help="where batches are recorded")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no batch begins later than that")
    chosen = parser.parse_args(words)
    chosen.keep.mkdir(parents=True, exist_ok=True)
    done = chosen.keep / "batches.jsonl"
    found, end = done_before(done), time.monotonic() + 60 * chosen.minutes
    with tempfile.TemporaryDirectory() as temporary, the_same_read_once(), little_memory():
        left: dict[str, list[Target]] = {}
        for target in targets(Path(temporary)):
            if target.name.startswith(tuple(chosen.command or ("",))):
                left.setdefault(command_of(target.name), []).append(target)
        given_before: dict[str, set[bytes]] = {}

        def taken(chosen: Iterable[Target]) -> float:
            return sum(batch.seconds for target in chosen for batch in found.get(target.name, ()))

        while time.monotonic() < end:
            for command in list(left):
                runs = sum(batch.runs for name in found for batch in found[name] if command_of(name) == command)
                if runs >= chosen.inputs or not left[command]:
                    del left[command]
            if not left:
                break
            rows = min(left.values(), key=taken)
            target = min(rows, key=lambda each: taken([each]))
            batches = found.setdefault(target.name, [])
            batch = fuzz(target, BATCH, len(batches), chosen.keep, given_before.setdefault(target.name, set()))
            batches.append(batch)
            with done.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"command": target.name, **vars(batch)}) + "\n")
            if not batch.runs:  # of a small file there may be no more
                rows.remove(target)
    for line in table(found):
        print(line)
    every = [batch for batches in found.values() for batch in batches]
    wrong = [each for batch in every for each in batch.wrong]
    for each in wrong:
        print(each)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
