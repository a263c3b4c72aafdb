"""Rules on counters of GPUs, links and NICs that rose in a test: which are errors, from which number, and what is said.

A rule is counters, a condition on their rise, and a code. What only explains something stands beside a slow metric or a
wrong path.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabricheck.records.verdict import Verdict
from fabricheck.units import few

#: Share of a test: a GPU that stood still for a second in a minute has lost less than any bound.
MOST_THROTTLED = 1 / 60

#: By how much each counter of a part rose during the test.
Rises = Mapping[str, int]


def _any(count: int, rises: Rises, seconds: float) -> bool:
    return True


def _ten(count: int, rises: Rises, seconds: float) -> bool:
    return count >= 10


def _a_hundred_a_second(count: int, rises: Rises, seconds: float) -> bool:
    return seconds > 0 and count / seconds >= 100


def _over_eight_a_minute(count: int, rises: Rises, seconds: float) -> bool:
    """Of a test of seconds: as many as a whole minute may have."""
    return count > 8 * max(seconds / 60, 1.0)


def _over_a_second_a_minute(count: int, rises: Rises, seconds: float) -> bool:
    """Of nanoseconds."""
    return count > MOST_THROTTLED * seconds * 1e9


def _a_thousandth_of(passed: str) -> Callable[[int, Rises, float], bool]:
    return lambda count, rises, seconds: count >= 20 and count > 1e-3 * (count + rises.get(passed, 0))


@dataclass(frozen=True)
class CounterRule:
    """`counters`: with their names for people; `*` stands for any letters, and no rule takes what one before it took.

    `when`: of the rise of one, those of all, and the seconds between the two readings; `verdict`: as of Evidence;
    `few`: where `when` does not hold, if it is told. `together`: all of them are one line. `text`: with `{count}`,
    `{ms}` of nanoseconds, `{name}` and `{share}` of a percentage of what passed (`of`); of several `together` with
    `{names}`.
    """

    code: str
    counters: Mapping[str, str]
    text: str
    when: Callable[[int, Rises, float], bool] = _any
    verdict: Verdict | None = Verdict.DEGRADED
    few: tuple[Verdict | None, ...] = ()
    together: str = ""
    of: str = ""


_ROSE = "{name} rose by {count:,} during the test"


def _errors(*names: str) -> CounterRule:
    return CounterRule("nic-errors", dict.fromkeys(names, ""), _ROSE)


def _some(*names: str) -> CounterRule:
    """Fewer than ten of these do not justify replacing a cable (ibqueryerrors(8), error_thresholds)."""
    return CounterRule("nic-errors", dict.fromkeys(names, ""), _ROSE, _ten, few=(Verdict.PASS,))


def _drops(name: str, passed: str) -> CounterRule:
    """Packets lost of those that came or went."""
    text = _ROSE + ", {share:.2g}% of packets"
    return CounterRule("nic-drops", {name: ""}, text, _a_thousandth_of(passed), of=passed)


#: By the kind of a NIC. Each error tells that a link failed or lost data; a healthy cable has none for days (NVIDIA,
#: "InfiniBand counters"; the kernel, Documentation/ABI/stable/sysfs-class-infiniband and sysfs-class-net-statistics).
NIC_COUNTERS = {
    "infiniband": (
        _some("symbol_error", "port_rcv_errors", "local_link_integrity_errors"),
        _errors("link_error_recovery", "link_downed", "port_rcv_remote_physical_errors"),
        _errors("excessive_buffer_overrun_errors", "local_ack_timeout_err", "rnr_nak_retry_err"),
        _errors("rdma_read_wr_err", "rdma_write_wr_err"),  # EFA
        _errors("max_retry_exceeded", "rx_roce_error_pkts"),  # Broadcom's bnxt_re
        _drops("port_xmit_discards", "port_xmit_packets"),
    ),
    "ethernet": (
        _some("rx_errors"),
        _errors("tx_errors", "carrier_changes"),
        _drops("rx_dropped", "rx_packets"),
        _drops("tx_dropped", "tx_packets"),
    ),
    "cxi": (_errors("hni_pcs_uncorrected_cw", "hni_llr_tx_replay_event"),),
}
#: Of any kind of NIC, of a driver's own counters: frames that arrived broken, and symbols that FEC did not correct (so
#: mlx5's rx_symbol_err_phy; corrected ones are usual). Not judged alone: `rx_errors` has them too.
BROKEN_FRAMES = CounterRule(
    "nic-errors",
    dict.fromkeys(("ethtool_*crc*", "ethtool_*fcs*", "ethtool_*symbol_err*", "ethtool_*uncorrect*"), ""),
    "{names} during the test",
    verdict=None,
    together="{name} rose by {count:,}",
)
#: Waits and pauses tell of congestion, which is no fault.
CONGESTION = CounterRule(
    "congestion",
    dict.fromkeys(
        (
            *("port_xmit_wait", "roce_slow_restart_cnps", "np_cnp_sent", "out_of_sequence", "packet_seq_err"),
            *("retrans_pkts", "retrans_timeout_events", "impaired_remote_conn_events", "rx_drops"),  # EFA
            "unresponsive_remote_events",
            *("cnp_rx_pkts", "to_retransmits", "seq_err_naks_rcvd", "rx_roce_discard_pkts"),  # bnxt_re
            "ethtool_*",
        ),
        "",
    ),
    "{names} during the test",
    verdict=None,
    together="{name} rose by {count:,}",
)
#: What a driver calls the reasons that hold the clocks of a GPU down. These protect it: it is not as fast as it should
#: be, whatever it is asked to do.
PROTECTS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "external power brake",
    "sw_thermal_slowdown": "thermal slowdown by the driver",
    "throttled": "throttled",
}
#: These are how a GPU is set, and a cap of its power is usual under full load.
SETTING = {
    "sw_power_cap": "power cap",
    "applications_clocks_setting": "application clocks are set",
    "sync_boost": "sync boost",
    "display_clock_setting": "display clock setting",
}
#: NVIDIA DCGM, dcgm_gpu_hardware_limits.h: 8 PCIe replays a minute are the most that is recommended.
GPU_COUNTERS = (
    CounterRule("gpu-link-errors", {"ecc_uncorrected_xgmi*": ""}, "XGMI had {count} uncorrected errors"),
    CounterRule("pcie-errors", {"ecc_uncorrected_pcie*": ""}, "PCIe had {count} uncorrected errors"),
    CounterRule(
        "gpu-memory-errors", {"ecc_uncorrected": "", "ecc_uncorrected_umc": ""}, "had {count} uncorrected memory errors"
    ),
    CounterRule("gpu-errors", {"ecc_uncorrected_*": ""}, "block {name} had {count} uncorrected errors"),
    CounterRule(
        "gpu-memory-errors",
        {"ecc_corrected": ""},
        "had {count} corrected memory errors",
        verdict=Verdict.PASS,
    ),
    CounterRule(
        "pcie-errors",
        {"pcie_replays": ""},
        "PCIe had {count} replays",
        _over_eight_a_minute,
        few=(None,),
    ),
    CounterRule(
        "gpu-setting",
        {"throttled_ns_power": "its power limit", **{f"throttled_ns_{name}": words for name, words in SETTING.items()}},
        "was held for {ms:,.0f} ms by {name}",
        verdict=None,
    ),
)
#: Beside what the driver says of the moment of a reading.
THROTTLE_COUNTERS = (
    CounterRule(
        "gpu-throttled",
        {
            **{"throttled_ns_thermal": "heat", "throttled_ns_reliability": "reliability"},
            **{f"throttled_ns_{name}": words for name, words in PROTECTS.items()},
        },
        "was throttled for {ms:,.0f} ms of the test by {name}",
        _over_a_second_a_minute,
        few=(Verdict.PASS,),
    ),
    CounterRule(
        "gpu-throttled",
        {
            "throttled_prochot": "PROCHOT",
            "throttled_thermal_socket": "heat of the socket",
            "throttled_thermal_vr": "heat of the voltage regulator",
            "throttled_thermal_hbm": "heat of the memory",
        },
        "was throttled during the test by {names}",
        together="{name}",
    ),
)
#: NVIDIA DCGM, as above: one replay or recovery is too many, CRC errors matter from 100 a second on (two healthy H200
#: had 1 to 41 a test on nearly every link: docs/results/h200x2-2026-11-22).
LINK_COUNTERS = (
    CounterRule(
        "gpu-link-errors",
        {"replay": "replays", "recovery": "recoveries", "recoveries_failed": "failed recoveries"},
        "had {count} {name} during the test, the most of all links",
    ),
    CounterRule(
        "gpu-link-errors",
        {
            "crc_flit": "CRC errors of flits",
            "crc_data": "CRC errors of data",
            "effective_errors": "errors that FEC did not correct",
            "symbol_errors": "symbol errors",
        },
        "had {count} {name} during the test, the most of all links",
        _a_hundred_a_second,
        few=(None,),
    ),
)


def rises_of(now: Mapping[str, int], before: Mapping[str, int] | None) -> Rises:
    """By how much counters rose; nothing where that is not known, or the driver was loaded again."""
    return {name: value - before.get(name, 0) for name, value in now.items()} if before is not None else {}


def judge_counters(
    rules: Sequence[CounterRule], rises: Rises, seconds: float = 0.0
) -> Iterator[tuple[str, str, Verdict | None, str]]:
    """Code, text, verdict and counter of each rule that holds."""
    taken: set[str] = set()
    for rule in rules:
        items = []
        counters = {name: words for name, words in _counters(rule, rises) if name not in taken}
        taken |= counters.keys()
        for counter, words in counters.items():
            count = rises.get(counter, 0)
            verdicts = (rule.verdict,) if rule.when(count, rises, seconds) else rule.few
            if count <= 0 or not verdicts:
                continue
            share = 100 * count / (count + rises.get(rule.of, 0)) if rule.of else 0.0
            text = (rule.together or rule.text).format(name=words or counter, count=count, ms=count / 1e6, share=share)
            if rule.together:
                items.append(text)
            else:
                yield rule.code, text, verdicts[0], counter
        if items:
            yield rule.code, rule.text.format(names=few(items)), rule.verdict, ""


def _counters(rule: CounterRule, rises: Rises) -> Iterator[tuple[str, str]]:
    for name, words in rule.counters.items():
        if "*" in name:
            prefix = len(name.partition("*")[0])
            yield from ((counter, counter[prefix:]) for counter in fnmatch.filter(rises, name))
        else:
            yield name, words
