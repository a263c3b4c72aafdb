"""Tools whose outputs people paste, by what they print: their names, also of those that nobody reads here."""

from __future__ import annotations

import re

_BY_TEXT = (
    ("nvbandwidth", r"^nvbandwidth Version:|\"nvbandwidth\"\s*:"),
    ("p2pBandwidthLatencyTest", r"P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test|^P2P Connectivity Matrix"),
    ("TransferBench", r"^TransferBench v|^Test \d+:.*\n Executor"),
    ("rocm_bandwidth_test", r"^\s*RocmBandwidthTest Version|^ *Unidirectional copy peak bandwidth GB/s"),
    ("perftest (ib_write_bw and its kin)", r"^ *(?:RDMA_Write|RDMA_Read|Send|Atomic)\b.* (?:BW|Latency) Test"),
    ("perftest (ib_write_bw and its kin)", r"^ *#bytes +#iterations +(?:BW peak|t_min)"),
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
