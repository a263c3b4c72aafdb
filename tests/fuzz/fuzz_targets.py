"""The commands that read files, as tests/fuzz/fuzz.py tries them: valid files of each, and how it is called."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import polars as pl

from ci.drain import Node
from ci.drain import main as drain_main
from fabricheck.cli import main as fabricheck
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import FORMAT
from fabricheck.store.folders import METRICS, SUMS
from fabricheck.store.metric_rows import SCHEMA, to_parquet
from fabricheck.store.writing import append
from tests.support.captured import TEXTS
from tests.support.pages import write_json
from tests.support.result_files import HOST
from tests.support.sessions import NOW, add, make_suite, reframe_report, result_file, session_of
from tests.support.synthetic import pair_run

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
Words = Sequence[str | Path]
#: The paper's figure that shows what a result measured.
SHOWN_BY = {
    "synthetic_host_2ranks": "sc24-3",
    "synthetic_cuda_4ranks": "sc24-6",
    "two_nodes_nccl_collectives": "sc24-9",
}
COMMANDS = (
    "judge", "reproduce", "report", "expected",
    "store import", "store ls", "store verify", "watch", "compare", "calibrate",
    "bundle", "init", "validate", "drain.py", "explain",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A command, valid inputs of it, and its arguments for the damaged file and the one that it was."""

    name: str
    inputs: Sequence[Path]
    arguments: Callable[[Path, Path], Words]
    is_wrong_green: Callable[[bytes, bytes], bool] = lambda *_: False  # of what was given, and what that had been
    program: Callable[[Sequence[str]], int | None] = fabricheck


def command_of(name: str) -> str:
    """The command that a target of this name calls."""
    return next(command for command in COMMANDS if name.startswith(command))


@dataclass
class Copies:
    """A folder with one file in it damaged. Made anew only where a command has changed anything in it.

    `tables` are of a store as text, and the Parquet files that they stand for. Whatever they are changed to has its
    checksum, and so has half of what else is changed in a store where there are `tables`.
    """

    source: Path
    copy: Path
    tables: Mapping[Path, Path] = field(default_factory=dict)
    _noted: dict[str, tuple[int, int]] = field(default_factory=dict)
    _changed: tuple[str, ...] = ()
    _count: int = 0

    def having(self, damaged: Path, file: Path) -> Path:
        """The copy, in which `damaged` stands for the `file` of the source."""
        now = dict(seen(str(self.copy)))
        if all(now.get(each) == self._noted[each] for each in self._changed):
            for each in self._changed:
                self._put(each, (self.source / each).read_bytes())
                now[each] = self._noted[each]
        if not now or now != self._noted:
            shutil.rmtree(self.copy, ignore_errors=True)
            shutil.copytree(self.source, self.copy)
            self._noted = dict(seen(str(self.copy)))
        place, content = self.tables.get(file, file).relative_to(self.source), damaged.read_bytes()
        if file in self.tables:
            content = as_parquet(content)
        changed = {str(place): content}
        sums, digest = self.source / place.with_name(SUMS), sha256(content).hexdigest()
        if self.tables and sums.exists() and (file in self.tables or int(digest, 16) % 2):
            text = re.sub(rf"\w+(?=  {re.escape(place.name)}$)", digest, sums.read_text(), flags=re.MULTILINE)
            changed.setdefault(str(place.with_name(SUMS)), text.encode())
        for name, written in changed.items():
            self._put(name, written)
        self._changed = tuple(changed)
        return self.copy

    def _put(self, place: str, content: bytes) -> None:
        (self.copy / place).write_bytes(content)
        # Two inputs of one size are told apart by the time, of which many kernels know only every 4 ms.
        self._count += 1
        os.utime(self.copy / place, ns=(self._count, self._count))
        self._noted[place] = _stamp((self.copy / place).lstat())


def tables_of(store: Path, folder: Path) -> dict[Path, Path]:
    """The tables of a store as text below `folder`, a line of JSON for each row, and the files that they are of."""
    found = {}
    for number, file in enumerate(file for file in _files(store) if file.name == METRICS):
        text = folder / f"{number}.jsonl"
        text.parent.mkdir(exist_ok=True)
        pl.read_parquet(file).write_ndjson(text)
        found[text] = file
    return found


