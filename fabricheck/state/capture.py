"""Asks a node for its GPUs, links, NICs, NUMA domains and scheduler, and stores the answers as files.

This file and NVIDIA's pynvml.py need only Python 3.6: `fabricheck capture --script` writes both as one program for
nodes without Fabricheck:

    python3 capture.py FOLDER                      # on the node
    fabricheck init --from FOLDER --system NAME    # anywhere else

Long because it stands alone.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

try:
    import pynvml
except ImportError:  # the Python of another machine than that on which Fabricheck is installed
    pynvml = None

NVML = "nvml.json"
NVIDIA_TOPO = "nvidia-smi_topo.txt"
AMD = "amd.json"
XPU_SMI_TOPO = "xpu-smi_topology.txt"
XPU_SMI_DISCOVERY = "xpu-smi_discovery.json"
PCI_GPUS = "pci_gpus.json"
NUMA = "numa.json"
NICS = "nics.json"
HOST = "host.json"
#: Written by `fabricheck capture` alone: to find the libraries takes more than this file.
SOFTWARE = "software.json"
SLURM = "slurm.json"
#: What could not be asked, and why.
PROBLEMS = "problems.json"

# By the vendor of the GPUs that they know.
_COMMANDS = {
    "nvidia": {NVIDIA_TOPO: ["nvidia-smi", "topo", "-m"]},
    "intel": {XPU_SMI_TOPO: ["xpu-smi", "topology", "-m"], XPU_SMI_DISCOVERY: ["xpu-smi", "discovery", "-j"]},
}
_OF_SLURM = {
    "sinfo": ["sinfo", "--noheader", "--format=%R|%D|%G|%N|%c|%t"],
    "config": ["scontrol", "show", "config"],
    "topology": ["scontrol", "show", "topology"],
    "mpi": ["srun", "--mpi=list"],
}
_OTHERS = (NVML, AMD, NUMA, NICS, PCI_GPUS, HOST, SOFTWARE, SLURM, PROBLEMS)
FILES = (*_OTHERS, *(name for commands in _COMMANDS.values() for name in commands))
# Variables that choose GPUs; the runtimes obey them, and the drivers' tools do not.
_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
#: Seconds that a tool of a vendor may take.
PATIENCE = 60.0
#: Slurm's commands wait for a controller that is not there.
_PATIENCE_WITH_SLURM = 20.0

# By PCI vendor: whose GPUs they are.
_VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
# PCI classes of GPUs of servers: 3D controller, display controller, processing accelerator. VGA devices are those of
# management controllers, laptops and processors.
_GPU_CLASSES = ("0x0302", "0x0380", "0x1200")
# Makers of virtual machines' bridges: Red Hat (QEMU), VMware, Microsoft.
_VIRTUAL = ("0x1b36", "0x15ad", "0x1414")

LINKS_A_GPU = 36  # more NVLinks than any GPU has

Fact = TypeVar("Fact")


def capture(directory: Path, root: Path = Path("/sys"), patience: float = PATIENCE) -> List[str]:
    """Write what this node reports into `directory` (made if needed); the names of the files that were written.

    What the node does not have leaves no file; what has no answer leaves a line in `problems.json`. Raises OSError if
    the directory cannot be written.
    """
    problems: List[str] = []
    directory.mkdir(parents=True, exist_ok=True)
    for name in FILES:  # what an earlier capture found may be gone
        with contextlib.suppress(FileNotFoundError):
            (directory / name).unlink()
    written = []
    on_bus = pci_gpus(root)
    nvml = _nvml(patience, on_bus, problems)
    amd = amd_facts(root)
    vendor = "nvidia" if nvml.get("gpus") else "amd" if amd else on_bus[0]["vendor"] if on_bus else "none"
    for name, command in _tools(vendor):
        output = _output(command, patience, problems)
        if output is not None:
            (directory / name).write_text(output, encoding="utf-8")
            written.append(name)
    problems += _hiding(len(nvml.get("gpus", amd)))
    contents = {
        HOST: {"hostname": socket.gethostname().split(".")[0], "gpu_vendor": vendor},
        NVML: nvml,
        AMD: amd,
        NUMA: numa_facts(root),
        NICS: nic_facts(root),
        PCI_GPUS: on_bus,
        SLURM: ask_slurm(problems),
        PROBLEMS: problems,
    }
    for name, content in contents.items():
        if content:
            (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
            written.append(name)
    return written


def _tools(vendor: str) -> Iterator[Tuple[str, Sequence[str]]]:
    """Those of the GPUs' vendor; of all where there is none: a tool may know GPUs that the PCI bus does not show."""
    for whose, commands in _COMMANDS.items():
        if vendor in (whose, "none"):
            yield from commands.items()


