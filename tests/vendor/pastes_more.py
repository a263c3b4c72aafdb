"""More tools of `pastes`: those of networks and fabrics, each with forms that a reader has to refuse."""

# ruff: noqa: E501 - lines as long as the tools print them

from __future__ import annotations

import random

import numpy as np

from tests.vendor.paste import Paste, Values


def oneccl(draw: random.Random) -> Paste:
    """oneCCL's benchmark (examples/benchmark): one collective, or in place, or several buffers."""
    name, ranks = draw.choice(["allreduce", "allgather", "alltoall", "bcast", "reduce"]), draw.choice([2, 4, 12])
    datatype, element = draw.choice([("float32", 4), ("bfloat16", 2), ("float64", 8)])
    counts = [1 << power for power in range(16, 20)]
    extra = draw.random() < 0.3
    readable = draw.random() < 0.85
    in_place, buffers = (0, 1) if readable else draw.choice([(1, 1), (0, 2)])
    lines = ["", "options:", f"  processes:       {ranks}", "  backend:         sycl", "  iters:           16"]
    lines += [f"  buf_count:       {buffers}", f"  elem_counts:     [{' '.join(map(str, counts))}]"]
    lines += [f"  check:           {draw.choice(['off', 'last', 'all'])}", f"  inplace:         {in_place}"]
    lines += [f"  collectives:     {name} ", "", f"datatype: {datatype}", "reduction: sum", "", "#" + "-" * 60]
    lines += [f"# Benchmarking: {name} ", f"# #processes: {ranks}", "#" + "-" * 60, ""]
    columns = ["#bytes", "#elem_count", "#repetitions", "t_min[usec]", "t_max[usec]", "t_avg[usec]"]
    lines += ["".join(f"{column:>14}" for column in columns) + f"{'stddev[%]':>11}" + extra * "  wait_t_avg[usec]"]
    values: Values = {}
    for count in counts:
        size, time = count * element, round(draw.uniform(100, 9000), 2)
        cells = [size, count, 16, f"{time - 5:.2f}", f"{time:.2f}", f"{time - 2:.2f}"]
        lines += ["".join(f"{cell:>14}" for cell in cells) + f"{1.25:>11.2f}" + extra * f"{3.5:>17.2f}"]
        whole = size * ranks if name in ("allgather", "alltoall") else size
        values[{"bcast": "broadcast"}.get(name, name), whole] = 8e-3 * whole / time
    lines += ["", "# All done", ""]
    return Paste("oneccl", "\n".join(lines), values if readable else {}, refusable=not readable)


def fi_pingpong(draw: random.Random) -> Paste:
    """fi_pingpong of libfabric (util/pingpong.c), of a round size or one that it prints cut."""
    lines = [
        f"{'bytes':8}{'#sent':8}{'#ack':9}{'total':8}{'time':>8} {'MB/sec':>10}{'usec/xfer':>13}{'Mxfers/sec':>13}"
    ]
    values: Values = {}
    odd, lost = draw.random() < 0.15, draw.random() < 0.1
    for size in (64, 1 << 16, 1 << 20):
        sent = size + 700 if odd else size
        time = round(draw.uniform(5, 20) + sent / draw.uniform(2e3, 4e4), 2)
        text = next(f"{size // unit}{mark}" for unit, mark in ((1 << 20, "m"), (1 << 10, "k"), (1, "")) if size >= unit)
        ack = "-90" if lost else "=1k"
        rates = f"{0.01:8.2f}s{sent / time:10.2f}{time:11.2f}{1 / time:11.2f}"
        lines += [f"{text:8}{'1k':8}{ack:9}{'1g':8}{rates}"]
        values["pingpong", size] = 8e-3 * size / time
    bad = odd or lost
    return Paste("fi_pingpong", "\n".join(lines) + "\n", {} if bad else values, refusable=bad)