def as_parquet(text: bytes) -> bytes:
    """The table that a text is of; the text where it is of none."""
    try:
        return to_parquet(pl.read_ndjson(io.BytesIO(text), schema=dict(SCHEMA)))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError):
        return text


def seen(folder: str, place: str = "") -> Iterator[tuple[str, tuple[int, int]]]:
    """Size and time of every file below a folder that may not be there, and 0 of every folder."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for each in entries:
            if each.is_dir(follow_symlinks=False):
                yield place + each.name, (0, 0)
                yield from seen(each.path, f"{place}{each.name}/")
            else:
                yield place + each.name, _stamp(each.stat(follow_symlinks=False))


def _stamp(state: os.stat_result) -> tuple[int, int]:
    return state.st_size, state.st_mtime_ns


def _files(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(file for file in folder.rglob(pattern) if file.is_file())


def _write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def known_references(folder: Path) -> Path:
    """References that the synthetic result of two ranks just meets."""
    return _write(
        folder / "references.yaml",
        "$sources:\n  run1: {kind: vendor, source: made up}\n$provenance: {Ping: run1}\n"
        "Ping:\n  $index: [transport]\n  mpi:\n"
        "    pingpong_uncontended_0_1_1mib_goodput: [98, -0.05, 0.05, Gb/s]\n"
        "    pingpong_uncontended_0_1_8b_latency: [0.41, -0.5, 0.1, us]\n",
    )


def times_of(content: bytes) -> dict[tuple[str, int], tuple[float, int]]:
    """Median time and wrong bytes by operation and size, of what can be read of a result file."""
    found = {}
    for line in content.split(b"\n"):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            value = json.loads(line)
            if value["record"] == "samples":
                times = statistics.median(value["times_ns"])
                found[value["operation"], value["bytes"]] = times, value["wrong_bytes"]
    return found


def wrong_green(content: bytes, _was: bytes = b"") -> bool:
    """Whether a result that passed lacks a measurement, is wrong, or slower than the references' tolerance allows."""
    now = times_of(content)
    for key, (time, _) in times_of(HOST.read_bytes()).items():
        if key not in now or now[key][1] != 0 or now[key][0] > 1.2 * time:
            return True
    return False


def not_as_stored(content: bytes, was: bytes) -> bool:
    """Whether a damaged file of a store may not be taken for a whole one.

    Only the store's marker has no checksum, and checksums end in a new line or not.
    """
    if content.removesuffix(b"\n") == was.removesuffix(b"\n"):
        return False
    try:
        return bool(json.loads(content) != {"fabricheck-store": FORMAT})
    except (ValueError, RecursionError):
        return True


def of_system(file: Path) -> Words:
    if file.parent.name == "emulated":
        return ["--system", "emulated"]
    return ["--system", "hgx-h200", "--test", "PingPong @hgx-h200:gpu+openmpi"]


def ranks_of(file: Path) -> Words:
    """What the outputs in tests/data do not say themselves."""
    with_4 = (
        "h200x4",
        "host_imb_4np2",
        "host_imb_multi",
        "n4",
        "alltoall",
        "allreduce",
        "allgather",
        "bcast",
        "reduce",
    )
    is_4 = file.parent.name != "oneccl" and any(each in file.stem for each in (*with_4, "mbw_mr_4"))
    return ["--ranks", "4" if is_4 else "2"]


def targets(folder: Path) -> Iterator[Target]:
    """Every command that reads files; `folder` is for what they need beside them."""
    (folder / "out").mkdir(exist_ok=True)
    suite = make_suite(folder / "suite")
    yield from _of_results(folder)
    yield from _of_a_suites_files(folder)
    yield from _of_a_store(folder, suite)
    yield from _of_a_run(folder, suite)
    yield from _of_a_site(folder)
    yield from _of_drain(folder)
    yield Target("explain", [_verdict(folder / "explained")], lambda file, _: ["explain", file])