def _output(command: Sequence[str], patience: float, problems: List[str]) -> Optional[str]:
    answer = ask(command, patience)
    if answer.given and answer.output.strip():
        return answer.output
    if answer.problem:
        problems.append(f"`{' '.join(command)}` {answer.problem}")
    return None


def _hiding(gpus: int) -> Iterator[str]:
    """Variables that leave fewer GPUs than there are; Slurm sets them with all GPUs of a job, too."""
    for name in _HIDING:
        value = os.environ.get(name)
        if value is not None and len(list(filter(None, value.split(",")))) < gpus:
            yield f"{name}={value!r} in the environment hides GPUs: unset it"


def ask_slurm(problems: List[str]) -> Dict[str, str]:
    """The outputs of Slurm's commands; nothing where there is no Slurm. What has no answer is added to `problems`."""
    outputs = {}
    for name, command in _OF_SLURM.items():
        answer = ask(command, _PATIENCE_WITH_SLURM)
        if answer.missing:
            continue
        # `srun --mpi=list` writes to stderr in older versions.
        if answer.given:
            outputs[name] = answer.output or answer.errors
        elif name == "sinfo" and "configuration source" in answer.problem:
            return {}  # Slurm's programs alone, and no cluster
        elif name != "topology":  # only with a plugin for it
            problems.append(f"`{' '.join(command)}` {answer.problem}")
            if name == "sinfo":
                return {}
    return outputs


class ProgramOutput(NamedTuple):
    """What a program printed. `problem`: why it gave no answer, in a few words; empty where it did.

    `missing`: the program is not on this machine, which is not a fault. `late`: it had not ended in time.
    """

    output: str = ""
    problem: str = ""
    missing: bool = False
    errors: str = ""
    late: bool = False

    @property
    def given(self) -> bool:
        """Whether the program is there and answered."""
        return not self.problem and not self.missing


def ask(
    command: Sequence[str], seconds: float = 60.0, environment: Optional[Mapping[str, str]] = None
) -> ProgramOutput:
    """Run a command and wait `seconds` at most.

    A program that waits for a driver cannot always be ended: it is left behind then, and not waited for.
    """
    if shutil.which(command[0], path=(environment or os.environ).get("PATH")) is None:
        return ProgramOutput(missing=True)
    # Into files: a child of the program may keep a pipe open after its end.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
            )
        except OSError as error:
            return ProgramOutput(problem=f"cannot be started: {error.strerror}")
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)
            return ProgramOutput(problem=f"did not respond in {seconds:g} s", late=True)
        output.seek(0)
        errors.seek(0)
        text, said = (file.read().decode("utf-8", "replace") for file in (output, errors))
    if status != 0:
        lines = [line.strip() for line in (said + "\n" + text).splitlines() if line.strip()]
        how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        return ProgramOutput(text, f"{how}{': ' + lines[-1][:200] if lines else ''}", errors=said)
    return ProgramOutput(text, errors=said)


def _nvml(patience: float, on_bus: Sequence[Dict[str, Any]], problems: List[str]) -> Dict[str, Any]:
    """What NVML reports; where it does not answer although there are NVIDIA GPUs, that is a problem."""
    drivers = [gpu["driver"] for gpu in on_bus if gpu["vendor"] == "nvidia"]
    facts = ask_gpu_facts(patience)
    problems += facts.pop("problems", [])
    error = facts.get("unavailable")
    if error is None:
        return facts
    if drivers:
        driver = "" if any(drivers) else "no driver is loaded; "
        problems.append(f"{len(drivers)} NVIDIA GPUs on the PCI bus, and {driver}{error}")
    elif not facts["absent"]:
        problems.append(error)
    return {}