def fabtests(draw: random.Random) -> Paste:
    """Benchmarks of fabtests (fabtests/common/shared.c): a table, which names no test, or records, with its command."""
    program = draw.choice(["fi_rdm_tagged_pingpong", "fi_rdm_pingpong", "fi_rma_bw", "fi_rdm_tagged_bw", "fi_msg_bw"])
    both = 2 if program.endswith("pingpong") else 1
    values: Values = {}
    rows: list[tuple[int, int, float, float]] = []
    for size in draw.sample([8, 1536, 98304, 1 << 20, 12 << 20], 3):
        elapsed = round(1000 * (draw.uniform(2, 9) + size / draw.uniform(2e3, 4e4)))
        per_transfer = float(np.float32(elapsed / 1000 / both))
        rows.append((size, elapsed, 1000 * size * both / elapsed, per_transfer))
    rows.sort()
    how = draw.choice(
        ["$ {} -p efa 10.0.0.1", "./{} -e rdm -S all", "taskset -c 32 ./{} -p tcp -s 10.0.0.2 10.0.0.1", ""]
    )
    lines = [how.format(program)] if how else []
    asked: dict[str, object] = {"tool": program} if not how and draw.random() < 0.7 else {}
    records = draw.random() < 0.3
    for size, _, _, time in rows:
        printed = time if records else round(time, 2)
        values["pingpong" if both == 2 else "unidirectional", size] = 8e-3 * size / printed
    if records:
        lines = ["---", f"{program} -S 65536 -o write :"]
        for size, elapsed, rate, time in rows:
            lines += [f"- {{ xfer_size: {size}, iterations: 1000, total: {1000 * size * both}, time: {elapsed / 1e6:f}, "
                      f"MB/sec: {rate:f}, usec/xfer: {time:f}, Mxfers/sec: {1 / time:f} }}"]  # fmt: skip
        return Paste("fabtests", "\n".join(lines) + "\n", values)
    lines += [f"{'bytes':8}{'iters':8}{'total':8}{'time':>8} {'MB/sec':>10}{'usec/xfer':>13}{'Mxfers/sec':>13}"]
    for size, elapsed, rate, time in rows:
        unit, mark = next((u, m) for u, m in ((1 << 20, "m"), (1 << 10, "k"), (1, "")) if size >= u)
        text = f"{size / unit:.1f}".removesuffix(".0") + mark
        lines += [f"{text:8}{'1k':8}{'1.2g':8}{elapsed / 1e6:8.2f}s{rate:10.2f}{time:11.2f}{1 / time:11.2f}"]
    return Paste("fabtests", "\n".join(lines) + "\n", values, asked, refusable=not (how or asked))


def cxi(draw: random.Random) -> Paste:
    """cxi_write_bw and its kin (libcxi), in either unit and one direction or both; their latencies, in two forms."""
    verb, both, unit = draw.choice(["Write", "Read", "Send"]), draw.random() < 0.4, draw.choice(["Gb/s", "MB/s"])
    latency = draw.random() < 0.4
    head = f"    CXI RDMA {verb} {'Latency' if latency else 'Bandwidth'} Test\nDevice           : cxi0\n"
    head += "Client TX Mem    : GPU 0\n"
    if not latency:
        head += f"Bidirectional    : {'Enabled' if both else 'Disabled'}\n"
    size_title = draw.choice(["Bytes", "Send Size[B]"]) if verb == "Send" else "RDMA Size[B]"
    values: Values = {}
    every = latency and draw.random() < 0.2  # --report-all, which has to be refused
    lines = [f"   {verb}Num  Latency[us]", "         0        1.688", "-" * 51] if every else []
    lines += [
        f"{size_title:>12}      {verb}s  "
        + ("   Min[us]     Max[us]    Mean[us]  StdDev[us]" if latency else f"BW[{unit}]  PktRate[Mpkt/s]")
    ]
    for size in (8, 65536, 1 << 20)[not latency :]:
        if latency:
            time = round(draw.uniform(1.5, 4) + size / 24e3, 2)
            lines += [f"{size:12d}{10000:12d}{time - 0.1:12.2f}{time + 20:12.2f}{time:12.2f}{0.05:12.2f}"]
            values[{"Write": "put", "Read": "get"}.get(verb, "pingpong"), size] = 8e-3 * size / time
        else:
            rate = round(draw.uniform(40, 190), 2) if unit == "Gb/s" else round(draw.uniform(5e3, 2.4e4), 2)
            lines += [f"{size:12d}{draw.choice(['1571328', '-']):>12}{rate:10.2f}{19.8:17.6f}"]
            gigabits = rate if unit == "Gb/s" else 8e-3 * rate
            values["bidirectional" if both else "unidirectional", size] = gigabits / (2 if both else 1)
    return Paste(
        "cxi", head + "-" * 51 + "\n" + "\n".join(lines) + f"\n{'-' * 51}\n", {} if every else values, refusable=every
    )