def _of_results(folder: Path) -> Iterator[Target]:
    """Commands that read what a benchmark measured."""
    known = known_references(folder)
    results = [*_files(DATA / "fabricbench", "*.jsonl"), *_files(DATA / "emulated", "*.jsonl")]
    vendor = [
        file for file in _files(DATA / "suites") if file.suffix in (".txt", ".json") and file.parent.name != "logs"
    ]
    judged: Words = ["judge", "--references", known, "--test", "Ping"]
    page: Words = ["--html", folder / "out" / "report.html"]
    named = folder / "named.jsonl"
    named.write_text(HOST.read_text().replace("{", '{"case":"T,@local:default+openmpi",', 1))
    yield Target("judge", [HOST], lambda file, _: [*judged, file], wrong_green)
    yield Target("judge --system", results, lambda file, was: ["judge", file, *of_system(was)])
    yield Target("judge, a vendor's output", vendor, lambda file, was: ["judge", file, "--json", *ranks_of(was)])
    shown = [file for file in results if file.stem in SHOWN_BY]
    yield Target(
        "reproduce",
        shown,
        lambda file, was: ["reproduce", SHOWN_BY[was.stem], "--from", file, "--output", folder / "out"],
    )
    # Long results have more of the same lines, and a page that takes longer to be written.
    short = [file for file in results if file.stat().st_size < 15_000]
    yield Target("judge --html", short, lambda file, was: ["judge", file, *of_system(was), *page])
    yield Target("store import", [named], lambda file, _: ["store", "import", file, "--store", folder / "out" / "s"])


def _of_a_suites_files(folder: Path) -> Iterator[Target]:
    """Commands that read topologies, references and policies."""
    known, topologies = known_references(folder), _files(ROOT / "site_configs", "topology*.yaml")
    rules, references = ROOT / "config" / "policy.yaml", sorted((ROOT / "reference_values").glob("*.yaml"))
    yield Target("judge --topology", topologies, lambda file, _: ["judge", HOST, "--topology", file])
    yield Target("judge --policy", [rules], lambda file, _: ["judge", HOST, "--policy", file])
    yield Target("judge --references", [known, *references], lambda file, _: ["judge", HOST, "--references", file])
    yield Target("expected", topologies, lambda file, _: ["expected", "--system", file])


def _of_a_store(folder: Path, suite: Path) -> Iterator[Target]:
    """Commands that read a store, or another file beside it."""
    store = folder / "store"
    add(suite, store, 0)
    add(suite, store, 1)
    copies, stored = Copies(store, folder / "copy"), _files(store)

    def of(*words: str | Path) -> Callable[[Path, Path], Words]:
        return lambda damaged, file: [*words, "--store", copies.having(damaged, file)]

    # As many sessions as watch needs for its shortest warm-up, and calibrate for references.
    history = folder / "history"
    for night in range(18):
        files = [result_file(suite / "nights", night, factor=1 + 0.001 * (night * 7 % 5))]
        append(history, session_of(suite, night, files), NOW)
    long = Copies(history, folder / "copy of history", tables_of(history, folder / "tables of history"))
    of_history = [*_files(history), *long.tables]

    def over(*words: str | Path) -> Callable[[Path, Path], Words]:
        return lambda damaged, file: [*words, "--store", long.having(damaged, file)]

    accepted = _write(
        folder / "accepted.yaml",
        "- {since: 2026-09-02, reason: the new driver, metrics: ['pingpong*', '*latency']}\n"
        "- {since: 2026-09-01, reason: a better cable, keep: true}\n",
    )
    nights: Words = ["--store", history]
    references = [known_references(folder), ROOT / "reference_values" / "local.yaml"]
    yield Target("store ls", stored, of("store", "ls"))
    yield Target("store verify", stored, of("store", "verify"), not_as_stored)
    yield Target("watch", of_history, over("watch", "--system", "local", "--warm-up", "8"))
    yield Target("compare", of_history, over("compare", "2026-09-01..2026-09-09", "2026-09-10..2026-09-18"))
    yield Target("calibrate", of_history, over("calibrate", "--system", "local"))
    yield Target(
        "watch --accepted",
        [accepted],
        lambda file, _: ["watch", "--system", "local", "--warm-up", "8", *nights, "--accepted", file],
    )
    yield Target(
        "calibrate --references",
        references,
        lambda file, _: ["calibrate", "--system", "local", *nights, "--references", file],
    )


