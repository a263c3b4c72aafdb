"""The outputs of vendor tools in a text of which nothing states what it is: one after the other, each by its parser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fabricheck.errors import refused
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.results.imb import parse_imb
from fabricheck.results.nccl_tests import parse_nccl_tests, parse_nccl_tests_json
from fabricheck.results.oneccl_benchmark import parse_oneccl_benchmark
from fabricheck.results.osu import parse_osu
from fabricheck.results.point_tools import TOOLS, read_points, samples_of
from fabricheck.results.proof_logs import FALL_BACKS, TransportProof, read_log, reasons_of
from fabricheck.results.vendor_output import VendorOutput
from fabricheck.results.vendor_text import read_lines
from fabricheck.wholefile import read_file

_LARGEST = 64 << 20

# How an output begins, by tool; the later ones of nccl-tests are not in all versions.
_BEGINNINGS = (
    ("osu", re.compile(r"# OSU (?:MPI|NCCL|RCCL|XCCL)[ _-]")),
    ("imb", re.compile(r"#\s+Intel\(R\) MPI Benchmarks ")),
    ("oneccl", re.compile(r"options:$")),
    ("oneccl", re.compile(r"# Benchmarking: ")),
    ("nccl", re.compile(r"# nccl-tests version |#? ?rccl-tests:? [Vv]ersion")),
    ("nccl", re.compile(r"# Collective test starting: ")),
    ("nccl", re.compile(r"(?:# )?nThread [0-9]+ nGpus ")),
    ("nccl", re.compile(r"(?:#\s+)?size +count +type ")),
)
_HEADER = len(_BEGINNINGS) - 1


def read_vendor_outputs(path: Path, *, ranks: int | None = None, tool: str | None = None) -> tuple[VendorOutput, ...]:
    """Every output of a tool in a file; none where nothing in it is how one of those that are known here begins.

    `ranks` and `tool` are for outputs that do not say them themselves. Raises UserError for a file that cannot be read.
    """
    with refused(repr(str(path)), "read"):
        content = read_file(path, _LARGEST)
    return vendor_outputs(content.decode("utf-8", "replace"), str(path), ranks=ranks, tool=tool)


def vendor_outputs(
    text: str, path: str = "", *, ranks: int | None = None, tool: str | None = None
) -> tuple[VendorOutput, ...]:
    """The same of a text. What another tool printed, which has no reader, is an output with its name and a problem.

    A log of NCCL in the text, or by itself, says which paths the data took: `paths` of the facts, and what the library
    said of them.
    """
    if text.lstrip().startswith("{") and '"nccl' in text[:100_000]:
        return (parse_nccl_tests_json(text, path),)
    parts = list(_parts(text))
    if not parts:
        return _of_others(text, path)
    outputs = [_parse(kind, part, path, ranks, tool) for kind, part in parts]
    proofs = [read_log("nccl", part) if kind == "nccl" else TransportProof() for kind, part in parts]
    outputs = [_with_paths(output, proof) for output, proof in zip(outputs, proofs, strict=True)]
    if len(outputs) > 1 and all(one.ranks == 1 for one in outputs):
        alone = "each of {} outputs has one rank: nccl-tests was built without MPI (make MPI=1), and nothing was sent"
        problem = Finding("wrong-ranks", Verdict.INVALID, f"{path or 'the output'}: {alone.format(len(outputs))}")
        outputs = [replace(one, problems=(*one.problems, problem)) for one in outputs]
    return tuple(_numbered(one, path, number if len(parts) > 1 else 0) for number, one in enumerate(outputs, start=1))


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each output. What stands before the first one belongs to it, such as a launcher's complaints.

    Each line that tells of a beginning is there once, in an order that differs between versions; the table's header is
    the last.
    """
    lines = text.splitlines(keepends=True)
    begin, kind = 0, ""
    seen: set[int] = set()
    for index, line in enumerate(read_lines("".join(lines))[: len(lines)]):
        beginning = next((at for at, (_, how) in enumerate(_BEGINNINGS) if how.match(line.text.strip())), None)
        if beginning is None:
            continue
        if kind and (_BEGINNINGS[beginning][0] != kind or beginning in seen or _HEADER in seen):
            yield kind, "".join(lines[begin:index])
            begin, seen = index, set()
        kind = _BEGINNINGS[beginning][0]
        seen.add(beginning)
    if kind:
        yield kind, "".join(lines[begin:])


def _with_paths(output: VendorOutput, proof: TransportProof) -> VendorOutput:
    """With what a log of NCCL beside the table says; sockets and the like are a fall-back wherever there is RDMA."""
    if not proof.paths and "warning" not in proof.facts:
        return output
    facts = {**output.facts, **({"paths": ", ".join(proof.paths)} if proof.paths else {})}
    staged = any(path.startswith("SHM") for path in proof.paths)
    why = "; ".join(reasons_of(proof.facts, "NET/IB/GDRDMA" + "/P2P" * staged, list(proof.paths)))
    if why:
        facts["reasons"] = why
    fallen = [path for path in proof.paths if any(re.search(pattern, path) for pattern in FALL_BACKS)]
    if not fallen:
        return replace(output, facts=facts)
    text = f"the data took {', '.join(fallen)}, says the log: a fall-back where RDMA exists"
    message = f"{output.path or 'the output'}: {text}{f'; {why}' if why else ''}"
    problem = Finding("path-forbidden", Verdict.INVALID, message)
    return replace(output, facts=facts, problems=(*output.problems, problem))