def nvloom(draw: random.Random) -> Paste:
    """nvloom_cli (cli/nvloom_cli.cpp): pairs of one direction; of both it prints a sum that is refused."""
    count, mebibytes = draw.choice([2, 4]), draw.choice([64, 512, 1024])
    access, mover = draw.choice(["read", "write"]), draw.choice(["ce", "sm"])
    kind = draw.choice(["unidir", "unidir", "unidir", "bidir"])
    test = f"device_to_device_{kind}_{access}_{mover}"
    lines = ["nvloom_cli 1.3.0", "git commit: 2e7b742", "CUDA version: 13.0", f"Buffer size: {mebibytes} MiB"]
    lines += [*(f"Process {index} (tray{index}): device 0: NVIDIA GB200 (00000008:01:00)" for index in range(count))]
    lines += [f"Running {test}", "\t" + "".join(f"{index}\t" for index in range(count))]
    lowest = 1e9
    for row in range(count):
        cells = [round(draw.uniform(300, 800), 2) for _ in range(count)]
        lowest = min(lowest, *(cell for column, cell in enumerate(cells) if column != row))
        lines += [f"{row}\t" + "".join(f"{'N/A' if row == j else f'{cell:.2f}'}\t" for j, cell in enumerate(cells))]
    lines += [f"ExecutionTime {test} 1.7 s", f"Done {test}", ""]
    read = kind == "unidir"
    values = {("unidirectional", mebibytes << 20): 8 * lowest} if read else {}
    return Paste("nvloom", "\n".join(lines), values, refusable=not read)


def p2p(draw: random.Random) -> Paste:
    """p2pBandwidthLatencyTest of CUDA's samples; both directions are one number."""
    count = draw.choice([2, 3, 8])
    lines = ["[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]"]
    lines += [f"Device: {index}, NVIDIA A100-SXM4-80GB, pciBusID: 7, pciDeviceID: 0" for index in range(count)]
    lines += [f"Device={index} CAN Access Peer Device=0" for index in range(1, count)]
    heading = "     D\\D" + "".join(f"{index:6d}" for index in range(count))
    lines += ["", "P2P Connectivity Matrix", heading]
    lines += [f"{row:6d}\t " + "".join(f"{1:6d}" for _ in range(count)) for row in range(count)]
    values: Values = {}
    for title in ("Unidirectional P2P=Disabled Bandwidth", "Unidirectional P2P=Enabled Bandwidth (P2P Writes)",
                  "Bidirectional P2P=Disabled Bandwidth", "Bidirectional P2P=Enabled Bandwidth"):  # fmt: skip
        lines += [f"{title} Matrix (GB/s)", "   D\\D" + "".join(f"{index:6d} " for index in range(count))]
        lowest = 1e9
        for row in range(count):
            cells = [round(draw.uniform(20, 900), 2) for _ in range(count)]
            lines += [f"{row:6d} " + "".join(f"{cell:6.02f} " for cell in cells)]
            lowest = min(lowest, *(cell for column, cell in enumerate(cells) if column != row))
        if "Enabled" in title:
            both = title.startswith("Bi")
            values["bidirectional" if both else "unidirectional", 160_000_000] = 8 * lowest / (2 if both else 1)
    lines += ["P2P=Disabled Latency Matrix (us)", "   GPU" + "".join(f"{index:6d} " for index in range(count))]
    lines += [f"{row:6d} " + "".join(f"{2.5:6.02f} " for _ in range(count)) for row in range(count)]
    return Paste(
        "p2p", "\n".join(lines) + "\n\nNOTE: The CUDA Samples are not meant for performance measurements.\n", values
    )