def _of_a_run(folder: Path, suite: Path) -> Iterator[Target]:
    """Commands that read the folder that a run left."""
    run = folder / "run"
    test = run / "output" / "local" / "default" / "openmpi" / "PingPong_1"
    result_file(test, 2)
    _write(test / "rfm_job.sh", "module load openmpi/5.0\n")
    _write(test / "rfm_job.err", "vm: link down\n")
    _write(run / "reframe.json", reframe_report(run, folder / "run copy" / test.relative_to(run)))
    _write(run / "verdict.json", json.dumps({"hosts": ["vm"], "runs": []}, indent=1))
    copies, files = Copies(run, folder / "run copy"), _files(run)
    store, archive = folder / "out" / "imported", folder / "out" / "bundle.tar.gz"

    def imported(damaged: Path, file: Path) -> Words:
        shutil.rmtree(store, ignore_errors=True)  # what is stored already would be refused
        return ["store", "import", copies.having(damaged, file), "--store", store]

    def bundled(damaged: Path, file: Path) -> Words:
        return ["bundle", copies.having(damaged, file), "--output", archive, "--hide-names"]

    yield Target("store import of a run", files, imported)
    yield Target("bundle", files, bundled)


def _of_a_site(folder: Path) -> Iterator[Target]:
    """Commands that read what a node said, or write or check a site's files."""
    captured = folder / "captured"
    shutil.copytree(DATA / "site", captured)
    nic = {"kind": "InfiniBand", "name": "mlx5_0", "rate": "200 Gb/sec (4X HDR)", "numa_node": 0, "pci": "0000:01:00.0"}
    _write(captured / "h200x4" / "nics.json", json.dumps([nic], indent=1))
    slurm = {
        "sinfo": "gpu|4|gpu:h200:4(S:0-1)|nid[001-004]|64|idle\ncpu|9|(null)|cn[1-9]|64|alloc\n",
        "config": "AccountingStorageType = accounting_storage/slurmdbd\nClusterName = alpha\n",
        "mpi": "MPI plugin types are...\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n",
        "topology": "SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=nid[001-004]\n",
    }
    _write(captured / "h200x4" / "slurm.json", json.dumps(slurm, indent=1))
    for name, text in {**TEXTS, "software.json": (captured / "h200x4" / "software.json").read_text()}.items():
        _write(captured / "pasted" / name, text)
    cables = "".join(f'[{n}]\t"H-000{n}"[1](000{n}) \t\t# "nid00{n} mlx5_0" lid {n} 4xHDR\n' for n in range(1, 5))
    discovered = _write(
        folder / "ibnetdiscover.txt",
        f'Switch\t40 "S-00ff"\t\t# "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 9 lmc 0\n{cables}\n'
        + "".join(
            f'Ca\t1 "H-000{n}"\t\t# "nid00{n} mlx5_0"\n'
            f'[1](000{n}) \t"S-00ff"[{n}]\t\t# lid {n} lmc 0 "MF0;leaf1:MQM8700/U1" lid 9 4xHDR\n\n'
            for n in range(1, 5)
        ),
    )
    seen = _write(
        folder / "lldp.txt",
        "".join(
            f"nid00{n}: lldp.mlx5_0.chassis.name=tor{1 + n // 3}\nnid00{n}: lldp.mlx5_0.via=LLDP\n" for n in range(1, 5)
        ),
    )
    by_source = {each: Copies(each, folder / f"copy of {each.name}") for each in captured.iterdir() if each.is_dir()}
    made = folder / "made"

    def init(source: Path, *more: str | Path) -> Words:
        shutil.rmtree(made, ignore_errors=True)
        return ["init", "--from", source, "--system", "made", "--site", made, *more]

    yield Target(
        "init",
        [file for source in by_source for file in _files(source)],
        lambda damaged, file: init(by_source[file.parent].having(damaged, file)),
    )
    whole = captured / "h200x4"
    yield Target("init --ibnetdiscover", [discovered], lambda file, _: init(whole, "--ibnetdiscover", file))
    yield Target("init --lldp", [seen], lambda file, _: init(whole, "--lldp", file))

    site = folder / "site"
    for name in ("hgx-h200", "leonardo"):
        shutil.copytree(ROOT / "site_configs" / name, site / "site_configs" / name)
    for file in _files(ROOT / "reference_values", "*.yaml"):
        if file.stem in ("hgx-h200", "leonardo", "h200", "a100"):
            _write(site / file.relative_to(ROOT), file.read_text(encoding="utf-8"))
    sites = Copies(site, folder / "copy of site")

    def validate(damaged: Path, file: Path) -> Words:
        copy = sites.having(damaged, file)
        return [
            "validate",
            "--system",
            "leonardo" if "leonardo" in str(file.relative_to(site)) else "hgx-h200",
            "--site",
            copy,
        ]

    cuda = DATA / "fabricbench" / "synthetic_cuda_4ranks.jsonl"
    hgx: Words = ["--system", "hgx-h200", "--test", "PingPong @hgx-h200:gpu+openmpi"]
    # Not settings.py, which is a program.
    yield Target("validate", _files(site, "*.yaml"), validate)
    yield Target(
        "judge --site",
        [file for file in _files(site, "*.yaml") if "leonardo" not in str(file.relative_to(site))],
        lambda damaged, file: ["judge", cuda, *hgx, "--site", sites.having(damaged, file)],
    )
    yield Target(
        "expected --site",
        [file for file in _files(site, "*.yaml") if "leonardo" in str(file.relative_to(site))],
        lambda damaged, file: ["expected", "--system", "leonardo", "--site", sites.having(damaged, file)],
    )