def _of_others(text: str, path: str) -> tuple[VendorOutput, ...]:
    name = other_tool(text)
    if name is None:
        proof = read_log("nccl", text)
        if not proof.paths and "warning" not in proof.facts:
            return ()
        return (_with_paths(VendorOutput("a log of NCCL", None, path, None, {}, (), ()), proof),)
    if points := read_points(text):
        return (VendorOutput(name, None, path, None, {}, tuple(map(samples_of, points)), ()),)
    known = ", ".join(("OMB", "nccl-tests", "rccl-tests", "IMB", "oneCCL's benchmark", *TOOLS))
    told = f"{path or 'the text'}: is an output of {name}, without a number that can be read; numbers of {known} can"
    problem = Finding("other-tool", Verdict.INVALID, told)
    return (VendorOutput(name, None, path, None, {}, (), (problem,)),)


def _parse(kind: str, text: str, path: str, ranks: int | None, tool: str | None) -> VendorOutput:
    parse: Callable[[], VendorOutput] = {
        "osu": lambda: parse_osu(text, path, ranks=ranks),
        "imb": lambda: parse_imb(text, path, ranks=ranks),
        "oneccl": lambda: parse_oneccl_benchmark(text, path, ranks=ranks),
        "nccl": lambda: parse_nccl_tests(text, path, ranks=ranks, tool=tool),
    }[kind]
    return parse()


def _numbered(output: VendorOutput, path: str, number: int) -> VendorOutput:
    """The output with its number in the file, where lines are counted from its own beginning."""
    if not number:
        return output
    where = f"{path or 'the text'}, output {number}"
    problems = [replace(one, message=one.message.replace(path or "the output", where, 1)) for one in output.problems]
    return replace(output, path=where, problems=tuple(problems))


def not_judged(output: VendorOutput) -> Finding:
    """Why a vendor's output by itself is never PASS."""
    where = output.path or "the output"
    paths, reasons = output.facts.get("paths"), output.facts.get("reasons")
    said = [*([f"the data took {paths}, says the log"] if paths else []), *([reasons] if reasons else [])]
    if any(each.code == "path-forbidden" for each in output.problems):  # which says the same
        said = []
    missing = "where it ran" if paths else "where and over which path it ran"
    step = "Use fabricheck run --tag vendor"
    step += ", or compare with others: --part PART" if output.samples else ""
    text = "; ".join([*said, f"not judged: the output does not prove {missing}"])
    return Finding("not-judged-by-hand", Verdict.INCOMPLETE, f"{where}: {text}. {step}")


# Tools whose outputs people paste, by what they print: their names, also of those that nobody reads here.
_BY_TEXT = (
    ("nvbandwidth", r"^nvbandwidth Version:|\"nvbandwidth\"\s*:"),
    ("p2pBandwidthLatencyTest", r"P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test|^P2P Connectivity Matrix"),
    ("TransferBench", r"^TransferBench v|^Test \d+:.*\n Executor"),
    ("rocm_bandwidth_test", r"^\s*RocmBandwidthTest Version|^ *Unidirectional copy peak bandwidth GB/s"),
    ("perftest (ib_write_bw and its kin)", r"^ *(?:RDMA_Write|RDMA_Read|Send|Atomic)\b.* (?:BW|Latency) Test"),
    ("perftest (ib_write_bw and its kin)", r"^ *#bytes +#iterations +(?:BW peak|t_min)"),
    ("cxi tools (cxi_write_bw and its kin)", r"^ *CXI .* (?:Bandwidth|Latency) Test"),
    ("gdrcopy (gdrcopy_copybw, gdrcopy_copylat)", r"^GPU id:\d+; name:|gdr_copy_(?:to|from)_mapping"),
    ("ucx_perftest", r"^\| +(?:API|Test): +|^\[thread \d+\] +\d+ .*|Final: +\d+ "),
    ("bandwidthTest (CUDA samples)", r"^\[CUDA Bandwidth Test\]"),
    ("dcgmi diag", r"\"DCGM (?:GPU )?Diagnostic\"|Successfully ran diagnostic for group"),
    ("iperf3", r"\"version\"\s*:\s*\"iperf |^Connecting to host .*, port \d+"),
    ("fi_pingpong or fabtests", r"^bytes +#sent +#ack +total +time "),
    ("HPL", r"^HPLinpack |^HPL-NVIDIA |^T/V +N +NB +P +Q "),
)


def other_tool(text: str) -> str | None:
    """The name of the tool that printed `text`; None where it is none of those that are known by name."""
    begin = text[:200_000]
    return next((name for name, pattern in _BY_TEXT if re.search(pattern, begin, re.MULTILINE)), None)
