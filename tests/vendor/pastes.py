"""Pastes as people send them: outputs of every tool, in the form of the tools' own print code, and their siblings.

`draw` gives one at random, with the values that it has: rates in Gb/s or times in us of one way, by operation and size.
What a sibling may differ in: version, launcher's prefix, CRLF, log lines between rows, lines that a terminal broke,
blanks that a chat made one, headings that were not copied. The property of a reader: these values, or a problem.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace

from tests.vendor import render
from tests.vendor.paste import Paste
from tests.vendor.pastes_more import MORE


def nccl(draw: random.Random) -> Paste:
    """nccl-tests or rccl-tests, of some version."""
    tool = draw.choice(["all_reduce_perf", "all_gather_perf", "reduce_scatter_perf", "alltoall_perf", "sendrecv_perf"])
    ranks = draw.choice([2, 4, 8, 16])
    times = [(round(draw.uniform(900, 1100) * 8**k, 2), round(draw.uniform(900, 1100) * 8**k, 2)) for k in range(4)]
    table = render.NcclTable(tool, ranks, draw.choice([1 << 24, 1 << 26]), 8, times)
    style = draw.choice(["nccl-tests", "classic", "rccl-tests", "2.9"])
    text = table.text(style, timestamps=draw.random() < 0.2)
    operation = {"all_reduce_perf": "allreduce", "all_gather_perf": "allgather", "alltoall_perf": "alltoall"}.get(
        tool, tool.removesuffix("_perf")
    )
    operation = "bidirectional" if operation == "sendrecv" and ranks == 2 else operation
    printed = [render.fitted(time, 7) if style == "nccl-tests" else render.classic(time) for time, _ in times]
    values = {
        (operation, size): 8e-3 * size / float(time)
        for (_, size, _, _), time in zip(table.rows(), printed, strict=True)
    }
    if draw.random() < 0.2:  # what NCCL 2.24 logs
        matrix = "     Function |       LL     LL128    Simple   |\n    Broadcast |        1         2         1   |\n"
        text = text.replace("#\n", f"#\n{matrix}", 1)
    if draw.random() < 0.1:  # a GPU that the driver does not name
        text = text.replace(" NVIDIA H100", "")
    unnamed = style in ("classic", "rccl-tests") and draw.random() < 0.3
    asked: dict[str, object] = {"tool": None if unnamed or style == "nccl-tests" else tool}
    if ranks > 2 and draw.random() < 0.15:  # the first ranks were not pasted
        text = "".join(line for line in text.splitlines(keepends=True) if "Rank  0 " not in line)
        asked["ranks"] = draw.choice([ranks, None])
    return Paste("nccl-tests", text, values, asked, refusable="Rank  0 " not in text and asked.get("ranks") is None)


def nccl_rows(draw: random.Random) -> Paste:
    """Rows alone, as in a README."""
    whole = nccl(draw)
    while not (whole.asked["tool"] or "starting: " in whole.text) or "Rank  0" not in whole.text:
        whole = nccl(draw)
    lines = [line for line in whole.text.splitlines() if "Rank" not in line and "nThread" not in line]
    keep = [line for line in lines if not line.startswith(("# Out of", "# Avg", "# Coll", "# nccl"))]
    ranks = whole.text.count("  Rank ")
    tool = whole.asked["tool"] or whole.text.split("starting: ")[1].split()[0]
    if draw.random() < 0.5:
        del keep[-2]
        keep.insert(-1, draw.choice(["...", "…", "  ..."]))
    sizes = {int(line.split()[0]) for line in keep if line.split() and line.split()[0].isdecimal()}
    values = {key: value for key, value in whole.values.items() if key[1] in sizes}
    return Paste("nccl-tests", "\n".join(keep) + "\n", values, {"tool": tool, "ranks": ranks})


def nccl_json(draw: random.Random) -> Paste:
    """The file of `-J`."""
    times = [(draw.uniform(20, 4000), draw.uniform(20, 4000)) for _ in range(3)]
    table = render.NcclTable("all_reduce_perf", draw.choice([2, 8]), 1 << 20, 4, times)
    values = {
        ("allreduce", size): 8e-3 * size / time for (_, size, _, _), (time, _) in zip(table.rows(), times, strict=True)
    }
    text = table.json(draw.choice((0, 20)))
    if draw.random() < 0.3:  # until 2.17.8
        text = text.replace("bandwidth", "bandwidith")
    return Paste("nccl-tests", text, values)


def osu(draw: random.Random) -> Paste:
    """osu_bw, osu_bibw or osu_latency."""
    title, column, operation = draw.choice(
        [
            ("Bandwidth Test", "Bandwidth (MB/s)", "unidirectional"),
            ("Bi-Directional Bandwidth Test", "Bandwidth (MB/s)", "bidirectional"),
            ("Latency Test", draw.choice(["Latency (us)", "Avg Latency(us)"]), "pingpong"),
        ]
    )
    rows, values = [], {}
    for power in range(16, 23):
        value = round(draw.uniform(10, 9e4), 2)
        rows.append((1 << power, [f"{value:.2f}"]))
        rate = 8e-3 * value / (2 if operation == "bidirectional" else 1)
        values[operation, 1 << power] = 8e-3 * (1 << power) / value if operation == "pingpong" else rate
    name = draw.choice(["MPI", "MPI-CUDA", "MPI-ROCM"])
    text = render.osu(f"OSU {name} {title}", f"# Size          {column}", rows, draw.choice(["5.9", "7.2", "7.5"]))
    return Paste("osu", text, values)


def imb(draw: random.Random) -> Paste:
    """IMB-MPI1 PingPong, with times, or Uniband and Biband, with messages a second."""
    name, streams = draw.choice([("PingPong", 1), ("Uniband", 1), ("Biband", 2)])
    timed = name == "PingPong"
    operation = {"PingPong": "pingpong", "Uniband": "unidirectional", "Biband": "bidirectional"}[name]
    rows: list[tuple[str, ...]] = [("0", "1000", "1.20", "0.00") if timed else ("0", "1000", "0.00", "1610121")]
    values = {}
    for power in range(16, 20):
        size, time = 1 << power, round(draw.uniform(1, 50), 2)
        rate, messages = f"{streams * size / time:.2f}", round(1e6 * streams / time)
        last = (f"{time:.2f}", rate) if timed else (f"{size * messages / 1e6:.2f}", str(messages))
        rows.append((str(size), "640", *last))
        values[operation, size] = 8e-3 * size / time
    columns = ("#bytes", "#repetitions", *(("t[usec]", "Mbytes/sec") if timed else ("Mbytes/sec", "Msg/sec")))
    return Paste("imb", render.imb(name, columns, rows, (16, 19)), values)


def nvbandwidth(draw: random.Random) -> Paste:
    """A matrix of nvbandwidth, of one node or of several, in one direction or both."""
    multi, both, write = draw.random() < 0.3, draw.random() < 0.4, draw.random() < 0.5
    mover, access = draw.choice(["ce", "sm"]), "write" if write else "read"
    test = f"{'multinode_' if multi else ''}device_to_device_{'bidirectional_' if both else ''}memcpy_{access}_{mover}"
    count = draw.choice([2, 4, 8])
    parts = [f"{access.title()}1 ", f"{access.title()}2 ", "Total "] if both else [""]
    lines = ["nvbandwidth Version: v0.8", "Built from Git version: v0.8", ""]
    gpu = "NVIDIA GB200 (00000000:1b:00)"
    if multi:
        lines += [f"Process {index:2d} (node{index // 4}): device {index % 4}: {gpu}" for index in range(count)]
    else:
        lines += ["node01", *(f"Device {index}: {gpu}" for index in range(count))]
    if draw.random() < 0.3:  # an excerpt, as in issues
        lines = lines[:1] if draw.random() < 0.5 else []
    else:
        lines += ["", *(["Waived: "] if draw.random() < 0.3 else []), f"Running {test}."]
    lowest = 1e9
    for part in parts:
        cells = [[round(draw.uniform(100, 900), 2) for _ in range(count)] for _ in range(count)]
        total = sum(cell for i, row in enumerate(cells) for j, cell in enumerate(row) if i != j)
        lines += [f"memcpy {mover.upper()} GPU(row) <-> GPU(column) {part}bandwidth (GB/s)"]
        lines += [" " * 2 + "".join(f"{index:10d}" for index in range(count))]
        for i, row in enumerate(cells):
            lines.append(f"{i:2d}" + "".join(f"{'N/A':>10}" if i == j else f"{x:10.2f}" for j, x in enumerate(row)))
        lines += ["", f"SUM {test} {total:.2f}", ""]
        if part != "Total ":
            lowest = min(lowest, *(cell for i, row in enumerate(cells) for j, cell in enumerate(row) if i != j))
    operation = "bidirectional" if both else "unidirectional"
    values = {(operation, 512 << 20): 8 * lowest}
    if draw.random() < 0.3:
        way = draw.choice(["host_to_device", "device_to_host"])
        rate = round(draw.uniform(20, 60), 2)
        lines += [f"memcpy CE CPU(row) {'->' if way[0] == 'h' else '<-'} GPU(column) bandwidth (GB/s)", f"{0:12d}"]
        lines += [f" 0{rate:10.2f}", "", f"SUM {way}_memcpy_ce {rate:.2f}", "", "Waived: "]
        values[way, 512 << 20] = 8 * rate
    return Paste("nvbandwidth", "\n".join(lines) + "\n", values)


def nvbandwidth_json(draw: random.Random) -> Paste:
    """The same of `--json`."""
    rate = round(draw.uniform(100, 900), 2)
    test: dict[str, object] = {
        "name": "device_to_device_memcpy_write_ce",
        "bandwidth_description": "memcpy CE GPU(row) <- GPU(column)",
    }
    test |= {"bandwidth_matrix": [["N/A", f"{rate}"], [f"{rate + 1}", "N/A"]], "sum": 2 * rate + 1, "status": "Passed"}
    text = json.dumps({"nvbandwidth": {"GPU Device list": ["0: NVIDIA H200 (x)"] * 2, "testcases": [test]}}, indent=1)
    return Paste("nvbandwidth", text, {("unidirectional", 512 << 20): 8 * rate})


def transferbench(draw: random.Random) -> Paste:
    """A test of one transfer, or a matrix of pairs."""
    rate = round(draw.uniform(10, 900), 2)
    if draw.random() < 0.5:
        text = (
            "TransferBench v1.59.00\nTest 1:\n"
            f" Executor: GPU 00 | {rate:7.3f} GB/s |    1.418 ms |     67108864 bytes | {rate:.3f} GB/s (sum)\n"
            f"     Transfer 00  | {rate:7.3f} GB/s |    1.418 ms |     67108864 bytes | G0 -> GFX00:004 -> G1\n"
        )
    else:
        text = (
            "TransferBench v1.54\nBytes Per Direction 67108864\n"
            "Unidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)\n"
            " SRC+EXE\\DST     CPU 00       GPU 00    GPU 01\n"
            f"  CPU 00  ->      20.00        55.00     55.00\n\n  GPU 00  ->      54.00       999.99{rate:10.2f}\n"
            f"  GPU 01  ->      54.00{rate + 1:14.2f}    999.99\n"
        )
    values = {("unidirectional", 64 << 20): 8 * rate}
    if "SRC" in text:
        values |= {("host_to_device", 64 << 20): 8 * 55.0, ("device_to_host", 64 << 20): 8 * 54.0}
    return Paste("TransferBench", text, values)


def perftest(draw: random.Random) -> Paste:
    """ib_write_bw and its kin in either unit, in one direction or both; their latencies, with percentiles or `-D`."""
    verb, both = draw.choice(["RDMA_Write", "RDMA_Read", "Send", "RDMA_Write_imm"]), draw.random() < 0.3
    latency, stated = draw.random() < 0.4, draw.random() < 0.9
    title = f"{verb} Latency Test" if latency else f"{verb} {'Bidirectional ' if both else ''}BW Test"
    text = f"{'-' * 80}\n" + (f"                    {title}\n" if stated else "")
    text += " Dual-port       : OFF\t\tDevice         : mlx5_0\n Link type       : Ethernet\n"
    name = f"ib_{verb.removeprefix('RDMA_').removesuffix('_imm').lower()}_{'lat' if latency else 'bw'}"
    asked: dict[str, object] = {"tool": name} if not stated and draw.random() < 0.5 and not both else {}
    if latency:
        size, time = draw.choice([2, 4096]), round(draw.uniform(1, 20), 2)
        text += " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
        text += "99% percentile[usec]   99.9% percentile[usec] \n"
        row = f" {size:<7d} 1000          {time - 0.2:<7.2f}        {time + 9:<7.2f}      "
        row += f"{time:<7.2f}  \t       {time:<7.2f}"
        if draw.random() < 0.3:
            text = text.replace(
                text[text.index(" #bytes") :], " #bytes        #iterations       t_avg[usec]    tps average\n"
            )
            row = f" {size:<7d}       1000            {time:<7.2f}        {1e6 / time:<7.2f}"
        else:
            row += f"     \t{0.1:<7.2f}\t\t{time + 1:<7.2f} \t\t{time + 2:<7.2f}"
        operation = "get" if "Read" in verb else "pingpong"
        values = {(operation, size): 8e-3 * size / time}
        return Paste("perftest", f"{text}{row}\n", values, asked, refusable=not (stated or asked))
    unit, rate = draw.choice(["Gb/sec", "MiB/sec", "MB/sec"]), round(draw.uniform(50, 390), 2)
    factor = 1.0 if unit == "Gb/sec" else 8 * (1 << 20) / 1e9
    text += f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]\n"
    text += f" 65536      5000             {rate:.2f}            {rate:.2f}\t\t   {rate * factor / 524.288:.6f}\n"
    operation = "bidirectional" if both else "unidirectional"
    values = {(operation, 65536): rate * factor / (2 if both else 1)}
    return Paste("perftest", text, values, asked, refusable=not (stated or asked))


def ucx(draw: random.Random) -> Paste:
    """The client of ucx_perftest, with its command line; without it nobody says what was measured."""
    time = round(draw.uniform(1, 900), 3)
    stated = draw.random() < 0.9
    text = (
        f"$ ucx_perftest node02 -t {draw.choice(['tag_bw', 'ucp_am_bw'])} -m cuda -s 8388608 -n 1000\n"
        if stated
        else ""
    )
    text += (
        "+--------------+--------------+------------------------------+---------------------+-----------------------+\n"
        "|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |\n"
        "|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |\n"
        f"Final:                  1000      {time:.3f} {time:.3f} {time:.3f} 10000.00 10000.00 1000 1000\n"
    )
    values = {("unidirectional", 8388608): 8e-3 * 8388608 / time}
    return Paste("ucx_perftest", text, values, refusable=not stated)


def nixl(draw: random.Random) -> Paste:
    """nixlbench between GPUs; old versions have other columns."""
    rate, old = round(draw.uniform(10, 390), 6), draw.random() < 0.5
    text = "NIXLBench Configuration\n" + "*" * 60 + "\n"
    text += "Initiator seg type (--initiator_seg_type=[DRAM,VRAM])       : VRAM\n"
    text += "Target seg type (--target_seg_type=[DRAM,VRAM])             : VRAM\n" + "-" * 60 + "\n"
    if old:
        text += "Block Size (B)      Batch Size     Avg Lat. (us)  B/W (MiB/Sec)  B/W (GiB/Sec)  B/W (GB/Sec)\n"
        text += f"{8 << 20:<20d}{1:<15d}{7.5:<15.6f}{1.5:<15.6f}{1.5:<15.6f}{rate:<15.6f}\n"
    else:
        text += "Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)  Avg Prep (us)  P99 Prep (us)  "
        text += "Avg Post (us)  P99 Post (us)  Avg Tx (us)    P99 Tx (us)\n"
        text += f"{8 << 20:<20d}{1:<15d}{rate:<15.6f}" + "".join(f"{9.5:<15.1f}" for _ in range(7)) + "\n"
    return Paste("nixlbench", text, {("unidirectional", 8 << 20): 8 * rate})


TOOLS: dict[str, Callable[[random.Random], Paste]] = {
    **{"nccl": nccl, "rows": nccl_rows, "nccl json": nccl_json, "osu": osu, "imb": imb, "nvbandwidth": nvbandwidth},
    **{"nvbandwidth json": nvbandwidth_json, "transferbench": transferbench, "perftest": perftest, "ucx": ucx},
    **{"nixl": nixl, **MORE},
}
# What launchers, pods and loggers put before a line; `{n}` differs from line to line.
PREFIXES = (
    *("", "[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", " 0: ", "12: ", "[0] ", "nid001: ", "dgx-h100-07: "),
    *("worker-1  | ", "[pod/nccl-launcher-x1/launcher] ", "nccl-launcher-x7k2p launcher ", "> ", "10.0.0.7: "),
    *("2026-11-25T12:00:{n:02}.123456789Z ", "Nov 21 05:26:{n:02} ", "2026-11-25T12:00:00.{n:03}Z stdout F "),
    *("[prterun-node01-1234@1,0]<stdout>: ", "nid001.hsn.cm.site.org 0: ", "x1001c0s0b0n0 0: ", "0:node01: "),
    *("[2026-11-25 12:00:{n:02}] ", "2026-11-25 12:00:{n:02},123 INFO ", "[12:00:{n:02}.123] node01: "),
    *("[1,0]<stdout>:2026-11-25T12:00:{n:02}Z ", "Wed Nov 25 12:00:{n:02} 2026<stdout>:", "[rank0]: ", "(node01) "),
    *("[1763990{n:03}.123456] ", "17639900{n:02}.250000 ", "[{n:5d}.250000] ", "1763990{n:03} node01: "),
)
_LOG = (
    "node01:900:950 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    "node01:900:950 [0] NCCL INFO comm 0x55 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 - Init COMPLETE",
    "[1763990000.1] [node01:77 :0] ucp_context.c:1234 UCX INFO  Version 1.17.0",
    "WARNING: There was an error initializing an OpenFabrics device.",
)
# Other units than those that the tools print.
_UNITS = {
    **{"(GB/s)": "(GiB/s)", "(MB/s)": "(GB/s)", "(us)": "(ms)", "[usec]": "[msec]", "(usec)": "(msec)"},
    **{
        "usec/xfer": "msec/xfer",
        "(GB/Sec)": "(TB/Sec)",
        "[Gb/sec]": "[GB/sec]",
        "[Gb/s]": "[GB/s]",
        "[MB/s]": "[kB/s]",
    },
}


# Units of what a reader needs not.
_BESIDE = {"ucx_perftest": "(MB/s)", "p2p": "(us)"}


def _with_unit(paste: Paste, draw: random.Random) -> Paste:
    """With another unit, which has to be refused."""
    units = [unit for unit in _UNITS if unit in paste.text and unit != _BESIDE.get(paste.tool)]
    if not units or "json" in paste.tool:
        return paste
    unit = draw.choice(units)
    return replace(paste, text=paste.text.replace(unit, _UNITS[unit]), values={}, refusable=True)


def _twice(paste: Paste, other: Paste, draw: random.Random) -> Paste:
    """Two outputs after one another, or from two hosts with their lines mixed; of a value the lower one is wanted."""
    values = dict(paste.values)
    for key, value in other.values.items():
        values[key] = min(values.get(key, value), value)
    first, second = paste.text.split("\n"), other.text.split("\n")
    if draw.random() < 0.7:
        return replace(
            paste,
            text="\n".join([*first, *second]),
            values=values,
            refusable=paste.refusable or other.refusable or bool(other.asked),
        )
    mixed: list[str] = []
    while first or second:
        lines, host = draw.choice([(first, "node01"), (second, "node02")])
        if lines:
            mixed.append(f"{host}: {lines.pop(0)}")
    return replace(paste, text="\n".join(mixed), values=values, refusable=True)


def draw_paste(kind: str, seed: int) -> Paste:
    """A paste of a kind of TOOLS, with a launcher's prefix and all else that happens to a text."""
    draw = random.Random(f"{kind} {seed}")
    paste = TOOLS[kind](draw)
    if "json" in kind:
        return paste
    if draw.random() < 0.08:
        paste = _with_unit(paste, draw)
    twice = draw.random() < 0.12 and bool(paste.values) and not paste.asked
    if twice:
        paste = _twice(paste, TOOLS[kind](draw), draw)
    lines = paste.text.split("\n")
    refusable, cut = paste.refusable, False
    if draw.random() < 0.4:
        for _ in range(draw.randint(1, 4)):
            lines.insert(draw.randrange(len(lines)), draw.choice(_LOG))
    if draw.random() < 0.15:  # a log line inside a row
        rows = [index for index, line in enumerate(lines) if sum(word[:1].isdigit() for word in line.split()) > 2]
        at = draw.choice(rows or [0])
        place = draw.randrange(len(lines[at]) + 1)
        lines[at : at + 1] = [lines[at][:place] + draw.choice(_LOG), lines[at][place:]]
        refusable = True
    several = twice or "1 bandwidth (" in paste.text
    if draw.random() < 0.2 and not several:  # cut off, somewhere in a line
        lines = lines[: draw.randint(len(lines) // 2, len(lines))]
        lines[-1] = lines[-1][: draw.randint(len(lines[-1]) // 2, len(lines[-1]))]
        cut = refusable = True
    if draw.random() < 0.1:  # a chat makes all blanks one
        lines = [" ".join(line.split()) for line in lines]
        refusable = True
    prefix = draw.choice(PREFIXES)
    lines = [prefix.format(n=number % 60) + line for number, line in enumerate(lines)]
    if draw.random() < 0.1:
        lines = [line[start : start + 80] for line in lines for start in range(0, max(len(line), 1), 80)]
        refusable = True
    end = draw.choice(["\n", "\n", "\r\n"])
    if draw.random() < 0.1:  # a browser's
        lines = [line.replace(" ", draw.choice("\u00a0\u2007\u202f")) for line in lines]
    return replace(paste, text=end.join(lines), refusable=refusable, cut=cut)