def _of_drain(folder: Path) -> Iterator[Target]:
    """ci/drain.py, which a site's own jobs call."""
    evidence = [{"verdict": "FAIL", "part": "nid003", "message": "nid003: loses 50% at hsn0"}]
    bad = [{"node": "nid003", "verdict": "FAIL", "evidence": evidence}]
    session = {"id": "1a2b3c4d-0000", "ended": "2026-11-20T03:00:00+00:00"}
    known = {"system": "alps", "rehearsal": False, "session": session}
    fleet = {**known, "runs": [], "fleet": {"nodes": 8, "bad": bad, "good": ["nid001", "nid002"]}}
    metrics = [{"name": "pair_goodput", "reason": "11 Gb/s, and at least 90 Gb/s are wanted", "verdict": "FAIL"}]
    runs = [
        {"test": "Copies", "verdict": "FAIL", "hosts": ["nid004"], "busy": [], "problems": [], "metrics": metrics},
        {"test": "Pairs", "verdict": "PASS", "hosts": ["nid001", "nid002"], "busy": [], "problems": [], "metrics": []},
    ]
    verdicts = [
        _write(folder / "fleet.json", json.dumps(fleet, indent=1)),
        _write(folder / "verdict.json", json.dumps({**known, "runs": runs}, indent=1)),
    ]
    waivers = _write(
        folder / "waivers", "# known\nnid003 ann 2999-12-31 waits for a cable\nnid005 bob 2020-01-01 was to be fixed\n"
    )
    nodes = {name: Node(name, frozenset(["gpu"])) for name in (f"nid{number:03}" for number in range(1, 9))}

    def drain(words: Sequence[str]) -> int:
        return drain_main([*words, "--system=alps", "--hours=inf"], lambda _: nodes)

    yield Target("drain.py", verdicts, lambda file, _: [file], program=drain)
    yield Target("drain.py --after", verdicts, lambda file, _: [verdicts[0], "--after", file], program=drain)
    yield Target("drain.py --waivers", [waivers], lambda file, _: [verdicts[0], "--waivers", file], program=drain)


def _verdict(folder: Path) -> Path:
    """A verdict.json with problems of a session, of a run and of its metrics."""
    found = [
        Finding(
            "slow-gpu", Verdict.DEGRADED, "it is slow", (Component(Kind.GPU, "gpu2", "nid001"),), 90.0, 95.5, "Gb/s"
        ),
        Finding("test-failed", Verdict.INCOMPLETE, "PingPong: no output"),
    ]
    run = pair_run(bad={(2, 1): Verdict.FAIL}, problems=found[1:])
    folder.mkdir()
    write_json([run], folder / "verdict.json", system="alps", problems=found)
    return folder / "verdict.json"
