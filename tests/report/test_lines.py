"""The line of every code: what, how much, and what to do, in 160 characters and in words that can be looked up."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import CATALOGUE, SYMPTOMS, CatalogueEntry, Certainty
from fabricheck.records.verdict import Verdict
from fabricheck.report.lines import LONGEST, figures, general_steps, headline, line, marked_steps, steps, summary
from fabricheck.results.proof_logs import reasons_of
from fabricheck.topology.model import load_topology
from tests.support.effort import effort
from tests.support.pages import cards_of, render
from tests.support.synthetic import pair_run
from tests.support.words import BANNED, parse_command

ROOT = Path(__file__).resolve().parents[2]
GPU, NIC = Component(Kind.GPU, "gpu2", "nid001", address="0000:18:00.0"), Component(Kind.NIC, "hsn0", "nid001")
OTHER = Component(Kind.GPU, "gpu3", "nid002", address="0000:2a:00.0")
#: What a finding of each subject names.
NAMED = {
    "A GPU": (GPU,),
    "A NIC port": (NIC,),
    "A library or a setting": (Component(Kind.LIBRARY, "NCCL", version="2.29.1"),),
    "A link": (Component(Kind.LINK, "gpu2", "nid001", "gpu3", "nid001"),),
    "A metric": (),
    "A node": (Component.of_node("nid001"),),
    "A pair": (Component.between(GPU, OTHER, "out"),),
    "A part": (GPU,),
    "A path": (Component.between(GPU, OTHER),),
    "A setting": (Component(Kind.SETTING, "NCCL_ALGO=Ring"),),
    "A switch": (Component(Kind.SWITCH, "leaf1"),),
    "A transfer": (Component.between(GPU, OTHER, "out"),),
    "Two nodes": (Component.of_node("nid001"), Component.of_node("nid002")),
    "": (),
}
METRIC = "allreduce_uncontended_all_1gib_goodput"
RUN = "output/runs/alps-20261125T020000Z"
# Words that stopped readers, or that another word stands for; those of a dialect of our own.


def of(code: str, entry: CatalogueEntry) -> Finding:
    """A finding of this code as there is one: with the figures of a slow one, or the name of a metric."""
    metrics = (METRIC,) if entry.subject == "A metric" else ()
    found = Finding(code, Verdict.DEGRADED, "12 of 13 did not do it", NAMED[entry.subject], metrics=metrics)
    return replace(found, measured=1809.0, expected=3165.0, unit="Gb/s") if entry.symptom == SYMPTOMS[0] else found


@pytest.mark.parametrize("code", CATALOGUE)
def test_the_line_of_a_code(code: str) -> None:
    entry = CATALOGUE[code]
    found = of(code, entry)
    text = line(found, system="alps", run=RUN)
    assert len(text) <= LONGEST
    assert text.startswith(f"DEGRADED {headline(found)}")
    assert entry.sentence in text
    assert all(each.text in text for each in found.components)
    assert figures(found) in text
    assert all(each in text for each in steps(found, system="alps", run=RUN)[:1]), "no room for the first step"
    assert not re.search(r"[{}`]|NODE|PART|SYSTEM|FILE|RUN", text) or not found.components


@pytest.mark.parametrize("code", CATALOGUE)
def test_the_words_of_a_code(code: str) -> None:
    entry = CATALOGUE[code]
    assert entry.symptom in SYMPTOMS
    assert entry.sentence and not entry.sentence.endswith(".") and ":" not in entry.sentence
    assert entry.sentence[0].islower() == bool(entry.subject)
    assert entry.decides.endswith(".")
    texts = (entry.alone, entry.decides, entry.certainty.value, *entry.steps)
    assert [found[0] for each in texts for found in BANNED.finditer(each)] == []
    assert [each for each in texts if len(each) > 160] == []
    assert all(each.count("`") % 2 == 0 and not each.endswith(".") for each in entry.steps)
    # What is wrong has something that can be done about it.
    assert entry.steps or entry.certainty is Certainty.TOLD


#: Of settings and texts that a step names between backticks, which are not commands.
_OTHER = re.compile(r"[A-Z]\w*=|--|fallen off|\w+=")
_PORTS = ("mlx5_0", "cxi0", "rdmap0s31", "hfi1_0", "bnxt_re0", "ens3")
_NODES = [*(f"nid{number:03}" for number in range(1, 7)), "login"]
_FOLDER = "/scratch/o'brien's runs/alps-20261125T020000Z"
_TESTS = ["PingPong %transport=ccl @alps:gpu+gnu", "PeerCopies @alps:gpu+gnu"]


@st.composite
def findings(draw: st.DrawFn, code: str) -> Finding:
    """One of this code on one node or several, of any port, with its metrics and files or without."""
    finding = of(code, CATALOGUE[code])
    port, node = draw(st.sampled_from(_PORTS)), draw(st.sampled_from(_NODES))
    parts = [replace(each, name=port) if each.kind is Kind.NIC else each for each in finding.components]
    parts = [replace(each, node=node) if each.node == "nid001" else each for each in parts]
    if parts and all(each.kind is Kind.NODE for each in parts):
        parts = list(map(Component.of_node, draw(st.lists(st.sampled_from(_NODES), min_size=1, unique=True))))
    return replace(finding, components=tuple(parts), files=("my result.jsonl",) if draw(st.booleans()) else ())


def commands_in(steps_: Iterable[str]) -> list[str]:
    found = (command for step in steps_ for command in re.findall("`([^`]+)`", step))
    return [command for command in found if not _OTHER.match(command)]


def require_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell reads it; it has the names that the finding has; what is ours is parsed."""
    words = shlex.split(command)
    assert re.match(r"[a-z][\w./-]*$", words[0]), command
    placeholders = {name.upper() for name in ("node", "part", "system", "file", "run", "test")} | {"LIST", "N"}
    assert not placeholders & {*re.findall(r"[A-Z]+", command)}, command
    if words[0] in ("fabricheck", "python") and words[-1] != "--help":
        parse_command(command, monkeypatch)
    if words[:2] == ["fabricheck", "bundle"]:
        assert words[2] == _FOLDER