def ask_gpu_facts(seconds: float = PATIENCE) -> Dict[str, Any]:
    """`gpu_facts()` in a process of its own, since a call of NVML can hang in the driver for ever."""
    here = os.path.abspath(__file__)
    program = here if os.path.isfile(here) else os.path.dirname(here)  # an archive, as `capture --script` writes it
    # No import is looked for in the current folder, where another user may have left a json.py.
    paths = "import sys; sys.path = [*filter(None, sys.path)]"
    run = f"{paths}; import runpy; runpy.run_path({program!r}, run_name='__main__')"
    answered = ask([sys.executable, "-c", run, "--nvml"], seconds)
    if not answered.given:
        return {"unavailable": f"NVML: {answered.problem}", "absent": False}
    facts: Dict[str, Any] = json.loads(answered.output)
    return facts


class NvmlUnavailable(Exception):
    """NVML does not answer at all. `absent`: there is no NVIDIA driver, which is not a fault of a node without GPUs."""

    def __init__(self, reason: str, absent: bool) -> None:
        super().__init__(reason)
        self.absent = absent


def each_gpu(facts: Callable[[Any, int], Fact]) -> Tuple[str, List[Fact], List[str]]:
    """The driver's version, of each GPU what `facts` of its handle and index gives, and a line for each that does not
    answer. Raises NvmlUnavailable."""
    if pynvml is None:
        raise NvmlUnavailable("NVML: this Python has no pynvml", absent=False)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        code = getattr(error, "value", None)
        absent = code in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        hints = {
            pynvml.NVML_ERROR_NO_PERMISSION: ": this user may not read /dev/nvidiactl",
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: ": the driver was updated; reboot",
        }
        raise NvmlUnavailable(f"NVML: {error}{hints.get(code, '')}", absent) from None
    gpus, problems = [], []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                gpus.append(facts(pynvml.nvmlDeviceGetHandleByIndex(index), index))
            except pynvml.NVMLError as error:
                problems.append(f"GPU {index} does not respond: NVML: {error}")
        return decode(answer("nvmlSystemGetDriverVersion") or ""), gpus, problems
    finally:
        pynvml.nvmlShutdown()


def answer(call: str, *arguments: Any) -> Any:
    """What NVML answers, or None where this GPU, driver or library does not tell."""
    try:
        return getattr(pynvml, call)(*arguments)
    except (pynvml.NVMLError, AttributeError):
        return None


def read_field(handle: Any, number: int, scope: int = 0) -> Optional[int]:
    """A field of `nvmlDeviceGetFieldValues`, or None where this GPU or driver does not tell."""
    values = answer("nvmlDeviceGetFieldValues", handle, [(number, scope)])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    if values[0].valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
        return int(values[0].value.ullVal)
    return int(values[0].value.uiVal)


