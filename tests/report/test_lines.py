"""The line of every code: what, how much, and what to do, in 160 characters and in words that can be looked up."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import CATALOGUE, SYMPTOMS, CatalogueEntry, Certainty
from fabricheck.records.verdict import Verdict
from fabricheck.report.lines import LONGEST, figures, general_steps, headline, line, marked_steps, steps, summary
from fabricheck.results.proof_logs import reasons_of
from fabricheck.topology.model import load_topology
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
_OTHER = re.compile(r"[A-Z]\w*=|--")
_PORTS = ("mlx5_0", "cxi0", "rdmap0s31", "hfi1_0", "bnxt_re0", "ens3")


@pytest.mark.parametrize("code", CATALOGUE)
def test_the_commands_of_a_code_can_be_pasted(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell reads each; what is ours is parsed, and has the names of the finding in it."""
    found, tests = of(code, CATALOGUE[code]), ["PingPong %transport=ccl @alps:gpu+gnu"]
    findings = [found]
    if found.components == (NIC,):
        findings += [replace(found, components=(Component(Kind.NIC, port, "nid001"),)) for port in _PORTS]
    commands = []
    for finding in findings:
        for step in marked_steps(replace(finding, files=("result.jsonl",)), system="alps", run=RUN, tests=tests):
            commands += [command for command in re.findall("`([^`]+)`", step) if not _OTHER.match(command)]
    for command in commands:
        assert re.match(r"[a-z][\w./-]* ?", command), command
        if command.startswith(("fabricheck ", "python ")):
            if not command.endswith(" --help"):
                parse_command(command, monkeypatch)
            assert not found.components or not re.search(r"\b[A-Z]{3,}\b(?!=)", command), command
    script = "\n".join(commands)
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_a_finding_does_not_have_keeps_a_word() -> None:
    assert all(not re.search(r"[{}`]", each) for entry in CATALOGUE.values() for each in general_steps(entry))
    assert "-i N" in " ".join(general_steps(CATALOGUE["slow-gpu"]))
    bare = Finding("slow-nic", Verdict.DEGRADED, "it is slow")
    assert (headline(bare), "ethtool -S PART" in steps(bare)[0]) == ("A NIC port is slower than its peers", True)


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
