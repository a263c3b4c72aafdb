"""Checks the files of each site together: configuration, topology, references."""

from __future__ import annotations

import ast
import contextlib
import io
import re
import runpy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError
from fabricheck.extras import (
    cores_problems,
    effort_problems,
    misplaced_keys,
    nodes_problems,
    unsupported_problems,
)
from fabricheck.limits.of_metric import TRANSPORTS, expectation
from fabricheck.limits.question import MeasuredSeries
from fabricheck.records.metrics import MetricName, parse_metric_name
from fabricheck.records.operations import SPARSE
from fabricheck.suite import outside_roots, site_root
from fabricheck.topology.model import Topology, load_topology, partition_files
from fabricheck.units import parse_rate
from fabricheck.yardsticks.nic_values import load_nics
from fabricheck.yardsticks.part_values import load_parts
from fabricheck.yardsticks.published import load_published
from fabricheck.yardsticks.references import ALL_OTHERS, References, load_references

#: Features of environments that drive GPUs.
GPU_APIS = frozenset({"cuda", "hip", "sycl"})


def systems(root: Path) -> tuple[str, ...]:
    """Names of all systems that have a folder in site_configs/, of the suite at `root` or of FABRICHECK_SITES."""
    folders = (path for each in (root, *outside_roots()) for path in (each / "site_configs").iterdir())
    return tuple(sorted({path.name for path in folders if path.is_dir()}))


def problems(root: Path, system: str) -> Iterator[str]:
    """Everything that is wrong with a system's files, one line each.

    The topologies by their schema and names, the settings by ReFrame itself, the extras of each partition against
    its topology and tuning profiles, each reference by the metric that it names and the model's ceiling.
    """
    own = site_root(system, root)
    site = own / "site_configs" / system
    files = {"": site / "topology.yaml", **partition_files(system, site.parent)}
    topologies: dict[str, Topology] = {}
    for partition, file in files.items():
        try:
            topologies[partition] = load_topology(file)
        except UserError as error:
            yield str(error)
            continue
        if topologies[partition].system != system:
            yield f"{file}: system: is {topologies[partition].system!r}, but the folder is that of {system!r}"
    yield from _settings_problems(root, site / "settings.py", topologies)
    references = own / "reference_values" / f"{system}.yaml"
    if not references.exists():
        yield f"{references}: does not exist: give references, or name each test under $uncalibrated with the reason"
    else:
        try:
            known = load_references(references)
        except UserError as error:
            yield str(error)
        else:
            yield from reference_problems(known, topologies)
            yield from coverage_problems(known, test_classes(root / "checks"))
    published = own / "reference_values" / "published" / f"{system}.yaml"
    if published.exists():
        try:
            load_published(published)
        except UserError as error:
            yield str(error)
    of_site = [(load_parts, own / "reference_values" / "parts")] if own != root else []
    values = root / "reference_values"
    for load, path in (*of_site, (load_parts, values / "parts"), (load_nics, values / "nics/known.yaml")):
        try:
            load(path)
        except UserError as error:
            yield str(error)


def reference_problems(references: References, topologies: Mapping[str, Topology]) -> Iterator[str]:
    """References that name no metric, have another unit than it, or lie beyond what the hardware can do.

    `topologies`: of partitions, by name, and of all others by the empty name.
    """
    for test in references.tests.values():
        for entry in test.entries:
            # With several transports in one file, its own is the value of a key.
            transport = next((key for key in entry.keys if key in TRANSPORTS), None)
            partitions = [str(key).partition(":")[2] for key in entry.keys]
            own = next((name for name in partitions if name and name in topologies), "")
            topology = topologies.get(own)
            for name, reference in entry.metrics.items():
                where = f"{references.path}: {'.'.join(map(str, (test.test, *entry.keys, name)))}"
                try:
                    metric = parse_metric_name(name)
                    value = _in_metric_unit(reference.value, reference.unit, metric.quantity)
                except UserError as error:
                    yield f"{where}: {error}"
                    continue
                if topology is not None:
                    yield from _beyond(where, metric, value, topology, str(transport) if transport else None)