def decode(value: Union[str, bytes]) -> str:
    """A string of NVML, which older bindings return as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def gpu_facts() -> Dict[str, Any]:
    """`driver`, `gpus` and `problems`: what does not change while a driver is loaded, for a site's files.

    Of each GPU its index, name, arch, UUID, PCI address, memory (MiB, clock in MHz, width in bits), NUMA node, PCIe
    link at most, NVLink-C2C to its CPU (links, MB/s of one), MIG mode, and its NVLinks: how many there are
    (`nvlinks_total`) and each that is active. A GPU that does not answer is a problem, and the others stand.
    `unavailable` instead where NVML does not answer at all, and `absent` where there is no NVIDIA driver.
    """
    try:
        driver, gpus, problems = each_gpu(_gpu)
    except NvmlUnavailable as error:
        return {"unavailable": str(error), "absent": error.absent}
    return {"driver": driver or "unknown", "gpus": gpus, "problems": problems}


def _gpu(gpu: Any, index: int) -> Dict[str, Any]:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
    uuid, memory, mig = (answer(f"nvmlDeviceGet{fact}", gpu) for fact in ("UUID", "MemoryInfo", "MigMode"))
    links = {link: answer("nvmlDeviceGetNvLinkState", gpu, link) for link in range(LINKS_A_GPU)}
    return {
        "index": index,
        "name": decode(pynvml.nvmlDeviceGetName(gpu)),
        "uuid": decode(uuid) if uuid else None,
        "arch": f"sm_{major}{minor}",
        "bus_id": decode(pynvml.nvmlDeviceGetPciInfo(gpu).busId).lower(),
        "numa_node": answer("nvmlDeviceGetNumaNodeId", gpu),
        "memory_mib": memory.total >> 20 if memory else None,
        "memory_clock_mhz": answer("nvmlDeviceGetMaxClockInfo", gpu, pynvml.NVML_CLOCK_MEM),
        "memory_bus_bits": answer("nvmlDeviceGetMemoryBusWidth", gpu),
        "pcie_generation": answer("nvmlDeviceGetMaxPcieLinkGeneration", gpu),
        "pcie_width": answer("nvmlDeviceGetMaxPcieLinkWidth", gpu),
        "c2c_links": read_field(gpu, pynvml.NVML_FI_DEV_C2C_LINK_COUNT),
        "c2c_mbps": read_field(gpu, pynvml.NVML_FI_DEV_C2C_LINK_GET_MAX_BW),
        "mig": bool(mig and mig[0]),
        "nvlinks_total": sum(state is not None for state in links.values()),
        "nvlinks": [_nvlink(gpu, link) for link, state in links.items() if state == 1],
    }


def _nvlink(gpu: Any, link: int) -> Dict[str, Any]:
    """An active NVLink: PCI address and kind of what it leads to, and its speed in MB/s where the driver tells."""
    remote = answer("nvmlDeviceGetNvLinkRemotePciInfo", gpu, link)
    kinds = {
        pynvml.NVML_NVLINK_DEVICE_TYPE_GPU: "gpu",
        pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU: "cpu",
        pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: "switch",
    }
    return {
        "link": link,
        "version": answer("nvmlDeviceGetNvLinkVersion", gpu, link),
        "speed_mbps": read_field(gpu, pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, link),
        "remote_kind": kinds.get(answer("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link), "unknown"),
        "remote_bus_id": decode(remote.busId).lower() if remote else None,
    }


def read(path: Path) -> str:
    """A file of the kernel, which has one value; empty where it cannot be read, as of a port that is down."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def read_first(folder: Path, *names: str) -> str:
    """The first of these files that can be read; empty where none can."""
    return next(filter(None, (read(folder / name) for name in names)), "")


def infiniband_ports(sysfs: Path) -> Iterator[Tuple[str, Path, Path]]:
    """Name, folder and device of each port of the InfiniBand stack: `mlx5_0`, and `mlx5_0_2` of a second port."""
    for port in sorted(sysfs.glob("class/infiniband/*/ports/*")):
        device = port.parent.parent
        yield device.name if port.name == "1" else f"{device.name}_{port.name}", port, device


def interfaces_of(device: Path, port: int = 1) -> Tuple[str, ...]:
    """The network interfaces of a port of a card, whose device `device` is; of LLDP and IP they are the names."""
    folders = sorted(each for each in (device / "device" / "net").glob("*"))
    own = [each for each in folders if read(each / "dev_port") in ("", str(port - 1))]
    return tuple(each.name for each in own or folders)


def is_virtual(device: Path) -> bool:
    """Whether it is a virtual function (SR-IOV), which shares the port of its physical one."""
    return (device / "device" / "physfn").exists()


def slingshot_ports(sysfs: Path) -> Iterator[Tuple[Path, str]]:
    """Device and speed (in Gb/s, as `BS_200G`, of Cassini 2 `ck400G`) of each Cassini, in whichever folder its driver
    has it."""
    for device in sorted(sysfs.glob("class/cxi/cxi[0-9]*")):
        yield device, read_first(device / "device", "port/speed", "port/0/link/speed", "properties/speed")


def numa_facts(sysfs: Path) -> Dict[str, Any]:
    """NUMA nodes that have CPUs, with their CPU lists; physical cores and sockets of the node."""
    nodes = []
    for path in sorted(sysfs.glob("devices/system/node/node[0-9]*"), key=lambda one: int(one.name[4:])):
        cpus = read(path / "cpulist")
        if cpus:
            nodes.append({"index": int(path.name[4:]), "cpus": cpus})
    cores, sockets = set(), set()
    for path in sysfs.glob("devices/system/cpu/cpu[0-9]*/topology"):
        socket_id, core = read(path / "physical_package_id"), read(path / "core_id")
        if socket_id and core:
            cores.add((socket_id, core))
            sockets.add(socket_id)
    return {"nodes": nodes, "cores": len(cores), "sockets": len(sockets)} if nodes else {}