def rocm_bandwidth_test(draw: random.Random) -> Paste:
    """AMD's older tool (rocm_bandwidth_test_report.cpp), which counts processors among the devices."""
    processors, gpus, digits = draw.choice([1, 2]), draw.choice([2, 4]), draw.choice([3, 6])
    count, both = processors + gpus, draw.random() < 0.4
    lines = ["          RocmBandwidthTest Version: 2.6.0", ""]
    for index in range(count):
        model = (
            "AMD EPYC 7A53 64-Core Processor"
            if index < processors
            else f"AMD Instinct MI250X,  GPU-88a4,  {index:x}1:0.0"
        )
        lines.append(f"          Device: {index},  {model}")
    labels = " " * 10 + f"{'D/D':10}" + "".join(f"{index:<12d}" for index in range(count))
    lines += ["", "          Inter-Device Access", "", labels, ""]
    lines += [f"{'':10}{index:<10d}" + "1           " * count for index in range(count)]
    title = draw.choice(["Bidirectional", "Bdirectional"]) if both else "Unidirectional"
    lines += [f"          {title} copy peak bandwidth GB/s", "", labels, ""]
    rates: dict[tuple[bool, bool], list[float]] = {}
    for row in range(count):
        cells = []
        for column in range(count):
            ends = (row >= processors, column >= processors)
            rate = round(draw.uniform(20, 900), digits)
            cells.append(f"{rate:.{digits}f}" if any(ends) else "N/A")
            if row != column:
                rates.setdefault(ends, []).append(rate)
        lines += [f"{'':10}{row:<10d}" + "".join(f"{cell:12}" for cell in cells), ""]
    size = 64 << 20
    if both:
        values = {("bidirectional", size): 4 * min(rates[True, True])}
    else:
        values = {
            ("unidirectional", size): 8 * min(rates[True, True]),
            ("host_to_device", size): 8 * min(rates[False, True]),
            ("device_to_host", size): 8 * min(rates[True, False]),
        }
    return Paste("rocm_bandwidth_test", "\n".join(lines) + "\n", values)


def ucx_box(draw: random.Random) -> Paste:
    """The server of ucx_perftest with its box; tests of one side, several threads and lists of sizes are refused."""
    size, time = draw.choice([8, 65536, 8 << 20]), round(draw.uniform(1, 900), 3)
    words, operation = draw.choice(
        [
            ("tag match latency", "pingpong"),
            ("tag match bandwidth", "unidirectional"),
            ("stream bandwidth", "unidirectional"),
            ("am latency", "pingpong"),
            ("am bandwidth / message rate", "unidirectional"),
            ("put bandwidth / message rate", ""),
            ("get latency / bandwidth / message rate", ""),
        ]
    )
    head = "latency" if operation == "pingpong" else "overhead"
    text = "+" + "-" * 106 + "+\n| API:          protocol layer" + " " * 78 + "|\n"
    text += f"| Test:         {words:60}{' ' * 31}|\n| Data layout:  {'(automatic)':60}{' ' * 31}|\n"
    text += f"| Send memory:  {'cuda':60}{' ' * 31}|\n| Recv memory:  {'cuda':60}{' ' * 31}|\n"
    text += f"| Message size: {size:<60}{' ' * 31}|\n| Window size:  {32:<60}{' ' * 31}|\n"
    rule = (
        "+--------------+--------------+------------------------------+---------------------+-----------------------+\n"
    )
    text += f"{rule}|              |              |       {head:>8} (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |\n{rule}"
    text += f"|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |\n{rule}"
    row = f"{1000:18.0f} {time:10.3f} {time:9.3f} {time:9.3f} {1e4:11.2f} {1e4:10.2f} {1000:11.0f} {1000:11.0f}\n"
    threads = draw.random() < 0.1
    text += (
        f"[thread 0]{row}" + f"Final:    {f'{1000:18.0f} {time:29.3f} {1e4:22.2f} {1000:23.0f}' if threads else row}\n"
    )
    bad = threads or not operation
    values = {(operation, size): 8e-3 * size / time}
    return Paste("ucx_perftest", text, {} if bad else values, refusable=bad)


def ucx_client(draw: random.Random) -> Paste:
    """A client of ucx_perftest, a call for each size; of a list of sizes nobody knows the sum."""
    values: Values = {}
    text, several = "", draw.random() < 0.2
    for size in draw.sample([8, 4096, 65536, 1 << 20], 2):
        time = round(draw.uniform(1, 900), 3)
        asked = f"{size},{size}" if several else str(size)
        text += f"$ ucx_perftest node02 -t {draw.choice(['tag_lat', 'ucp_am_lat'])} -s {asked} -n 1000\n"
        text += f"Final:                  1000      {time:.3f} {time:.3f} {time:.3f} 10000.00 10000.00 1000 1000\n"
        values["pingpong", size] = 8e-3 * size / time
    return Paste("ucx_perftest", text, {} if several else values, refusable=several)