def test_classes(checks: Path) -> tuple[str, ...]:
    """Names of the test classes in a folder of checks: those that are decorated with `simple_test`."""
    names = []
    for file in sorted(checks.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(), filename=str(file))):
            if isinstance(node, ast.ClassDef) and any("simple_test" in ast.dump(each) for each in node.decorator_list):
                names.append(node.name)
    return tuple(sorted(names))


def coverage_problems(references: References, tests: Sequence[str]) -> Iterator[str]:
    """Test classes without references that are not declared so, and names that are not a test class."""
    for name in tests:
        if name not in references.tests and not {name, ALL_OTHERS} & set(references.uncalibrated):
            yield f"{references.path}: has no references of {name}, and no reason for it under $uncalibrated"
    for name in (*references.tests, *references.uncalibrated):
        if name not in (*tests, ALL_OTHERS):
            yield f"{references.path}: {name} is not a test class of checks/"


def _in_metric_unit(value: float, unit: str, quantity: str) -> float:
    if quantity == "latency":
        if unit != "us":
            raise UserError(f"a latency is in us, not {unit}")
        return value
    return value * parse_rate(f"1 {unit}")


def _beyond(where: str, metric: MetricName, value: float, topology: Topology, transport: str | None) -> Iterator[str]:
    """Whether a value is beyond the ceiling of a run on one node, rank by rank on its GPUs, by any transport."""
    ranks = metric.ranks or tuple(range(metric.world))
    if metric.operation in SPARSE:
        return  # what was sent is not in the name
    if not topology.gpus or max(ranks) >= len(topology.gpus):
        return  # host memory, or several nodes: the placement is not in the name
    ordered = sorted(gpu.index for gpu in topology.gpus)
    limits = [
        expectation(
            topology,
            MeasuredSeries(
                operation=metric.operation,
                implementation="library",
                transport=one,
                schedule=metric.schedule,
                devices=[ordered[rank] for rank in ranks],
                nodes=1,
                bytes=metric.bytes,
                quantity=metric.quantity,
                host_copy_gbps=None,
                groups=metric.groups,
            ),
        ).ceiling
        for one in ((transport,) if transport else TRANSPORTS)
    ]
    known = [limit for limit in limits if limit is not None]
    if not known:
        return
    if metric.quantity == "goodput" and value > max(known):
        yield f"{where}: {value:g} Gb/s is above the ceiling of {max(known):g} Gb/s: the hardware cannot reach that"
    if metric.quantity == "latency" and value < min(known):
        yield f"{where}: {value:g} us is below the least plausible {min(known):g} us"


def _settings_problems(root: Path, settings: Path, topologies: Mapping[str, Topology]) -> Iterator[str]:
    if not settings.is_file():
        yield f"{settings}: does not exist: run fabricheck init, or write it"
        return
    try:
        partitions, environments = _loaded(settings, settings.parent.name)
    except UserError as error:
        yield str(error)
        return
    for environment in environments:
        where, given_extras = f"{settings}: environment {environment['name']}", environment.get("extras")
        extras = given_extras if isinstance(given_extras, dict) else {}
        for problem in (*misplaced_keys(extras, "environment"), *_old_compilers(environment.get("modules"))):
            yield f"{where}: {problem}"
    for problem in undriven(partitions, environments):
        yield f"{settings}: {problem}"
    names = {str(one["name"]) for one in partitions}
    for name in sorted(topologies):
        if name and name not in names:
            yield f"{settings.parent / f'topology-{name}.yaml'}: there is no partition {name!r} in {settings}"
    yield from _extras_problems(root, settings, partitions, topologies)


def _old_compilers(modules: object) -> Iterator[str]:
    """Modules of a CUDA that cannot compile fabricbench."""
    for module in modules if isinstance(modules, list) else ():
        name = str(module.get("name") if isinstance(module, dict) else module)
        version = re.fullmatch(r"(?:.*/)?(?:cuda|cudatoolkit)/(\d+)\b.*", name, re.IGNORECASE)
        # nvcc has C++17 from 11.0 on (CUDA 11.0 release notes).
        if version and int(version[1]) < 11:
            yield f"the module {name} cannot compile fabricbench, which is C++17: name one of CUDA 11.0 or later"