def nic_facts(sysfs: Path) -> List[Dict[str, Any]]:
    """Ports of InfiniBand and Slingshot, and active ones of Ethernet adapters.

    Of each its name, kind, the kernel's rate text, NUMA node, and where on the PCI tree it is; driver and model of the
    card, the GUID that its functions share, interfaces, whether it is up, whether a virtual function, and its PCIe
    link's speed and width at most. Ethernet counts as such only where no RDMA device is the same card.
    """
    facts = []
    for name, port, device in infiniband_ports(sysfs):
        rate = read(port / "rate")
        if rate:
            interfaces = interfaces_of(device, int(port.name) if port.name.isdecimal() else 1)
            rate = _bonded(sysfs, interfaces) or rate
            nic = _nic(name, read(port / "link_layer") or "InfiniBand", rate, device, interfaces)
            facts.append({**nic, "up": "ACTIVE" in read(port / "state")})
    for device, speed in slingshot_ports(sysfs):
        facts.append(_nic(device.name, "cxi", speed or None, device, interfaces_of(device)))
    cards = {one["pci"] for one in facts if one["pci"]}
    for device in sorted(sysfs.glob("class/net/*")):
        speed = read(device / "speed")
        if not (device / "device").exists() or read(device / "operstate") != "up":
            continue
        if speed.isdecimal() and int(speed) > 0 and _pci_place(device) not in cards:
            facts.append(_nic(device.name, "net", f"{int(speed) / 1000:g} Gb/sec", device, (device.name,)))
    return facts


def _nic(name: str, kind: str, rate: Optional[str], device: Path, interfaces: Tuple[str, ...]) -> Dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "rate": rate,
        "numa_node": _numa(device / "device"),
        "pci": _pci_place(device),
        "driver": _driver(device / "device"),
        # The RDMA stack's name of the chip, and the maker's of the board.
        "card": " ".join(filter(None, (read(device / "hca_type"), read(device / "board_id")))) or None,
        "interfaces": list(interfaces),
        "virtual": is_virtual(device),
        "system_guid": read(device / "sys_image_guid") or None,
        "link_speed": _path_speed(device / "device"),
        "link_width": read(device / "device" / "max_link_width") or None,
    }


def _bonded(sysfs: Path, interfaces: Tuple[str, ...]) -> Optional[str]:
    """The rate of the bond that the interfaces of an RDMA device belong to, whose ports together it drives."""
    for name in interfaces:
        bond = sysfs / "class" / "net" / name / "master"
        speed, ports = read(bond / "speed"), read(bond / "bonding" / "slaves").split()
        if (bond / "bonding").exists() and speed.isdecimal() and len(ports) > 1:
            return f"{int(speed) / 1000:g} Gb/sec (bond of {len(ports)} ports)"
    return None


def pci_gpus(sysfs: Path) -> List[Dict[str, Any]]:
    """GPUs on the PCI bus, whatever a driver, a container or a scheduler shows of them: vendor, address, driver, NUMA
    node, place on the PCI tree, the least speed of the links on the way to it, and the width of its own."""
    gpus = []
    for device in sorted(sysfs.glob("bus/pci/devices/*")):
        vendor = _VENDORS.get(read(device / "vendor"))
        if vendor is None or read(device / "class")[:6] not in _GPU_CLASSES:
            continue
        gpus.append(
            {
                "vendor": vendor,
                "bus_id": device.name,
                "driver": _driver(device),
                "numa_node": _numa(device),
                "pci": _place(device),
                "path_speed": _path_speed(device),
                "link_width": read(device / "max_link_width") or None,
            }
        )
    return gpus