def nixl(draw: random.Random) -> Paste:
    """nixlbench of the newer form with its columns in any order; of several devices the rate is a sum."""
    several, aggregate = draw.random() < 0.2, draw.random() < 0.3
    titles = ["Batch Size", "B/W (GB/Sec)", "Avg Lat. (us)", "Avg Prep (us)", "P99 Prep (us)", "Avg Post (us)"]
    titles += ["P99 Post (us)", "Avg Tx (us)", "P99 Tx (us)"]
    titles += ["Aggregate B/W (GB/Sec)", "Network Util (%)"] if aggregate else []
    if draw.random() < 0.5:
        draw.shuffle(titles)
    text = "*" * 80 + "\nNIXLBench Configuration\n" + "*" * 80 + "\n"
    for name, value in (("Backend (--backend=[UCX,GDS])", "UCX"), ("Initiator seg type (--initiator_seg_type=[DRAM,VRAM])", "VRAM"),
                        ("Target seg type (--target_seg_type=[DRAM,VRAM])", "VRAM"), ("Mode (--mode=[SG,MG])", "MG"),
                        ("Op type (--op_type=[READ,WRITE])", "WRITE"),
                        ("Num initiator dev (--num_initiator_dev=N)", str(1 + 7 * several))):  # fmt: skip
        text += f"{name:60}: {value}\n"
    text += (
        "-" * 80 + "\n" + f"{'Block Size (B)':20}" + "".join(f"{title:26}" for title in titles) + "\n" + "-" * 80 + "\n"
    )
    values: Values = {}
    for size in (1 << 16, 1 << 20):
        rate = round(draw.uniform(10, 48), 6)
        cells = {"Batch Size": "4", "B/W (GB/Sec)": f"{rate:.6f}", "Aggregate B/W (GB/Sec)": f"{3 * rate:.6f}"}
        text += f"{size:<20d}" + "".join(f"{cells.get(title, '9.5'):26}" for title in titles) + "\n"
        values["unidirectional", size] = 8 * rate
    return Paste("nixlbench", text, {} if several else values, refusable=several)


def osu_in_other_languages(draw: random.Random) -> Paste:
    """OMB-Py (python/util/osu_util_mpi.py) and OMB-J (java/mpi): other titles, and a rate in two units."""
    java, name = draw.random() < 0.5, draw.choice(["Latency", "Bandwidth", "Bi", "Allreduce", "Alltoall"])
    ranks = draw.choice([4, 16]) if name.startswith("All") else 2
    both = "Bi-Bandwidth" if java else "Bi-Directional Bandwidth"
    title = {"Bi": both}.get(name, name)
    lines = [
        f"# OSU {draw.choice(['', 'Open MPI '])}{title} Test"
        if java
        else f"# {draw.choice(['OMB-Py', 'OMB Python'])} MPI {title} Test"
    ]
    rate = name.startswith("B")
    if java:
        pair = f"# Size [B]\t\t{'Bandwidth [MB/s]' if rate else 'Latency [us]'}\tBandwidth [Gb/s]"
        lines += ["# Size\t\tLat Avg[us]\t\tLat Min[us]\t\tLat Max[us]" if ranks > 2 else pair]
    else:
        lines += [f"# {'Size (B)':8}{'Bandwidth (MB/s)' if rate else 'Latency (us)':>18}"]
    values: Values = {}
    for power in range(16, 20):
        size, value = 1 << power, round(draw.uniform(100, 9e3), 2)
        time = 2 * size / value if name == "Bi" else size / value if rate else value
        if java:
            gigabits = 8e-3 * (value if rate else size / value)
            more = f"{value - 1:.2f}\t\t\t{value + 1:.2f}" if ranks > 2 else f"{gigabits:.2f}"
            lines += [f"{size}{'' if ranks > 2 else chr(9)}\t\t{value:.2f}\t\t\t{more}"]
            time += ranks > 2
        else:
            lines += [f"{size:<10d}{value:18.2f}"]
        operation = {"Latency": "pingpong", "Bandwidth": "unidirectional", "Bi": "bidirectional"}.get(
            name, name.lower()
        )
        whole = size * ranks if name == "Alltoall" else size
        values[operation, whole] = 8e-3 * whole / time
    return Paste("osu", "\n".join(lines) + "\n", values, {"ranks": ranks} if ranks > 2 else {})


MORE = {
    "osu in other languages": osu_in_other_languages,
    **{"oneccl": oneccl, "fi_pingpong": fi_pingpong, "fabtests": fabtests, "cxi": cxi, "nvloom": nvloom, "p2p": p2p},
    **{"rocm": rocm_bandwidth_test, "ucx box": ucx_box, "ucx client": ucx_client, "nixl of today": nixl},
}
