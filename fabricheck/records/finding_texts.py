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

    MEASURED = "measured (the figures are the evidence)"
    CONTRAST = "by comparison (with its peers, or with other software)"
    REPORTED = "reported (by the node, its driver or the library itself)"
    CHECKED = "checked (the result contradicts the request or the site's files)"
    TOLD = "information (it changes no verdict)"


@dataclass(frozen=True)
class CatalogueEntry:
    """One kind of finding.

    `sentence`: what is wrong. Where the entry has a `subject`, it follows the name of the component, or the subject
    where a finding names none; else it stands by itself, after the component and a colon. `symptom`: the heading under
    which the guide has it; `decides`: what has to be true for it; `steps`: what to do, the first first, with commands
    between backticks. `{node}`, `{nodes}`, `{part}`, `{gpu}` (its PCI address), `{system}`, `{file}`, `{run}` (its
    folder) and `{test}` in a step are those of the finding; `{state}` and `{counters}` what shows those of its port.
    """

    sentence: str
    symptom: str
    certainty: Certainty
    decides: str
    steps: tuple[str, ...] = ()
    subject: str = ""

    @property
    def alone(self) -> str:
        """The sentence of a finding that names no component."""
        return f"{self.subject} {self.sentence}".lstrip()


SLOW, _BYTES, _MISSING, _OTHER, _ENDED, _STATE, _SITE, _TOLD = SYMPTOMS = (
    "Something is slow",
    "Wrong bytes",
    "A node, GPU or NIC is missing",
    "Something else was measured",
    "A run ended early",
    "A node reports a fault",
    "The site's files or the selection are wrong",
    "Information that changes no verdict",
)
_MEASURED, _CONTRAST, _REPORTED, _CHECKED = (
    Certainty.MEASURED, Certainty.CONTRAST, Certainty.REPORTED, Certainty.CHECKED
)  # fmt: skip
_INFO = Certainty.TOLD

# Steps of several entries.
_DOCTOR = "On {node}: `fabricheck doctor --system {system}`"
_LOOK = "Check clocks and power: `nvidia-smi -q -i {gpu} -d PERFORMANCE,POWER` (AMD: `amd-smi metric -g {gpu}`)"
_NVLINK = "On {node}: `nvidia-smi nvlink -e -i {gpu}`"
_XGMI = "AMD: `amd-smi metric -x -g {gpu}`"
_STATE_OF_LINKS = "Check the state of its links on {node}: `nvidia-smi nvlink -s -i {gpu}` (AMD: `amd-smi xgmi`)"
_HEAT = "On {node}: `nvidia-smi -q -i {gpu} -d PERFORMANCE,TEMPERATURE,POWER`; check cooling and power"
_HEAT_OF_AMD = "AMD: `amd-smi metric -g {gpu}`"
_RESET = "Drain {node} and reset the GPU: `nvidia-smi --gpu-reset -i {gpu}`"
_ROWS = "See its errors: `nvidia-smi -q -i {gpu} -d ECC,ROW_REMAPPER`"
_AGAIN = "Run the same test again: `fabricheck run --system {system} --name {test}`"
_SINCE = "Since when? `fabricheck watch --system {system}`"
_EXPECTED = "Read `fabricheck expected --system {system}`"
_DRAIN = "Drain {node}, and run again without it: `python ci/drain.py {run}/verdict.json --system {system}`"
_BUNDLE = "Pack verdict, raw results, state and logs for the vendor: `fabricheck bundle {run} --hide-names`"
_SINFO = "Read the reason: `sinfo -R` (PBS: `pbsnodes -l`); then the console of {node}"
_STDERR = "Read rfm_job.err, the error output, in the stage folder"
_LIST = "List the tests that should run: `fabricheck run --system {system} --list`"
_CABLE = "Reseat or replace cable and transceiver; check the port of the switch, too"
_DMESG = "Read the kernel's log of {node} at that time: `dmesg -T`"
_GPU_AWARE = "Is the MPI library GPU-aware? `ompi_info --parsable -a | grep cuda_support`"
_RESUME = "Resume it: `fabricheck run --system {system} --resume`"