def amd_facts(sysfs: Path) -> List[Dict[str, Any]]:
    """AMD's GPUs as the kernel's KFD knows them, in the order of the runtime: arch, PCI address, memory, links.

    A link has the other node's number, its kind (`xgmi` or `pcie`), its weight (15 for each hop of XGMI), and the least
    and largest bandwidth in MB/s: those of one link and of all parallel ones (Linux, drivers/gpu/drm/amd/amdkfd,
    kfd_crat.h and kfd_topology.c). CPUs are the nodes without SIMDs.
    """
    amd_gpus = []
    for node in sorted(sysfs.glob("class/kfd/kfd/topology/nodes/[0-9]*"), key=lambda one: int(one.name)):
        facts = _properties(node / "properties")
        if not facts.get("simd_count"):
            continue
        memory = [_properties(bank / "properties") for bank in sorted(node.glob("mem_banks/[0-9]*"))]
        location, domain = facts.get("location_id", 0), facts.get("domain", 0)
        bus_id = f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
        device = sysfs / "bus/pci/devices" / bus_id
        version = facts.get("gfx_target_version", 0)
        amd_gpus.append(
            {
                "node": int(node.name),
                # 90010 is 9.0.10, which compilers write gfx90a: decimal, decimal, hexadecimal.
                "arch": f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}" if version else "unknown",
                "bus_id": bus_id,
                "numa_node": _numa(device),
                "model": read(device / "product_name") or None,
                "memory_bus_bits": memory[0].get("width") if memory else None,
                "memory_clock_mhz": memory[0].get("mem_clk_max") if memory else None,
                "memory_mib": memory[0].get("size_in_bytes", 0) >> 20 if memory else None,
                "link_speed": _path_speed(device),
                "link_width": read(device / "max_link_width") or None,
                "links": [_amd_link(_properties(each / "properties")) for each in sorted(node.glob("io_links/[0-9]*"))],
                "pci": _place(device) if device.exists() else None,
            }
        )
    return amd_gpus


def _amd_link(facts: Dict[str, int]) -> Dict[str, Any]:
    kinds = {2: "pcie", 11: "xgmi"}  # CRAT_IOLINK_TYPE_PCIEXPRESS, CRAT_IOLINK_TYPE_XGMI
    return {
        "to": facts.get("node_to"),
        "kind": kinds.get(facts.get("type", 0), "other"),
        "weight": facts.get("weight"),
        "least_mbps": facts.get("min_bandwidth"),
        "most_mbps": facts.get("max_bandwidth"),
    }


def _properties(file: Path) -> Dict[str, int]:
    pairs = [line.split() for line in read(file).splitlines()]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _numa(device: Path) -> Optional[int]:
    text = read(device / "numa_node")
    return int(text) if text.lstrip("-").isdecimal() else None


def _driver(device: Path) -> Optional[str]:
    driver = device / "driver"
    return os.path.basename(os.path.realpath(driver)) if driver.exists() else None


def _pci_place(device: Path) -> Optional[str]:
    return _place(device / "device") if (device / "device").exists() else None


def _path_speed(device: Path) -> Optional[str]:
    """The kernel's word for the slowest link between a device and its root port, at its best: a PCIe 6 GPU at a CPU of
    PCIe 5 has `32.0 GT/s PCIe`. None where no link states its speed: bridges of virtual machines do not."""
    speeds = []
    place = Path(os.path.realpath(device))
    for folder in (place, *place.parents):
        speed = read(folder / "max_link_speed") if folder.name.count(":") == 2 else ""
        if speed[:1].isdigit() and read(folder / "vendor") not in _VIRTUAL:
            speeds.append(speed)
    return min(speeds, key=lambda speed: float(speed.split()[0]), default=None)


def _place(device: Path) -> str:
    """The bridges that lead to a device, from the root complex on: `pci0000:17/0000:17:01.0/0000:18:00.0`."""
    parts = Path(os.path.realpath(device)).parts
    return "/".join(part for part in parts if part.startswith("pci") or part.count(":") == 2)


def main(arguments: Sequence[str]) -> int:
    """Captures this node into the folder that is named. Returns the exit status: 0, 1 if it cannot be written, 2 for
    misuse."""
    if arguments == ["--nvml"]:
        print(json.dumps(gpu_facts()))
        return 0
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python3 capture.py FOLDER", file=sys.stderr)
        return 2
    try:
        for name in capture(Path(arguments[0])):
            print(os.path.join(arguments[0], name))
    except OSError as error:
        print(f"capture.py: {arguments[0]}: cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