def undriven(partitions: Sequence[Mapping[str, Any]], environments: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Partitions with GPUs whose environments cannot drive them, so that checks of GPUs would silently not exist.

    A partition without environments is not measured here at all, which is so for other nodes of the same system; not
    where no partition with GPUs has any.
    """
    able = {str(one["name"]) for one in environments if GPU_APIS & {*one.get("features", [])}}
    with_gpus = [one for one in partitions if any(each.get("type") == "gpu" for each in one.get("devices", []))]
    measured = [one for one in with_gpus if one.get("environs")]
    for partition in measured or with_gpus:
        if not able & {*partition.get("environs", [])}:
            named = ", ".join(partition.get("environs", [])) or "none"
            text = f"partition {partition['name']} has GPUs, but none of its environments can use them ({named})"
            yield f"{text}: give one the feature {', '.join(sorted(GPU_APIS))} and extras['backend']"


def undriven_gpus(settings: Path) -> tuple[str, ...]:
    """`undriven` of a settings file, without ReFrame, which has its own words for a file that is wrong."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            content = runpy.run_path(str(settings))["site_configuration"]
        return tuple(undriven(content["systems"][0]["partitions"], content["environments"]))
    except Exception:  # settings are a program, and may fail in any way
        return ()


def _loaded(settings: Path, system: str) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """The partitions and the environments of a system's settings. Raises UserError where ReFrame does not load them."""
    import reframe.core.config as reframe_config
    from reframe.core.exceptions import ReframeError
    from reframe.core.systems import System

    try:
        config = reframe_config.load_config(str(settings))
        config.validate()
        config.select_subconfig(system)
        System.create(config)
        return list(config.get("systems/0/partitions")), list(config.get("environments"))
    except Exception as error:  # settings are a program, and may fail in any way
        what = "" if isinstance(error, ReframeError) else f"{type(error).__name__}: "
        raise UserError(f"{settings}: ReFrame does not load it: {what}{' '.join(str(error).split())}") from None


def require_partition(root: Path, system: str) -> None:
    """Raises UserError where `system` is a `system:partition` and the system's settings have no such partition."""
    name, colon, partition = system.partition(":")
    settings = site_root(name, root) / "site_configs" / name / "settings.py"
    if colon and settings.is_file() and partition not in (partitions := environments_of(root, name)):
        raise UserError(f"{name} has no partition {partition!r}: {settings} has {', '.join(partitions)}")


def environments_of(root: Path, system: str) -> dict[str, list[str]]:
    """The environments of each partition of a system. Raises UserError where ReFrame does not load its settings."""
    settings = site_root(system, root) / "site_configs" / system / "settings.py"
    with contextlib.redirect_stderr(io.StringIO()):  # what the settings leave out is of no interest here
        partitions: list[dict[str, Any]] = _loaded(settings, system)[0]
    return {str(one["name"]): [*map(str, one["environs"])] for one in partitions}


def _extras_problems(
    root: Path, settings: Path, partitions: Sequence[dict[str, object]], topologies: Mapping[str, Topology]
) -> Iterator[str]:
    from fabricheck.tuning import load_profiles

    profiles = {one.name for one in load_profiles(root / "config" / "tuning.yaml").profiles}
    for partition in partitions:
        where = f"{settings}: partition {partition['name']}"
        extras = partition.get("extras")
        extras = extras if isinstance(extras, dict) else {}
        profile = extras.get("tuning_profile")
        if profile is not None and profile not in profiles:
            yield f"{where}: tuning_profile {profile!r} is not in {root / 'config' / 'tuning.yaml'}"
        wrong = (*misplaced_keys(extras, "partition"), *effort_problems(extras))
        for problem in (*wrong, *unsupported_problems(extras.get("unsupported", {}))):
            yield f"{where}: {problem}"
        topology = topologies.get(str(partition["name"]), topologies.get(""))
        for problem in nodes_problems(partition, topology.nodes if topology is not None else 0):
            yield f"{where}: {problem}"
        devices = partition.get("devices")
        gpus = [one for one in devices if one.get("type") == "gpu"] if isinstance(devices, list) else []
        count = sum(int(one.get("num_devices", 0)) for one in gpus)
        for problem in cores_problems(extras, count):
            yield f"{where}: {problem}"
        if gpus and topology is not None and count != len(topology.gpus):
            yield f"{where}: has {count} GPUs, its topology {len(topology.gpus)}"