# Four or five lines an entry, which a formatter would make nine.
# fmt: off
#: By code. A code is never given another meaning: monitoring and stored sessions refer to it.
CATALOGUE: Mapping[str, CatalogueEntry] = {
    "slow-node": CatalogueEntry("is slower than its peers", SLOW, _CONTRAST,
        "Results of this node are slower than those of its peers by more than noise. No single part of the node "
        "explains it.",
        ("On {node} (`ssh` or `srun -w`) and on a good node: `fabricheck doctor --system {system}`", _AGAIN,
         _DRAIN, _BUNDLE), "A node"),
    "slow-gpu": CatalogueEntry("is slower than its peers", SLOW, _CONTRAST,
        "All measurements that use this GPU are slower than peers that do not use it.",
        (_NVLINK, _XGMI, _STATE_OF_LINKS, _DOCTOR, _AGAIN,
         "Reset or reseat it; then drain the node, and call the vendor", _BUNDLE), "A GPU"),
    "slow-nic": CatalogueEntry("is slower than its peers", SLOW, _CONTRAST,
        "All measurements over this NIC port are slower than peers over other ports.",
        ("Its counters, on {node}: `{counters}`", _CABLE, _AGAIN,
         _BUNDLE), "A NIC port"),
    "slow-link": CatalogueEntry("is slower than its peers", SLOW, _CONTRAST,
        "All measurements that cross this link are slower than peers that do not. Both of its ends are fast over "
        "other links.",
        ("Errors at both ends: `nvidia-smi nvlink -e`, `ethtool -S PORT`",
         "Check the state at both ends: `nvidia-smi nvlink -s`, `amd-smi xgmi`, `ibqueryerrors`", _AGAIN,
         _BUNDLE), "A link"),
    "slow-pair": CatalogueEntry("is slow (an end or path)", SLOW, _CONTRAST,
        "The pair is slow, and both ends are fast with other partners. Or there is only this pair, and software can be "
        "the cause.",
        ("Do not drain yet: measure each end with a third partner",
         "Measure both with other nodes: `fabricheck run --system {system} --tag smoke --nodes all`",
         _AGAIN), "A pair"),
    "slow-switch": CatalogueEntry("is slower than its peers", SLOW, _CONTRAST,
        "All pairs through this switch are slower than peers that avoid it.",
        ("Read the switch's console: port counters, temperature, firmware",
         "`ibqueryerrors` or the fabric manager's log, before you replace a cable", _AGAIN), "A switch"),
    "slow-part": CatalogueEntry("is slower than its peers", SLOW, _CONTRAST,
        "Several components are common to the slow measurements. The results do not show which of them is at fault.",
        ("Do not drain yet: measure one of the parts with other partners", _AGAIN), "A part"),
    "slow-library": CatalogueEntry("is slow, and the hardware is fast", SLOW, _CONTRAST,
        "All results with this software are slower than before, or than the links carry. Other software is fast there, "
        "such as libfabric alone.",
        (_SINCE, "Run the earlier version on the same nodes: does the loss go away?",
         "Look at its settings. MPI: transport and GPU memory (`UCX_LOG_LEVEL=info`). NCCL: plugin, GDR level and "
         "channels (`NCCL_DEBUG=INFO`)",
         "Does the tuning help? `fabricheck upgrade --help`"), "A library or a setting"),
    "all-slow": CatalogueEntry("All peers are equally slow (software or a setting)", SLOW, _MEASURED,
        "All that was measured lost nearly the same share, so no part of a node explains it.",
        (_SINCE,
         "Check modules, driver, MPI and NCCL or RCCL. Does the tuning still help? `fabricheck upgrade "
         "--help`")),
    "no-healthy-majority": CatalogueEntry("More than half of the peers are slow", SLOW, _MEASURED,
        "Most peers are below the link rate. So the link rate is the baseline here, not the peers.",
        ("Look up what the links carry: `fabricheck expected --system {system}`", _SINCE)),
    "slow-now-and-then": CatalogueEntry("is slow now and then", SLOW, _CONTRAST,
        "The slowest 5% of its iterations are slower, compared with its median, than those of its peers.",
        (_DOCTOR, _DMESG, _AGAIN), "A part"),
    "slow-at-first": CatalogueEntry("was slow at first", SLOW, _CONTRAST,
        "Its first iterations took at least 1.5 times the median and cost 0.2 s or more. Those of most peers did "
        "not.",
        (_DOCTOR, "Check power saving, the state of its links, and what ran before", _AGAIN), "A part"),
    "intermittent": CatalogueEntry("was slow in one launch and not in the next", SLOW, _MEASURED,
        "One launch was slower than noise explains. Another launch on the same nodes was not. A flapping cable or "
        "transceiver often causes this.",
        (_DMESG, "Has it happened before? `fabricheck watch --system {system}`",
         _CABLE), "A part"),
    "below-floor": CatalogueEntry("is below the minimum", SLOW, _MEASURED,
        "The goodput is below the minimum (a share of the link rate in config/policy.yaml) or the latency above its "
        "limit.",
        (_EXPECTED,
         "See the map of the report. Slow row and column: a GPU. One slow cell: a link. All slow: a setting",
         _AGAIN), "A metric"),
    "slower-than-before": CatalogueEntry("is slower than before", SLOW, _MEASURED,
        "It is worse than in earlier sessions by more than their variation. No other metric became slower.",
        (_SINCE, _AGAIN), "A metric"),
    "slower-than-reference": CatalogueEntry("is slower than its reference", SLOW, _MEASURED,
        "It is worse than its reference bound by more than noise; or many metrics of one part are slightly worse "
        "together.",
        (_SINCE, _AGAIN), "A metric"),
    "slower-than-part": CatalogueEntry("is slower than on other machines", SLOW, _MEASURED,
        "It is below the value of the same GPU or NIC model on other machines, by more than the bound of that value.",
        (_DOCTOR, _AGAIN), "A metric"),
    "slower-than-published": CatalogueEntry("is slower than published values", SLOW, _MEASURED,
        "It is below what a paper measured on such a system, or below the alert limit of an owner of equal machines.",
        (_EXPECTED, "Compare your conditions with those of that value, in the report", _AGAIN), "A metric"),
    "under-alarm": CatalogueEntry("is below the alert limit of another site", SLOW, _MEASURED,
        "The owner of an equal system, or of the same GPU model, raises an alert at this value.",
        ("Compare your conditions with those in the report", _EXPECTED, _AGAIN), "A node"),
    "nvls-not-used": CatalogueEntry("does not use NVLink SHARP (NVLS)", SLOW, _MEASURED,
        "The NVSwitches of the node support NVLink SHARP, and no variable switches it off. But an allreduce inside the "
        "node is no faster than without it.",
        ("On {node}: `systemctl status nvidia-fabricmanager`", "On {node}: `nvidia-smi -q | grep -A 3 Fabric`",
         "Is NVLS multicast support available? `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NVLS`",
         "In a virtual machine: does the host pass multicast on?"), "A node"),
    "slower-than-siblings": CatalogueEntry("is slower than its peers", SLOW, _CONTRAST,
        "It is slower than its peers in the same session by more than noise.",
        (_DOCTOR, _LOOK, _AGAIN), "A metric"),
    "slower-than-achievable": CatalogueEntry("is slower than the links allow", SLOW, _MEASURED,
        "It is below the payload rate of the links by more than the margin of config/policy.yaml.",
        (_EXPECTED, "With NCCL or MPI, read in its log which path it took: `NCCL_DEBUG=INFO`, `UCX_LOG_LEVEL=info`",
         _AGAIN), "A metric"),
    "drifts": CatalogueEntry("became slower under load", SLOW, _MEASURED,
        "In the last quarter of a burn-in the rate is below that of the first quarter, by more than equal parts differ "
        "and by more than noise.",
        ("See clocks, power and temperature over time in the report", _LOOK, _DOCTOR, _AGAIN), "A part"),
    "straggler": CatalogueEntry("holds up the other ranks", SLOW, _MEASURED,
        "After computing as much as the others it comes later to a ring or an allreduce, by more than the alert limit "
        "of an owner of such machines.",
        ("Other processes on it? `nvidia-smi -i {gpu}`, `top -b -n 1` on {node}", _LOOK, _AGAIN), "A part"),
    "no-overlap": CatalogueEntry("All at once is slower than in turns", SLOW, _MEASURED,
        "The shares of their speed alone that products, traffic and copies keep beside each other add up to less than "
        "100%: in turns they would be faster.",
        ("Unset CUDA_LAUNCH_BLOCKING, and use no profiler", _DOCTOR, _AGAIN)),
    "stalled": CatalogueEntry("made no progress for seconds", SLOW, _MEASURED,
        "One iteration took seconds. The others took a fraction of that.",
        (_DMESG, _DOCTOR), "A part"),
    "pausing-node": CatalogueEntry("pauses now and then", _STATE, _MEASURED,
        "Its ranks did not run for 1% of the time, in pauses of 50 ms or more, or a CPU quota stopped them.",
        ("Look for stopped processes on {node}: `ps -eo stat,pid,args`",
         "Look for CPU quotas: `grep -r throttled_usec /sys/fs/cgroup --include=cpu.stat`",
         "Look for what else runs there: `top -b -n 1`"), "A node"),
    "wrong-bytes": CatalogueEntry("delivered wrong bytes", _BYTES, _MEASURED,
        "The received data differ from the data sent in this iteration. Hardware or a library corrupts data.",
        ("Drain it: `python ci/drain.py {run}/verdict.json --system {system}`",
         "Run the same test over another transport and library: if only one corrupts data, that library is at fault",
         _DOCTOR, _BUNDLE), "A transfer"),
    "wrong-arithmetic": CatalogueEntry("computes wrong results", _BYTES, _MEASURED,
        "The same product of matrices is not always the same to the bit, or the first one is wrong by whole-number "
        "arithmetic on the processor.",
        ("Drain it: `python ci/drain.py {run}/verdict.json --system {system}`",
         "On {node}: `nvidia-smi -q -i {gpu} -d ECC,ROW_REMAPPER`; then `dcgmi diag -r 4` (AMD: `rvs`)",
         _BUNDLE), "A GPU"),
    "node-did-not-report": CatalogueEntry("did not report", _MISSING, _REPORTED,
        "No rank of this node reported, and the other nodes gave up waiting. It hangs, was killed, or is down.",
        (_SINFO, _DRAIN), "A node"),
    "node-lost": CatalogueEntry("was lost by the scheduler during the job", _MISSING, _REPORTED,
        "The scheduler marked the node as down or failed while the job ran.",
        (_SINFO, _DRAIN), "A node"),
    "node-away": CatalogueEntry("is down or drained", _MISSING, _REPORTED,
        "The scheduler lists the node as down or drained, so it was not measured.",
        (_SINFO,), "A node"),
    "node-did-not-start": CatalogueEntry("does not start MPI", _MISSING, _CONTRAST,
        "MPI failed twice to start on groups of nodes with this node. It starts without this node.",
        ("Start one process there by hand: `srun -w {node} hostname`; then its links to the others", _DRAIN), "A node"),
    "start-failed": CatalogueEntry("failed, as scheduler, launcher or MPI report", _MISSING, _REPORTED,
        "Their output tells what failed before a result was complete, and on which node if they know it.",
        ("Start one process there by hand: `srun -w {node} hostname`; then `fabricheck doctor --system {system}`",
         _STDERR, _DRAIN), "A node"),
    "no-connection": CatalogueEntry("have no connection", _MISSING, _REPORTED,
        "MPI, a library or the probe before a test could not connect two nodes: route, address, firewall or cable. "
        "Either end may be at fault.",
        ("On both nodes: `ip route get ADDRESS`, `ip addr`, and the interfaces that MPI and the library use",
         _STDERR, _AGAIN), "Two nodes"),
    "same-identity": CatalogueEntry("has the name or address of another", _OTHER, _CHECKED,
        "Nodes of a job have one host name, or ports of several nodes one IP address. Data may have gone to another.",
        ("On each node: `hostname`, and `ip -4 address`; correct the one that is wrong", _AGAIN), "A node"),
    "node-did-not-run": CatalogueEntry("has no valid result", _MISSING, _MEASURED,
        "The program failed on this node only, or its result is not valid. The other nodes have results.",
        (_STDERR, _DOCTOR, _DRAIN), "A node"),
    "nodes-not-checked": CatalogueEntry("Nodes were not checked", _MISSING, _CHECKED,
        "These nodes were requested, but no measurement ran on them.",
        ("Run again for these nodes: `fabricheck run --system {system} --tag smoke --nodes {nodes}`", _SINFO)),
    "gpu-missing": CatalogueEntry("A GPU is missing", _MISSING, _MEASURED,
        "Fewer GPUs respond than the topology has, or a GPU disappeared during the test.",
        ("On {node}: `nvidia-smi -L` or `amd-smi list`; then look for `fallen off the bus` in `dmesg -T`",
         "Did the scheduler give the job all GPUs? Check the job script and CUDA_VISIBLE_DEVICES",
         "Reset or drain the node")),
    "nic-missing": CatalogueEntry("A NIC port is missing", _MISSING, _MEASURED,
        "The node has fewer NIC ports than the topology.",
        ("On {node}: `lspci -nn`, `ip -br link`, `dmesg -T`",)),
    "path-forbidden": CatalogueEntry("The data took a path that the site forbids", _OTHER, _CHECKED,
        "The library's log names a forbidden path, or does not name the required path. Usual causes: the library found "
        "no plugin, or an interface was renamed.",
        ("Which plugin was loaded? `NCCL_DEBUG=INFO`, `module list`; of libfabric: `fi_info`",
         "Which paths did it try? `UCX_LOG_LEVEL=info`, `FI_LOG_LEVEL=info`",
         "Was the interface renamed? `ip -br link`, NCCL_SOCKET_IFNAME, UCX_NET_DEVICES")),
    "path-unproven": CatalogueEntry("The path of the data is not proven", _OTHER, _CHECKED,
        "The result file ends without its last line (footer), which has the path. Or the site requires a path, and no "
        "library reported one.",
        (_STDERR, "Set `mpi` in `extras` of the environment in settings.py: the log is read by it")),
    "wrong-network": CatalogueEntry("The data went over another network", _OTHER, _MEASURED,
        "The kernel counted at least a tenth of the data on an interface that is not a NIC of the system.",
        ("Was the interface renamed? `ip -br link`",
         "Check NCCL_SOCKET_IFNAME, UCX_NET_DEVICES and btl_tcp_if_include in config/tuning.yaml")),
    "wrong-ranks": CatalogueEntry("Other ranks, nodes or devices ran than the check requires", _OTHER, _CHECKED,
        "The header of the result has other ranks, hosts or devices than the check requires.",
        ("Read the launcher's line: rfm_job.sh in the stage folder", "Which MPI library was loaded? `module list`",
         "Did the scheduler give the job all GPUs? `nvidia-smi -L` or `amd-smi list` on {node}")),
    "wrong-plan": CatalogueEntry("Another measurement ran than the check requires", _OTHER, _CHECKED,
        "The plan in the header differs from the plan of the check: the file was changed, or is from an earlier run.",
        ("Remove the stage folder, and run again",)),
    "wrong-library": CatalogueEntry("Another MPI library was loaded", _OTHER, _CHECKED,
        "The header names another MPI library than the environment of the check.",
        ("Compare `module list` in the job with the environment's modules in site_configs/{system}/settings.py",)),
    "setting-not-in-effect": CatalogueEntry("A setting was not in effect", _OTHER, _CHECKED,
        "On some rank a variable of the tuning profile had another value, or was unset.",
        ("Does the launcher pass it on? `srun --export=ALL`, `mpirun -x NAME`",
         "Is its name right in config/tuning.yaml?")),
    "not-verified": CatalogueEntry("The data were not verified", _OTHER, _CHECKED,
        "The run did not verify its data, so its speed proves nothing.",
        ("Run without `--verify off`",)),
    "wrong-clock": CatalogueEntry("A clock is wrong", _OTHER, _MEASURED,
        "A clock of a rank ran more than 0.5% faster or slower than the kernel's, the processor's or that of others.",
        ("Which clock is in use? `cat /sys/devices/system/clocksource/clocksource0/current_clocksource` on {node}",
         "Is a library loaded that changes the time (LD_PRELOAD)?")),
    "implausible-value": CatalogueEntry("is faster than the hardware can be, or zero", _OTHER, _MEASURED,
        "The value is above the ceiling of the model, zero, or not a number. Something else was measured, or "
        "topology.yaml is wrong.",
        (_EXPECTED,), "A metric"),
    "other-gpus": CatalogueEntry("has other GPUs than the site's files describe", _OTHER, _CHECKED,
        "The runtime reports another GPU model than the topology.",
        ("Is --system that of this machine? `fabricheck validate --system {system}`",
         "Describe this machine under a name of its own: `fabricheck init --help`"), "A node"),
    "result-damaged": CatalogueEntry("The result file is damaged", _OTHER, _CHECKED,
        "A line of the file is impossible, or contradicts another line.",
        ("Run the test again, and do not edit result files: `fabricheck run --system {system} --name {test}`",)),
    "output-damaged": CatalogueEntry("The tool's output is damaged", _OTHER, _CHECKED,
        "A line of the output cannot be read, or contradicts another line.",
        ("Give the whole output, as the tool printed it: `fabricheck judge {file}`",)),
    "stale-result": CatalogueEntry("The result is not of this job", _OTHER, _CHECKED,
        "The run began before its job, or the job's output names another run.",
        ("Remove the stage folder and run again", "Is a clock wrong? `chronyc tracking` on {node}")),
    "same-result-twice": CatalogueEntry("One result was given twice", _OTHER, _CHECKED,
        "Two result files are of the same run.",
        ("Remove the copy",)),
    "not-comparable": CatalogueEntry("The runs cannot be compared", _OTHER, _CHECKED,
        "The runs differ in more than the one condition that you compare.",
        ("Run both in one job, with the same nodes and settings",)),
    "other-nodes": CatalogueEntry("Other nodes were measured than those of the references", _OTHER, _INFO,
        "The references were measured on other nodes of the system.",
        ("Run it here 8 times, then `fabricheck calibrate --system {system} --write`",)),
    "tools-disagree": CatalogueEntry("Two tools disagree", _OTHER, _MEASURED,
        "fabricbench and the vendor's tool differ by more than the check allows, interleaved in one job.",
        (_AGAIN,)),
    "nic-association": CatalogueEntry("GPUs use other NICs than in the topology", _OTHER, _REPORTED,
        "The kernel's counters, libfabric or latencies show that GPUs use other NICs than topology.yaml says.",
        ("On {node}: `nvidia-smi topo -m`; then check NCCL_IB_HCA and `nic_association`",)),
    "result-incomplete": CatalogueEntry("The result file ends early", _ENDED, _CHECKED,
        "It has no footer, or fewer rows than planned.",
        (_STDERR, _AGAIN)),
    "metrics-missing": CatalogueEntry("Metrics are missing", _ENDED, _CHECKED,
        "The plan has these metrics, and the result does not.",
        (_STDERR, _AGAIN)),
    "benchmark-failed": CatalogueEntry("The benchmark failed", _ENDED, _REPORTED,
        "It ended with an error, or its exit status is not 0.",
        (_STDERR, _GPU_AWARE)),
    "rank-crashed": CatalogueEntry("A signal ended a rank", _ENDED, _REPORTED,
        "The benchmark or the launcher reports a signal. Signal 11 with device memory: usually, the MPI library is not "
        "GPU-aware.",
        (_GPU_AWARE, "Was it out of memory? `dmesg -T` on {node}; then rfm_job.err in the stage folder")),
    "out-of-memory": CatalogueEntry("The kernel ended a process that was out of memory", _ENDED, _REPORTED,
        "The kernel's log reports it during the test: the limit of the job's cgroup, or the node's memory.",
        ("Ask for the whole memory of the node: `--mem=0` in `access` of the partition",
         "Measure smaller sizes: `most_bytes` in `extras` of the partition")),
    "task-blocked": CatalogueEntry("has a process that hangs in the kernel", _ENDED, _REPORTED,
        "The kernel's log reports a task that is blocked, or a processor that is stuck.",
        (_DMESG, "The stack in the log names the driver or the file system"), "A node"),
    "rank-hangs": CatalogueEntry("A rank hangs", _ENDED, _REPORTED,
        "These ranks made no progress until the time-out. NCCL's report on dead processes (RAS) is in the result's "
        "last line (`library`).",
        ("On its node: `dmesg -T`, and the stack of the process: `gdb -p PID`, `py-spy dump --pid PID`",
         "If only large messages hang, look for the finding packets-too-large: a port has a smaller MTU")),
    "ended-after-measuring": CatalogueEntry("The job was ended after the last measurement", _ENDED, _REPORTED,
        "Everything was measured. Then the job or the launcher was ended.",
        ("Read the scheduler's log of the job: `sacct -j ID`",)),
    "job-ended": CatalogueEntry("The job ended before all was measured", _ENDED, _REPORTED,
        "It reached its time limit or was cancelled.",
        (_RESUME,)),
    "run-interrupted": CatalogueEntry("The run was interrupted", _ENDED, _REPORTED,
        "A signal or a reboot ended it.",
        (_RESUME,)),
    "no-result": CatalogueEntry("A test left no result", _ENDED, _CHECKED,
        "ReFrame passed the test, but there is no result file.",
        ("Read rfm_job.err and rfm_job.out in the stage folder of the test, which reframe.json names",)),
    "not-measured": CatalogueEntry("Something was not measured", _ENDED, _CHECKED,
        "A part of the test has no usable result.",
        (_STDERR, _AGAIN)),
    "network-not-screened": CatalogueEntry("The network was not tested as a whole", _ENDED, _CHECKED,
        "A launch over all nodes did not complete.",
        (_STDERR, _RESUME)),
    "test-failed": CatalogueEntry("A test failed", _ENDED, _REPORTED,
        "The finding has ReFrame's phase and reason, and the first error of a build. A missing compiler often means "
        "that --system is wrong.",
        ("Read rfm_job.err, or rfm_build.err of a build, in the stage folder that reframe.json names",
         "Is --system that of this machine? `fabricheck validate --system {system}`")),
    "reframe-failed": CatalogueEntry("ReFrame failed", _ENDED, _REPORTED,
        "Its exit status is not 0, and no failed test explains that.",
        ("Read reframe.log in {run}",)),
    "tests-missing": CatalogueEntry("Fewer tests ran than were selected", _ENDED, _CHECKED,
        "ReFrame ran fewer test cases than it listed: an environment or a module is missing.",
        (_LIST,)),
    "nothing-measured": CatalogueEntry("No measurement ran", _ENDED, _CHECKED,
        "No test has a measurement.",
        (_LIST, "Check the site's files: `fabricheck validate --system {system}`")),
    "no-baseline": CatalogueEntry("has no baseline", _ENDED, _CHECKED,
        "There is no reference, part value, published value, peer or model.",
        ("After 8 healthy sessions: `fabricheck calibrate --system {system} --write`",), "A metric"),
    "slow-once": CatalogueEntry("was slow once", _ENDED, _REPORTED,
        "It misses its reference as healthy launches do now and then, and no second launch ran. "
        "Slow again in the next session, it is DEGRADED.",
        (_AGAIN,), "A metric"),
    "slow-while-busy": CatalogueEntry("was slow on a busy machine", _ENDED, _REPORTED,
        "More than a third of the cores had other work before the test began. The test needs the processor or host "
        "memory to move its data.",
        ("Is the machine idle? `top -b -n 1`", _AGAIN), "A metric"),
    "gpu-in-use": CatalogueEntry("is in use by another process", _STATE, _REPORTED,
        "The driver lists a process that is not part of the test.",
        ("Find the process: `nvidia-smi -i {gpu}` on {node}; end it, or reserve nodes for the test",), "A GPU"),
    "gpu-shared": CatalogueEntry("is shared or divided", _STATE, _REPORTED,
        "MIG or MPS is on, so the test measures only a part of the GPU.",
        ("Is MIG or MPS intended? `nvidia-smi -q -i {gpu} -d COMPUTE` on {node}",), "A GPU"),
    "gpu-links-down": CatalogueEntry("has links that are down", _STATE, _MEASURED,
        "Fewer links are active than the topology has, or a link went down during the test.",
        ("On {node}: `nvidia-smi nvlink -s -i {gpu}`, and the fabric manager's log; of AMD `amd-smi xgmi`",
         "Reset the GPU or reseat the board"), "A GPU"),
    "gpu-link-errors": CatalogueEntry("has errors on its links", _STATE, _MEASURED,
        "Replays, recoveries or CRC errors increased during the test, beyond the limits of NVIDIA DCGM.",
        ("Do they continue? `nvidia-smi nvlink -e -i {gpu}` on {node}; then cable, board or switch of the link",
         _BUNDLE), "A GPU"),
    "gpu-throttled": CatalogueEntry("was throttled", _STATE, _REPORTED,
        "The driver reports that the GPU slows down because of heat or a failing power supply.",
        (_HEAT, _HEAT_OF_AMD,
         "Compare inlet temperature, fans and power supplies with an equal node: `ipmitool sensor`", _BUNDLE), "A GPU"),
    "gpu-setting": CatalogueEntry("has limited clocks or power", _STATE, _REPORTED,
        "The driver reports a limit. Somebody set it, or it is the GPU's default.",
        ("On {node}: `nvidia-smi -q -i {gpu} -d CLOCK,POWER`",), "A GPU"),
    "gpu-memory-errors": CatalogueEntry("has memory errors", _STATE, _MEASURED,
        "The driver reports ECC errors or remapped rows.",
        ("Only corrected errors, in a note? Nothing to do; look for more of them every night",
         _RESET, _ROWS, "Replace it if the errors come back or rows cannot be remapped", _BUNDLE), "A GPU"),
    "gpu-errors": CatalogueEntry("has errors in a part of the chip", _STATE, _REPORTED,
        "The driver reports uncorrected errors of a block of the GPU that is neither memory nor link.",
        ("Reset the GPU: `amd-smi reset --gpureset -g {gpu}`; replace it if they come back", _BUNDLE), "A GPU"),
    "gpu-xid": CatalogueEntry("reported an XID error", _STATE, _REPORTED,
        "The kernel's log has an error number of the driver (XID).",
        ("Look the number up in NVIDIA's XID list, and the lines around it: `dmesg -T` on {node}", _BUNDLE), "A GPU"),
    "gpu-order": CatalogueEntry("numbers its GPUs differently", _STATE, _REPORTED,
        "CUDA and NVML, or two nodes, number the GPUs differently, so ranks use other GPUs than planned.",
        ("Set CUDA_DEVICE_ORDER=PCI_BUS_ID and CUDA_VISIBLE_DEVICES in ascending order; use one driver on all nodes",),
        "A node"),
    "pcie-reduced": CatalogueEntry("has a PCIe link below its rate or width", _STATE, _MEASURED,
        "The link is narrower than card and slot allow, slower under load, or carries less than the port of its NIC.",
        ("Reseat the card or its riser; see `lspci -vvs ADDRESS` on {node}",
         "Check the setting of the slot in the firmware"), "A GPU"),
    "pcie-errors": CatalogueEntry("has PCIe replays", _STATE, _MEASURED,
        "There were more than 8 a minute, the limit of NVIDIA DCGM.",
        ("Reseat the card or its riser in {node}",), "A GPU"),
    "nic-down": CatalogueEntry("is down", _STATE, _MEASURED,
        "The port has no link.",
        (_CABLE, "On {node}: `{state}`"), "A NIC port"),
    "nic-slow": CatalogueEntry("runs below its rate", _STATE, _MEASURED,
        "The link of the port has another rate than the topology, or is half duplex.",
        (_CABLE, "On {node}: `{state}`"), "A NIC port"),
    "nic-errors": CatalogueEntry("has link errors", _STATE, _MEASURED,
        "Counters that do not change on a healthy cable increased during the test.",
        (_CABLE, "Do they continue? `{counters}` on {node}"), "A NIC port"),
    "nic-drops": CatalogueEntry("drops packets", _STATE, _MEASURED,
        "The port dropped more than 0.1% of its packets.",
        ("Check ring buffers, flow control and the switch's counters: `ethtool -g {part}`, `ethtool -a {part}` on "
         "{node}",),
        "A NIC port"),
    "roce-settings": CatalogueEntry("has settings that do not fit RoCE", _STATE, _REPORTED,
        "The port has no GID of RoCE v2, or notices and reacts to congestion on different priorities.",
        ("On {node}: `show_gids`, `mlnx_qos -i PORT`, and `ecn/roce_np` and `roce_rp` in /sys/class/net/PORT",
         "Compare with a node that is fast"), "A NIC port"),
    "congestion": CatalogueEntry("saw congestion", _STATE, _REPORTED,
        "Waits, pauses or congestion notifications increased during the test. Alone this is not a fault.",
        ("Did other jobs use the network? Run again when it is idle",), "A NIC port"),
    "packets-lost": CatalogueEntry("loses packets", _STATE, _CONTRAST,
        "More of the losses that TCP noticed are on the way to this node, or from it, than chance explains.",
        ("Check its ports, then the switch ports that lead to it, cables and counters: `ethtool -S PORT` on {node}",),
        "A node"),
    "packets-too-large": CatalogueEntry("does not let large packets through", _STATE, _MEASURED,
        "Packets of the ports' MTU are lost on the path; smaller ones pass. Large messages over TCP or RoCE hang on "
        "such a path.",
        ("Check the MTU of both ends and of all ports between them: `ip -d link` on {node}",), "A path"),
    "acs-on": CatalogueEntry("has PCIe ACS on, which sends peer traffic through the CPU", _STATE, _REPORTED,
        "A PCIe bridge above a GPU or NIC redirects requests or completions (ACSCtl, ReqRedir or CmpltRedir).",
        ("Switch ACS off in the firmware of {node}, or `setpci -s BRIDGE ECAP_ACS+0x6.w=0000`",), "A node"),
    "iommu-on": CatalogueEntry("has an IOMMU that translates addresses", _STATE, _REPORTED,
        "The IOMMU translates (a file /sys/kernel/iommu_groups/*/type has DMA or DMA-FQ).",
        ("Add `iommu=pt` to the kernel's command line of {node}",), "A node"),
    "relaxed-ordering-off": CatalogueEntry("has PCIe relaxed ordering off", _STATE, _REPORTED,
        "The device control register of a GPU or NIC has the bit off.",
        ("Switch it on in the firmware of {node}",), "A node"),
    "no-peer-memory": CatalogueEntry("cannot give NICs access to device memory", _STATE, _REPORTED,
        "No module for peer memory is loaded, and the driver has no DMA-BUF.",
        ("On {node}: `modprobe nvidia_peermem` (EFA: `efa_nv_peermem`)", "Or use the driver's open kernel module"),
        "A node"),
    "numa-balancing-on": CatalogueEntry("has NUMA balancing on", _STATE, _REPORTED,
        "kernel.numa_balancing is not 0.",
        ("Switch it off: `sysctl kernel.numa_balancing=0` on {node}",), "A node"),
    "memlock-limited": CatalogueEntry("limits locked memory", _STATE, _REPORTED,
        "RLIMIT_MEMLOCK of a job is not unlimited, and the node has RDMA ports.",
        ("Set `LimitMEMLOCK=infinity` for slurmd on {node}; for a container `--ulimit memlock=-1`",), "A node"),
    "shm-small": CatalogueEntry("has a small /dev/shm", _STATE, _REPORTED,
        "/dev/shm has less than 1 GiB.",
        ("Start the container on {node} with `--shm-size=1g`",), "A node"),
    "imex-off": CatalogueEntry("has no IMEX channel", _STATE, _REPORTED,
        "The GPUs belong to an NVLink domain of several nodes, and there is no IMEX channel.",
        ("Check the service: `systemctl status nvidia-imex` on {node}",), "A node"),
    "fabric-not-ready": CatalogueEntry("is not in the NVLink fabric", _STATE, _REPORTED,
        "NVML does not report the fabric state `completed` without an error.",
        ("Check the service: `systemctl status nvidia-fabricmanager` on {node}; then `nvidia-smi -q`: Fabric",),
        "A node"),
    "nvswitch-error": CatalogueEntry("An NVSwitch reported an error", _STATE, _REPORTED,
        "The kernel's log has an error number of an NVSwitch (SXid).",
        ("Look the number up in the Fabric Manager User Guide; the lines around it: `dmesg -T` of {node}",)),
    "gpu-reset": CatalogueEntry("The driver reset a GPU", _STATE, _REPORTED,
        "The kernel's log reports it.",
        ("Read the lines around it: `dmesg -T` on {node}. Drain the node if it happens again",)),
    "nic-flaps": CatalogueEntry("had a link that went down", _STATE, _REPORTED,
        "The kernel's log reports it.",
        ("Check cable and transceiver of the port on {node}: `mlxlink`, `ethtool -m PORT`",), "A node"),
    "nodes-differ": CatalogueEntry("is set up differently from its peers", _STATE, _REPORTED,
        "A version, setting or limit differs between nodes of one kind.",
        ("Give all nodes of a partition the same versions and settings", _DOCTOR), "A node"),
    "clock-off": CatalogueEntry("has a wrong clock", _STATE, _REPORTED,
        "Its time differs from that of the other nodes, or of the check.",
        ("On {node}: `chronyc tracking` or `timedatectl`",), "A node"),
    "node-busy": CatalogueEntry("is busy with other work", _STATE, _REPORTED,
        "More than a third of its cores were busy before the test began. That slows a test.",
        ("Find the process: `top -b -n 1` on {node}; run again when the node is idle",), "A node"),
    "host-memory-slow": CatalogueEntry("copies memory slowly", _STATE, _MEASURED,
        "All slow results use host memory. One core copies host memory a third slower than in earlier sessions or on "
        "other nodes.",
        ("Find other work on {node}: `top -b -n 1`", "Check for missing DIMMs and power limits: `dmidecode -t memory`",
         _AGAIN), "A node"),
    "few-cores": CatalogueEntry("Ranks have no spare core", _STATE, _REPORTED,
        "The library sends data with its own thread. A rank with one core shares that core with the thread.",
        ("Set `cores` in `extras` of the partition in site_configs/{system}/settings.py",)),
    "library-remark": CatalogueEntry("A library reports a problem", _STATE, _REPORTED,
        "The library's log has a warning, or the reason why the library did not use a faster path.",
        ("Look the text up in the library's documentation",
         "If it is about memory or devices: `dmesg -T` of {node}")),
    "settings-in-effect": CatalogueEntry("Settings that change the data path were in effect", _STATE, _REPORTED,
        "The header has variables or configuration files of the libraries that change the path of the data.",
        ("Unset them, and run again: `fabricheck run --system {system} --name {test}`",)),
    "memory-low": CatalogueEntry("has little free memory", _STATE, _REPORTED,
        "Less than a tenth of its memory is free.",
        ("Find what uses it: `ps aux --sort -rss`, `df /dev/shm` on {node}",), "A node"),
    "state-unknown": CatalogueEntry("did not report its state", _STATE, _REPORTED,
        "A tool is missing, failed or did not respond, so its faults are not visible.",
        ("Read the logs in node-state/ of the test; then `fabricheck doctor --system {system}` on {node}",), "A node"),
    "cannot-be-judged": CatalogueEntry("A result could not be analysed", _SITE, _CHECKED,
        "The run used nodes or devices that the site's files do not have, or these files are wrong.",
        ("Find the wrong line and field: `fabricheck validate --system {system}`",)),
    "check-missing": CatalogueEntry("A check is missing", _SITE, _CHECKED,
        "The references name a test that is in no check file.",
        ("Was a file removed from checks/? `fabricheck run --system {system} --list`",)),
    "other-tool": CatalogueEntry("The output is another tool's", _SITE, _CHECKED,
        "It is the output of a known tool, without a number that Fabricheck reads.",
        ("Measure the same paths with the suite: `fabricheck run --system {system} --tag nightly`",)),
    "not-judged-by-hand": CatalogueEntry("The output alone cannot be judged", _SITE, _CHECKED,
        "It does not state where it ran and over which path.",
        ("Run the same tool from the suite: `fabricheck run --system {system} --tag vendor`",)),
    "does-not-apply": CatalogueEntry("Tests do not apply here", _TOLD, _INFO,
        "The system has none of the parts that these tests measure, such as a second node."),
    "launched-again": CatalogueEntry("A test was launched again", _TOLD, _INFO,
        "The first launch was DEGRADED. The verdict is that of all launches together."),
    "launches-ended": CatalogueEntry("Relaunches were ended early", _TOLD, _INFO,
        "A signal stopped the relaunches. The verdicts so far are kept."),
    "taken-over": CatalogueEntry("Results were taken over from an earlier run", _TOLD, _INFO,
        "The run resumes an earlier one and measures only the missing tests."),
    "cleared": CatalogueEntry("looked slow and is healthy", _TOLD, _INFO,
        "Tested again with healthy partners, it is as fast as its peers.",
        (), "A part"),
    "pairs-do-not-tell": CatalogueEntry("The pairs do not show which part is slow", _TOLD, _INFO,
        "There are too few pairs, or all cross the same parts.",
        ("Measure more pairs: `fabricheck run --system {system} --tag smoke --nodes all`",)),
    "shortened": CatalogueEntry("A test was shortened", _TOLD, _INFO,
        "It was shortened to end in time.",
        ("Give it more time: --minutes of `fabricheck run`, or `time_limit` of the partition",)),
    "affinity": CatalogueEntry("Ranks ran on another NUMA node than their GPU", _TOLD, _INFO,
        "The header of the result has the cores of each rank. They are on another NUMA node than its GPU.",
        ("Bind ranks next to their GPU: `srun --cpu-bind=verbose`",
         "With Open MPI: `mpirun --report-bindings`; launcher_options of the environment in "
         "site_configs/{system}/settings.py")),
    "slowdown": CatalogueEntry("The slowdown under competing traffic was measured", _TOLD, _INFO,
        "One test (the victim) was measured alone, then while other ranks (the aggressors) sent traffic."),
    "recorded": CatalogueEntry("Found by an earlier version of Fabricheck", _TOLD, _CHECKED,
        "It was stored before findings had codes. Judge the session's result files again to get them.",
        ("`fabricheck judge {file} --html report.html`",)),
}
# fmt: on

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
    codes = {_OF_KIND.get(each.kind, "slow-part") for each in (parts if parts and with_links else components)}
    return codes.pop() if len(codes) == 1 else "slow-part"
