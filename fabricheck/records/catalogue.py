"""The catalogue of findings: what each code means, what decides it, how sure it is, and what to do first.

Everything that is shown of a finding comes from here and from the finding's own fields: terminal, page, machine
formats, `fabricheck explain` and the page "When it is red" of the user guide. Long because it is one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from fabricheck.records.component import Component, Kind


class Certainty(str, Enum):
    """How sure a finding is of what it names."""

    MEASURED = "measured: the figures are the evidence"
    CONTRAST = "by contrast: what it names is slow, and equal things beside it are not"
    REPORTED = "reported by the node, its driver or the library itself"
    CHECKED = "checked: the result or the site's files contradict what was asked for"
    TOLD = "told only: it changes no verdict"


@dataclass(frozen=True)
class Entry:
    """One kind of finding. `sentence`: what is wrong, as the line for people has it after the component; `symptom`: the
    heading under which the guide has it; `decides`: what has to be true for it; `steps`: what to do, the first first.
    `{node}`, `{part}`, `{system}` and `{file}` in a step are those of the finding.
    """

    sentence: str
    symptom: str
    certainty: Certainty
    decides: str
    steps: tuple[str, ...] = ()


_SLOW, _BYTES, _MISSING, _OTHER, _ENDED, _STATE, _SITE, _TOLD = (
    "Something is slow",
    "Wrong bytes",
    "A node or GPU is missing",
    "Something else was measured",
    "A run did not get to its end",
    "A node reports a fault",
    "The site's files or the selection are wrong",
    "Told beside the verdict",
)
_LOOK = "nvidia-smi -q -i N (or amd-smi metric -g N) on {node}: clocks, power, errors; then other processes"
_AGAIN = "fabricheck run --system {system} --name TEST: does it stay?"

#: By code. A code is never given another meaning: monitoring and stored sessions refer to it.
CATALOGUE: Mapping[str, Entry] = {
    "slow-node": Entry(
        "is slower than its peers",
        _SLOW,
        Certainty.CONTRAST,
        "What was measured on this node is slower than the same on equal nodes by more than noise "
        "explains, and no smaller part of it explains that.",
        (
            "Compare `doctor` on {node} with a good node: fabricheck doctor --system {system}",
            _LOOK,
            "Drain it only where it is named alone: ci/drain.py",
        ),
    ),
    "slow-gpu": Entry(
        "is slower than its peers",
        _SLOW,
        Certainty.CONTRAST,
        "All measurements that cross this GPU are slower than equal ones that do not.",
        (
            _LOOK,
            "nvidia-smi nvlink -e -i N: errors of its links",
            _AGAIN,
        ),
    ),
    "slow-nic": Entry(
        "is slower than its peers",
        _SLOW,
        Certainty.CONTRAST,
        "All measurements over this NIC port are slower than equal ones over others.",
        (
            "ethtool -S, or the counters below /sys/class/infiniband/{part} on {node}",
            "Reseat or exchange the cable and the transceiver",
            _AGAIN,
        ),
    ),
    "slow-link": Entry(
        "is slower than its peers",
        _SLOW,
        Certainty.CONTRAST,
        "All measurements whose data cross this link are slower than equal ones that do not; its ends "
        "are fast by other links.",
        (
            "State and error counters of both ends: nvidia-smi nvlink -s -e, ethtool -S, ibqueryerrors",
            _AGAIN,
        ),
    ),
    "slow-pair": Entry(
        "is slower than other pairs",
        _SLOW,
        Certainty.CONTRAST,
        "One pair is slower than equal pairs, and both of its ends are fast with others. Either end, or "
        "what lies between, can be at fault.",
        (
            "Measure each end with a third partner: fabricheck run --system {system} --name NodePairs --nodes LIST",
            "Drain neither of them for this",
            _AGAIN,
        ),
    ),
    "slow-switch": Entry(
        "is slower than its peers",
        _SLOW,
        Certainty.CONTRAST,
        "All pairs through this switch are slower than equal pairs that avoid it.",
        (
            "The switch's own port counters and temperature",
            "Exchange its cables only after its counters",
            _AGAIN,
        ),
    ),
    "slow-part": Entry(
        "is slower than its peers",
        _SLOW,
        Certainty.CONTRAST,
        "What these have in common is slower than equal measurements; the data cannot tell which of them is at fault.",
        (
            "Measure what tells them apart: one of them with another partner",
            _AGAIN,
        ),
    ),
    "slow-library": Entry(
        "is slower than before, or than other movers on the same links",
        _SLOW,
        Certainty.CONTRAST,
        "All measurements that use this software are slower; the same links by other movers are not.",
        (
            "Compare versions and settings: fabricheck compare OLD NEW --system {system}",
            "Run the earlier version on the same nodes: does the loss go away?",
        ),
    ),
    "all-slow": Entry(
        "All equal measurements are equally slow",
        _SLOW,
        Certainty.CONTRAST,
        "Nine of ten equal measurements or more are slow by another yardstick than each other, and by nearly the same.",
        (
            "What changed: module list, driver, the site's tuning; fabricheck compare",
            _AGAIN,
        ),
    ),
    "no-healthy-majority": Entry(
        "Most equal measurements are slow",
        _SLOW,
        Certainty.CONTRAST,
        "More than half of equal measurements are slow, so their equals cannot say which are healthy.",
        (
            "fabricheck expected {system}: what the links carry",
            _AGAIN,
        ),
    ),
    "slow-now-and-then": Entry(
        "is slow now and then",
        _SLOW,
        Certainty.CONTRAST,
        "The slowest twentieth of its iterations takes longer, against their median, than that of its equals.",
        (
            "Error counters and other processes on {node}",
            _AGAIN,
        ),
    ),
    "slow-at-first": Entry(
        "was slow at first",
        _SLOW,
        Certainty.CONTRAST,
        "Its first iterations took 1.5 times its median or more and cost 0.2 s or more; most of its equals did not.",
        ("State of its links, power saving, and what ran before on {node}",),
    ),
    "intermittent": Entry(
        "was slow in one launch, and not in the next",
        _SLOW,
        Certainty.MEASURED,
        "In one launch it was slower than chance explains, and another launch of the same test on the "
        "same nodes was not.",
        (
            "Error counters and the kernel's log of {node} at that time: a flapping cable or optic looks like this",
            "fabricheck ledger {system}: has it happened before?",
        ),
    ),
    "below-floor": Entry(
        "is below the minimum",
        _SLOW,
        Certainty.MEASURED,
        "Goodput under the floor of config/policy.yaml, a share of what the links carry; or a latency above its limit.",
        (
            "fabricheck expected {system}: is the topology that of this machine?",
            _AGAIN,
        ),
    ),
    "slower-than-reference": Entry(
        "is slower than its reference",
        _SLOW,
        Certainty.MEASURED,
        "Worse than the bound of the reference that was measured on this system, and noise does not explain it.",
        (
            "fabricheck compare: what changed since the reference?",
            _AGAIN,
        ),
    ),
    "slower-than-part": Entry(
        "is slower than the same part elsewhere",
        _SLOW,
        Certainty.MEASURED,
        "Worse than what the same GPU or NIC gave on other machines, by more than its bound.",
        (
            "Power limit, clocks and PCIe state: fabricheck doctor --system {system}",
            _AGAIN,
        ),
    ),
    "slower-than-published": Entry(
        "is slower than published values",
        _SLOW,
        Certainty.MEASURED,
        "Worse than what a paper measured on such a system, or under the alarm of an owner of equal machines.",
        (
            "The conditions of that value stand beside it: are they yours?",
            _AGAIN,
        ),
    ),
    "slower-than-siblings": Entry(
        "is slower than its equals",
        _SLOW,
        Certainty.CONTRAST,
        "Slower than equal measurements of the same session by more than noise explains.",
        (
            _LOOK,
            _AGAIN,
        ),
    ),
    "slower-than-achievable": Entry(
        "is slower than the links allow",
        _SLOW,
        Certainty.MEASURED,
        "Less than what the links carry of data, by more than the policy's margin.",
        (
            "The library's settings and path: NCCL_DEBUG=INFO",
            "fabricheck expected {system}",
            _AGAIN,
        ),
    ),
    "setting-hurts": Entry(
        "costs performance",
        _SLOW,
        Certainty.MEASURED,
        "With this setting of the site's tuning measurements are slower than without it, interleaved in one job.",
        ("Remove it from the tuning profile, or measure it again: fabricheck run --system {system} --tag tuning",),
    ),
    "stalled": Entry(
        "stood still for seconds",
        _SLOW,
        Certainty.MEASURED,
        "An iteration or the set-up took seconds where the others took a fraction.",
        ("The kernel's log and link counters of {node} at that time",),
    ),
    "wrong-bytes": Entry(
        "Data arrived wrong",
        _BYTES,
        Certainty.MEASURED,
        "The data were compared on the receiving side, and are not what was sent in this iteration.",
        (
            "Take the node out before anything else: ci/drain.py",
            "ECC and link errors: fabricheck doctor --system {system}",
        ),
    ),
    "node-did-not-report": Entry(
        "did not report",
        _MISSING,
        Certainty.REPORTED,
        "The other nodes gave up waiting and reported that; no rank of this one did.",
        (
            "sinfo -R and the console of {node}",
            "Run again without it",
        ),
    ),
    "node-lost": Entry(
        "was lost by the scheduler during the job",
        _MISSING,
        Certainty.REPORTED,
        "The scheduler says so.",
        ("sinfo -R and the console of {node}",),
    ),
    "node-away": Entry(
        "takes no jobs",
        _MISSING,
        Certainty.REPORTED,
        "The scheduler has it down or drained, so it was not measured.",
        ("sinfo -R",),
    ),
    "node-did-not-start": Entry(
        "MPI does not start with it",
        _MISSING,
        Certainty.CONTRAST,
        "MPI does not start, twice, on groups of nodes with this one, and does without it.",
        (
            "Start one rank there by hand: srun -w {node} hostname",
            "ci/drain.py",
        ),
    ),
    "node-did-not-run": Entry(
        "left no valid result of its own",
        _MISSING,
        Certainty.MEASURED,
        "The program failed on this node alone, or its result is not valid; the other nodes have theirs.",
        (
            "rfm_job.err in the stage folder",
            "fabricheck doctor --system {system} on {node}",
        ),
    ),
    "nodes-not-checked": Entry(
        "Nodes were not checked",
        _MISSING,
        Certainty.CHECKED,
        "Nodes were asked for and nothing was measured on them.",
        ("Run again for these nodes: fabricheck run --system {system} --nodes LIST",),
    ),
    "gpu-missing": Entry(
        "GPUs are missing",
        _MISSING,
        Certainty.REPORTED,
        "Fewer GPUs answer than the topology has, or one is gone since the test began.",
        (
            "nvidia-smi -L, amd-smi list on {node}; then dmesg",
            "Reset the node",
        ),
    ),
    "nic-missing": Entry(
        "NIC ports are missing",
        _MISSING,
        Certainty.REPORTED,
        "Fewer ports are there than the topology has.",
        ("lspci and dmesg on {node}",),
    ),
    "unused-gpus": Entry(
        "GPUs were not measured",
        _MISSING,
        Certainty.TOLD,
        "No run drove as many GPUs as the topology has.",
        ("devices of the partition in site_configs/{system}/settings.py",),
    ),
    "unused-nodes": Entry(
        "Nodes of the network were not measured",
        _MISSING,
        Certainty.TOLD,
        "The network's description has nodes that no run was on.",
        ("fabricheck run --system {system} --nodes all",),
    ),
    "nodes-not-declared": Entry(
        "The scheduler has more nodes than are described",
        _MISSING,
        Certainty.TOLD,
        "Nodes of the partition stand in no description.",
        ("Set `nodes` in the partition's extras, or the network's in topology.yaml",),
    ),
    "path-forbidden": Entry(
        "took a path that the site forbids",
        _OTHER,
        Certainty.CHECKED,
        "The library's own log names a path that is forbidden here, or does not name the one that is required.",
        ("Which plugin did the library load? NCCL_DEBUG=INFO, module list",),
    ),
    "path-unproven": Entry(
        "Nothing proves which path the data took",
        _OTHER,
        Certainty.CHECKED,
        "The run has no footer, which holds the proof.",
        ("See what ended the run",),
    ),
    "wrong-network": Entry(
        "The data went over another network",
        _OTHER,
        Certainty.MEASURED,
        "The kernel counted a tenth of the data or more on an interface that is not one of the system's NICs.",
        ("NCCL_SOCKET_IFNAME, UCX_NET_DEVICES, btl_tcp_if_include of the tuning profile",),
    ),
    "wrong-ranks": Entry(
        "Other ranks, nodes or devices ran than were asked for",
        _OTHER,
        Certainty.CHECKED,
        "The header counts other ranks, hosts or devices than the check asked for.",
        ("The launcher's line in the job script, and the MPI library that was loaded",),
    ),
    "wrong-plan": Entry(
        "Another measurement ran than was asked for",
        _OTHER,
        Certainty.CHECKED,
        "The header's plan differs from the check's.",
        ("Was the result file changed, or left by another run?",),
    ),
    "wrong-library": Entry(
        "Another library was loaded",
        _OTHER,
        Certainty.CHECKED,
        "The header names another MPI library than the environment.",
        ("module list in the job script",),
    ),
    "setting-not-in-effect": Entry(
        "A setting was not in effect",
        _OTHER,
        Certainty.CHECKED,
        "A variable of the tuning profile had another value on some rank.",
        ("Does the launcher pass it on? srun --export, mpirun -x",),
    ),
    "not-verified": Entry(
        "The data were not verified",
        _OTHER,
        Certainty.CHECKED,
        "The run was asked not to compare its data, so its speed proves nothing.",
        ("Leave out --verify off",),
    ),
    "implausible-value": Entry(
        "is faster than the hardware can be, or no time at all",
        _OTHER,
        Certainty.MEASURED,
        "Above the ceiling of the model, zero, or not a number.",
        ("fabricheck expected {system}: is the topology that of this machine?",),
    ),
    "other-gpus": Entry(
        "Other GPUs than the site's files describe",
        _OTHER,
        Certainty.CHECKED,
        "The runtime reports another GPU model than the topology.",
        ("fabricheck init --system {system} on this node, or name the right system",),
    ),
    "result-damaged": Entry(
        "The result file is damaged",
        _OTHER,
        Certainty.CHECKED,
        "A line of it cannot be, or contradicts another.",
        ("Run it again; do not edit result files",),
    ),
    "output-damaged": Entry(
        "The tool's output is damaged",
        _OTHER,
        Certainty.CHECKED,
        "A line of the output cannot be read, or contradicts another.",
        ("Paste the whole output of the tool",),
    ),
    "stale-result": Entry(
        "The result is not of this job",
        _OTHER,
        Certainty.CHECKED,
        "It began before the job did, or the job's output names another run.",
        (
            "Remove the stage folder and run again",
            "Clocks: chronyc tracking",
        ),
    ),
    "same-result-twice": Entry(
        "One result was handed in twice",
        _OTHER,
        Certainty.CHECKED,
        "Two result files are of one run.",
        ("Remove the copy",),
    ),
    "not-comparable": Entry(
        "The runs cannot be compared",
        _OTHER,
        Certainty.CHECKED,
        "They differ in more than what is compared.",
        ("Run both in one job",),
    ),
    "other-nodes": Entry(
        "Measured on other nodes than its references",
        _OTHER,
        Certainty.TOLD,
        "The references were measured on other nodes, which stand for these.",
    ),
    "cables-swapped": Entry(
        "have each other's cables",
        _OTHER,
        Certainty.CONTRAST,
        "Both answer their own switch later than each other's, in a way that chance does not explain.",
        ("Compare LLDP or ibnetdiscover with the description",),
    ),
    "tools-disagree": Entry(
        "Two tools disagree",
        _OTHER,
        Certainty.MEASURED,
        "fabricbench and the vendor's tool differ by more than the check allows, interleaved in one job.",
        (_AGAIN,),
    ),
    "nic-association": Entry(
        "GPUs use other NICs than the topology says",
        _OTHER,
        Certainty.REPORTED,
        "The kernel's counters, or latencies, show another association of GPUs and NICs.",
        ("nvidia-smi topo -m, NCCL_IB_HCA, nic_association of topology.yaml",),
    ),
    "result-incomplete": Entry(
        "The result file ends early",
        _ENDED,
        Certainty.CHECKED,
        "It has no footer, or fewer rows than planned.",
        ("The benchmark's error output: rfm_job.err",),
    ),
    "metrics-missing": Entry(
        "Metrics are missing",
        _ENDED,
        Certainty.CHECKED,
        "The plan promises them and the result does not have them.",
        ("The benchmark's error output: rfm_job.err",),
    ),
    "benchmark-failed": Entry(
        "The benchmark failed",
        _ENDED,
        Certainty.REPORTED,
        "It ended with an error or another exit status than 0.",
        ("Its error output: rfm_job.err in the stage folder",),
    ),
    "rank-crashed": Entry(
        "A rank was ended by a signal",
        _ENDED,
        Certainty.REPORTED,
        "The benchmark or the launcher reports a signal.",
        (
            "dmesg of {node}: out of memory?",
            "Can that library take these buffers? ompi_info --parsable -a",
        ),
    ),
    "rank-hangs": Entry(
        "A rank did not arrive",
        _ENDED,
        Certainty.REPORTED,
        "No rank made progress for the time-out, and these had not arrived.",
        ("The stack of that rank (gdb -p, py-spy) and dmesg of its node",),
    ),
    "ended-after-measuring": Entry(
        "The job was ended after the last measurement",
        _ENDED,
        Certainty.REPORTED,
        "All was measured, and then the job or launcher was ended.",
        ("The scheduler's log",),
    ),
    "job-ended": Entry(
        "The job ended before all was measured",
        _ENDED,
        Certainty.REPORTED,
        "Its time was over, or it was cancelled.",
        ("fabricheck run --resume",),
    ),
    "run-interrupted": Entry(
        "The run was interrupted",
        _ENDED,
        Certainty.REPORTED,
        "A signal or a reboot ended it.",
        ("fabricheck run --resume",),
    ),
    "no-result": Entry(
        "A test left no result",
        _ENDED,
        Certainty.CHECKED,
        "It passed for ReFrame and left no file.",
        ("The stage folder that the report names",),
    ),
    "not-measured": Entry(
        "Something was not measured",
        _ENDED,
        Certainty.CHECKED,
        "A part of the test left no usable result.",
        ("The benchmark's error output",),
    ),
    "network-not-screened": Entry(
        "The network was not screened as a whole",
        _ENDED,
        Certainty.CHECKED,
        "A launch of the screen did not get to its end.",
        ("The benchmark's error output",),
    ),
    "test-failed": Entry(
        "A test did not pass",
        _ENDED,
        Certainty.REPORTED,
        "ReFrame reports it, with the reason.",
        ("The reason; then the stage folder that the report names",),
    ),
    "reframe-failed": Entry(
        "ReFrame failed",
        _ENDED,
        Certainty.REPORTED,
        "Its exit status is not 0 and no test explains that.",
        ("reframe.log in the run's folder",),
    ),
    "tests-missing": Entry(
        "Fewer tests ran than were selected",
        _ENDED,
        Certainty.CHECKED,
        "ReFrame's counts differ.",
        ("fabricheck run --system {system} --list",),
    ),
    "nothing-measured": Entry(
        "Nothing was measured",
        _ENDED,
        Certainty.CHECKED,
        "No test left a measurement.",
        ("fabricheck run --system {system} --list, and fabricheck validate {system}",),
    ),
    "no-baseline": Entry(
        "has no baseline",
        _ENDED,
        Certainty.CHECKED,
        "Neither model, part, published value, equals nor reference says what it should be.",
        ("fabricheck calibrate {system}, after a few healthy runs",),
    ),
    "gpu-in-use": Entry(
        "is in use by another process",
        _STATE,
        Certainty.REPORTED,
        "NVML or the driver lists a process that is not ours.",
        ("End it, or give the test nodes of its own",),
    ),
    "gpu-shared": Entry(
        "is shared or divided",
        _STATE,
        Certainty.REPORTED,
        "MIG or MPS is on.",
    ),
    "gpu-links-down": Entry(
        "has links that are down",
        _STATE,
        Certainty.REPORTED,
        "Fewer links are active than the topology has, or one went down during the test.",
        ("nvidia-smi nvlink -s -i N on {node}; the fabric manager's log",),
    ),
    "gpu-link-errors": Entry(
        "has errors on its links",
        _STATE,
        Certainty.REPORTED,
        "Replays, recoveries or CRC errors rose during the test (limits of NVIDIA DCGM).",
        ("nvidia-smi nvlink -e -i N on {node}",),
    ),
    "gpu-throttled": Entry(
        "was throttled",
        _STATE,
        Certainty.REPORTED,
        "The driver reports that the GPU protects itself from heat or power.",
        ("nvidia-smi -q -d PERFORMANCE,TEMPERATURE -i N on {node}: cooling and power",),
    ),
    "gpu-setting": Entry(
        "has its clocks or power limited",
        _STATE,
        Certainty.REPORTED,
        "The driver reports a limit that somebody set.",
        ("nvidia-smi -q -d CLOCK,POWER -i N on {node}",),
    ),
    "gpu-memory-errors": Entry(
        "has memory errors",
        _STATE,
        Certainty.REPORTED,
        "ECC counters or row remapping, as the driver reports them.",
        ("Drain {node} and reset the GPU: nvidia-smi --gpu-reset",),
    ),
    "gpu-xid": Entry(
        "The driver reported an XID error",
        _STATE,
        Certainty.REPORTED,
        "The kernel's log has it.",
        ("The number in NVIDIA's XID list, and the lines around it in dmesg of {node}",),
    ),
    "gpu-order": Entry(
        "numbers its GPUs otherwise",
        _STATE,
        Certainty.REPORTED,
        "CUDA and NVML, or two nodes, number the same GPUs differently.",
        ("CUDA_DEVICE_ORDER=PCI_BUS_ID, and the same driver on all nodes",),
    ),
    "pcie-reduced": Entry(
        "PCIe runs below its rate or width",
        _STATE,
        Certainty.REPORTED,
        "The link is narrower than card and slot can, or slower under load.",
        ("Reseat the card or riser; lspci -vvs ADDRESS on {node}",),
    ),
    "pcie-errors": Entry(
        "has PCIe replays",
        _STATE,
        Certainty.REPORTED,
        "More than 8 a minute (NVIDIA DCGM).",
        ("Reseat the card or its riser",),
    ),
    "nic-down": Entry(
        "is down",
        _STATE,
        Certainty.REPORTED,
        "The port has no link.",
        ("The cable, the transceiver and the switch's port",),
    ),
    "nic-slow": Entry(
        "runs below its rate",
        _STATE,
        Certainty.REPORTED,
        "The port's link has another rate than the topology, or is half duplex.",
        ("The cable, the transceiver and the switch's port",),
    ),
    "nic-errors": Entry(
        "has link errors",
        _STATE,
        Certainty.REPORTED,
        "Counters that stand still on a healthy cable rose during the test.",
        ("The cable, the transceiver and the switch's port",),
    ),
    "nic-drops": Entry(
        "drops packets",
        _STATE,
        Certainty.REPORTED,
        "More than a thousandth of its packets were dropped.",
        ("Ring buffers, flow control and the switch's counters",),
    ),
    "congestion": Entry(
        "saw congestion",
        _STATE,
        Certainty.REPORTED,
        "Waits, pauses or congestion notifications rose during the test; that alone is no fault.",
    ),
    "packets-lost": Entry(
        "loses packets",
        _STATE,
        Certainty.CONTRAST,
        "TCP's own counters on this node are far above those of the others.",
        ("Cable and counters of its ports, and of the switch's ports to it",),
    ),
    "packets-too-large": Entry(
        "Large packets do not get through",
        _STATE,
        Certainty.MEASURED,
        "Packets of the ports' MTU are lost on the way, and smaller ones are not.",
        ("The MTU of the switches' ports on the way",),
    ),
    "acs-on": Entry(
        "has PCIe ACS on, which sends peer traffic through the CPU",
        _STATE,
        Certainty.REPORTED,
        "A bridge above a GPU or NIC redirects requests or completions (ACSCtl, ReqRedir or CmpltRedir).",
        ("Switch ACS off in the firmware of {node}, or setpci -s BRIDGE ECAP_ACS+0x6.w=0000",),
    ),
    "iommu-on": Entry(
        "has an IOMMU that translates addresses",
        _STATE,
        Certainty.REPORTED,
        "The kernel's IOMMU groups are of a translating type.",
        ("iommu=pt on the kernel's command line of {node}",),
    ),
    "relaxed-ordering-off": Entry(
        "has PCIe relaxed ordering off",
        _STATE,
        Certainty.REPORTED,
        "A GPU or NIC has the bit off in its device control register.",
        ("Switch it on in the firmware of {node}",),
    ),
    "no-peer-memory": Entry(
        "cannot give NICs device memory",
        _STATE,
        Certainty.REPORTED,
        "No module for peer memory is loaded, and the driver gives no DMA-BUF.",
        ("modprobe nvidia_peermem on {node}, or the driver's open kernel module",),
    ),
    "numa-balancing-on": Entry(
        "has NUMA balancing on",
        _STATE,
        Certainty.REPORTED,
        "kernel.numa_balancing is not 0.",
        ("sysctl kernel.numa_balancing=0 on {node}",),
    ),
    "memlock-limited": Entry(
        "limits locked memory",
        _STATE,
        Certainty.REPORTED,
        "RLIMIT_MEMLOCK of a job is not unlimited, where there are RDMA ports.",
        ("LimitMEMLOCK=infinity of slurmd on {node}, or --ulimit memlock=-1",),
    ),
    "shm-small": Entry(
        "has a small /dev/shm",
        _STATE,
        Certainty.REPORTED,
        "/dev/shm has less than 1 GiB.",
        ("--shm-size=1g of the container on {node}",),
    ),
    "imex-off": Entry(
        "has no IMEX channel",
        _STATE,
        Certainty.REPORTED,
        "GPUs are of an NVLink domain of several nodes, and no channel of IMEX is there.",
        ("systemctl status nvidia-imex on {node}",),
    ),
    "fabric-not-ready": Entry(
        "is not in the NVLink fabric",
        _STATE,
        Certainty.REPORTED,
        "NVML's fabric state is not completed without error.",
        ("systemctl status nvidia-fabricmanager on {node}; nvidia-smi -q: Fabric",),
    ),
    "nvswitch-error": Entry(
        "An NVSwitch reported an error",
        _STATE,
        Certainty.REPORTED,
        "The kernel's log has an SXid.",
        ("The number in the Fabric Manager User Guide, and dmesg of {node}",),
    ),
    "gpu-reset": Entry(
        "The driver reset a GPU",
        _STATE,
        Certainty.REPORTED,
        "The kernel's log has it.",
        ("dmesg of {node}; drain it where it comes back",),
    ),
    "nic-flaps": Entry(
        "had a link that went down",
        _STATE,
        Certainty.REPORTED,
        "The kernel's log has it.",
        ("Cable and transceiver of the port on {node}: mlxlink, ethtool -m",),
    ),
    "nodes-differ": Entry(
        "is set otherwise than the other nodes",
        _STATE,
        Certainty.REPORTED,
        "A version, setting or limit differs between nodes of one kind.",
        ("Set all nodes of a partition alike",),
    ),
    "clock-off": Entry(
        "Its clock is wrong",
        _STATE,
        Certainty.REPORTED,
        "Its time differs from the other nodes' or the check's.",
        ("chronyc tracking, or timedatectl",),
    ),
    "node-busy": Entry(
        "Others use its processors",
        _STATE,
        Certainty.REPORTED,
        "Half of its cores were busy before the test began.",
        ("Run again when the node is idle",),
    ),
    "memory-low": Entry(
        "has little free memory",
        _STATE,
        Certainty.REPORTED,
        "Less than a tenth is free.",
        ("What holds it: ps, /dev/shm, the page cache",),
    ),
    "state-unknown": Entry(
        "could not be asked for its state",
        _STATE,
        Certainty.REPORTED,
        "A tool is missing or failed, so faults that it would report are not seen.",
        ("node-state/ of the test",),
    ),
    "cannot-be-judged": Entry(
        "cannot be judged",
        _SITE,
        Certainty.CHECKED,
        "The run is on nodes or devices that the site's files do not have, or they are wrong.",
        ("fabricheck validate {system}",),
    ),
    "check-missing": Entry(
        "A check is missing",
        _SITE,
        Certainty.CHECKED,
        "The references name a test that no check file has.",
        ("Is a file missing in checks/?",),
    ),
    "other-tool": Entry(
        "The output is another tool's",
        _OTHER,
        Certainty.CHECKED,
        "The text is what a tool prints that is known by name and is not read here.",
        ("fabricheck run --system {system}: the suite measures the same paths itself",),
    ),
    "not-judged-by-hand": Entry(
        "cannot be judged by itself",
        _SITE,
        Certainty.CHECKED,
        "The output does not say all that a judgement needs.",
        ("Run the same from the suite: docs/vendor-suites.md",),
    ),
    "does-not-apply": Entry(
        "does not apply here",
        _TOLD,
        Certainty.TOLD,
        "The site's own description leaves nothing to measure.",
    ),
    "is-supported": Entry(
        "is supported, although the site says it is not",
        _TOLD,
        Certainty.TOLD,
        "A test ran that the site declares unsupported.",
        ("Take it out of `unsupported` of the partition",),
    ),
    "launched-again": Entry(
        "was launched again",
        _TOLD,
        Certainty.TOLD,
        "It was DEGRADED at first; the launches decide together.",
    ),
    "launches-ended": Entry(
        "Relaunches were ended early",
        _TOLD,
        Certainty.TOLD,
        "A signal ended them; what was found until then stands.",
    ),
    "taken-over": Entry(
        "Results were taken over from an earlier run",
        _TOLD,
        Certainty.TOLD,
        "The run resumes another.",
    ),
    "cleared": Entry(
        "looked slow and is healthy with good partners",
        _TOLD,
        Certainty.TOLD,
        "Measured again with partners that are known to be good.",
    ),
    "pairs-do-not-tell": Entry(
        "The pairs do not tell which part is slow",
        _TOLD,
        Certainty.TOLD,
        "They are too few, or all cross the same.",
    ),
    "setting-effect": Entry(
        "Effect of a setting",
        _TOLD,
        Certainty.TOLD,
        "Measured interleaved in one job.",
    ),
    "shortened": Entry(
        "Measured less than its test asks for",
        _TOLD,
        Certainty.TOLD,
        "To end in time.",
    ),
    "affinity": Entry(
        "Ranks ran on another NUMA node than their GPU",
        _TOLD,
        Certainty.TOLD,
        "As the header reports.",
        ("The launcher's binding: --cpu-bind, --map-by",),
    ),
    "distances": Entry(
        "Effect of the distance between nodes",
        _TOLD,
        Certainty.TOLD,
        "Medians by how many switches lie between.",
    ),
    "scaling": Entry(
        "How a collective scales",
        _TOLD,
        Certainty.TOLD,
        "By the number of ranks.",
    ),
    "crossover": Entry(
        "Which library is faster from which size on",
        _TOLD,
        Certainty.TOLD,
        "*CCL and MPI on the same ranks.",
    ),
    "slowdown": Entry(
        "Slowdown under competing traffic",
        _TOLD,
        Certainty.TOLD,
        "The victim alone and beside the aggressors.",
    ),
    "observation": Entry(
        "Observation",
        _TOLD,
        Certainty.TOLD,
        "A hypothesis of the literature, tested on this session.",
    ),
    "recorded": Entry(
        "Found by an earlier version of Fabricheck",
        _TOLD,
        Certainty.CHECKED,
        "Stored before findings had codes.",
    ),
}

_OF_KIND = {
    Kind.NODE: "slow-node",
    Kind.GPU: "slow-gpu",
    Kind.NIC: "slow-nic",
    Kind.LINK: "slow-link",
    Kind.PATH: "slow-pair",
    Kind.SWITCH: "slow-switch",
    **dict.fromkeys((each for each in Kind if each.is_software), "slow-library"),
}


def code_of_slow(components: Iterable[Component]) -> str:
    """The code of something slow, by the kind of the components that explain it: `slow-part` where they are several.

    A link that cannot be told from the part at its end is a link of that part.
    """
    components = tuple(components)
    parts = [each for each in components if each.kind is not Kind.LINK]
    own = {(each.node, each.name) for each in parts}
    with_links = all(not own.isdisjoint((end.node, end.name) for end in each.ends) for each in components)
    kinds = {each.kind for each in (parts if parts and with_links else components)}
    return _OF_KIND.get(kinds.pop(), "slow-part") if len(kinds) == 1 else "slow-part"