@pytest.mark.parametrize("code", CATALOGUE)
def test_the_commands_of_a_code_can_be_pasted(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any finding, as `explain`, the cards of a page and a terminal of 80 columns have it."""
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)

    @given(findings(code), st.sampled_from([[], _TESTS]), st.sampled_from([("alps", _FOLDER), ("alps", ""), ("", "")]))
    @settings(max_examples=effort(10), deadline=None)
    def holds(finding: Finding, tests: list[str], of: tuple[str, str]) -> None:
        run = pair_run()
        cards = cards_of([run], problems=[finding], system=of[0], folder=of[1])
        why = [step for card in cards if card.why is not None for step in card.why.steps]
        nexts = commands_in(step for card in cards for step in card.next_ if card.known)
        its_own = commands_in(marked_steps(finding, system=of[0], run=of[1], tests=tests))
        for command in {*its_own, *nexts, *commands_in(why)}:
            require_command(command, monkeypatch)
        shown = render([run], width=80, color=False, problems=[finding], system=of[0], folder=of[1], height=1000)
        assert [command for command in nexts if command not in shown] == []

    holds()


def test_what_a_finding_does_not_have_keeps_a_word() -> None:
    assert all(not re.search(r"[{}`]", each) for entry in CATALOGUE.values() for each in general_steps(entry))
    assert "-i N" in " ".join(general_steps(CATALOGUE["slow-gpu"]))
    bare = Finding("slow-nic", Verdict.DEGRADED, "it is slow")
    assert headline(bare) == "A NIC port is slower than its peers"
    assert "ethtool" not in " ".join(steps(bare))


def test_figures_have_units_separators_and_few_digits() -> None:
    def shown(measured: float | None, expected: float | None = None, unit: str = "Gb/s") -> str:
        return figures(Finding("slow-gpu", Verdict.DEGRADED, "", (), measured, expected, unit))

    assert shown(2727.4321, 2859.1) == "2,727 Gb/s, 4.6% below 2,859 Gb/s"
    assert shown(12.5, 10.0, "us") == "12.50 µs, 25.0% above 10.00 µs"
    assert shown(1380.0, 100.0, "us") == "1,380 µs, 13.80 times 100.0 µs"
    assert shown(2727.4321) == "2,727 Gb/s"
    assert shown(None, 2859.1) == shown(float("nan"), 1.0) == ""


def test_a_finding_without_a_component_has_its_message_in_the_line() -> None:
    found = Finding("test-failed", Verdict.FAIL, "PingPong @alps:gpu+gnu: sanity: no output")
    assert line(found).startswith("FAIL A test failed: PingPong @alps:gpu+gnu: sanity: no output. Read rfm_job.err")
    long = Finding("test-failed", Verdict.FAIL, "x" * 500)
    assert len(line(long)) == LONGEST and line(long).endswith("…")
    assert summary(found, message="sanity") == summary(Finding("test-failed", Verdict.FAIL, "sanity"))


@pytest.mark.parametrize(
    "file", sorted((ROOT / "site_configs").glob("*/topology*.yaml")), ids=lambda file: str(file.parent.name)
)
def test_the_name_of_a_gpu_ends_with_its_index(file: Path) -> None:
    """With which the commands for it are made."""
    for gpu in load_topology(file).gpus:
        assert re.search(r"\d+$", gpu.name), gpu
        assert int(re.search(r"\d+$", gpu.name)[0]) == gpu.index  # type: ignore[index]


TOOLS_OF_PORTS = {
    "mlx5_0": ("NET/IB/0", {"ibstat", "lsmod"}),
    "bnxt_re0": ("NET/IB/0", {"ibv_devinfo", "lsmod"}),
    "cxi0": ("NET/OFI provider cxi", {"cxi_stat", "cxi"}),
    "rdmap0s31": ("NET/OFI provider efa", {"ibv_devinfo", "efa", "efa_nv_peermem"}),
    "hfi1_0": ("NET/OFI provider opx", {"opainfo"}),
    "ens3": ("NET/Socket/0", {"ethtool"}),
}


@pytest.mark.parametrize("port", TOOLS_OF_PORTS)
def test_advice_is_of_the_nics_family(port: str) -> None:
    """Of each family and each finding about a port: no tool or module of another one."""
    path, own = TOOLS_OF_PORTS[port]
    told = [*reasons_of({}, "NET/RDMA/GDRDMA", [path, "NET/AWS Libfabric/0"] if "OFI" in path else [path])]
    for code in ("nic-down", "nic-slow", "nic-errors", "slow-nic"):
        told += steps(Finding(code, Verdict.FAIL, "", (Component(Kind.NIC, port, "n1"),)))
    words = {word for _, its_words in TOOLS_OF_PORTS.values() for word in its_words}
    assert {word for word in words if re.search(rf"\b{word}\b", " ".join(told))} == own
