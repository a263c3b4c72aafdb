"""Ranks in a container: what comes between the launcher and the program in every launch line of a job."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import reframe as rfm
from reframe.core.containers import ContainerPlatform
from reframe.core.exceptions import ReframeError

from fabricheck.rfm.launch import launch_command
from fabricheck.suite import suite_root


def rank_command(test: rfm.RegressionTest, command: str) -> str:
    """How the launcher starts the ranks of `command` (text for a shell), in the container of the environment if it
    has one; for further commands of the job of `test`, before the run phase."""
    return f"{launch_command(test)} {in_container(test, command)}"


def enter_container(test: rfm.RegressionTest) -> None:
    """Has the test's own launch line start its ranks in the container, after the commands of its job are known."""
    wanted = container_of(test)
    if wanted is None:
        return
    command = " ".join([test.executable, *test.executable_opts])
    if wanted["platform"] in OF_LAUNCH_LINE:
        test.executable, test.executable_opts = in_container(test, command), []
        return
    # ReFrame starts it itself, with what the partition's `container_platforms` say.
    platform = reframe_platform(test, wanted, command)
    # Else ReFrame would fetch the image after the launches before the test's own.
    test.prerun_cmds = [*platform.emit_prepare_commands(test.stagedir), *test.prerun_cmds]
    platform.pull_image = False
    test.container_platform = platform


def in_container(test: rfm.RegressionTest, command: str) -> str:
    """What the launcher starts instead of `command`: the container that runs it, or `command` itself without one."""
    wanted = container_of(test)
    if wanted is None:
        return command
    words = OF_LAUNCH_LINE.get(wanted["platform"])
    if words is None:
        return str(reframe_platform(test, wanted, command).launch_command(test.stagedir))
    return " ".join([*words(test, wanted), command])


def container_of(test: rfm.RegressionTest) -> Mapping[str, Any] | None:
    """The environment's `extras["container"]`; None where its ranks run in none.

    `platform`, a container platform of ReFrame, Podman or Pyxis, and `image`; `options` of the platform where it needs
    some, such as `--nv`. Raises ReframeError where platform or image is missing.
    """
    wanted: Mapping[str, Any] | None = test.current_environ.extras.get("container")
    if wanted is not None and (missing := [name for name in ("platform", "image") if name not in wanted]):
        name = test.current_environ.name
        raise ReframeError(f"environment {name}: container in its extras does not give {' and '.join(missing)}")
    return wanted


def mounted_folders(test: rfm.RegressionTest) -> list[str]:
    """The folders that are mounted where they lie: the stage directory, the suite, and those of the programs."""
    folders = {str(test.stagedir), str(suite_root()), str(Path(test.fabricbench.program).parent)}
    vendor = getattr(test, "suite", None)
    if vendor is not None and vendor.module is None:
        folders.add(str(vendor.root))
    return sorted(folders)


def reframe_platform(test: rfm.RegressionTest, wanted: Mapping[str, Any], command: str) -> ContainerPlatform:
    """The platform of ReFrame that runs `command`."""
    platform = ContainerPlatform.create(wanted["platform"])
    platform.image, platform.options, platform.command = wanted["image"], [*wanted.get("options", [])], command
    platform.mount_points = [(folder, folder) for folder in mounted_folders(test)]
    # Paths of the stage directory are the same inside and outside.
    platform.mount_stagedir, platform.workdir = None, str(test.stagedir)
    return platform


def pyxis_words(test: rfm.RegressionTest, wanted: Mapping[str, Any]) -> list[str]:
    """Options by which srun, whose own options they follow, starts the ranks in a container."""
    launcher = test.current_partition.launcher_type.registered_name
    if launcher != "srun":
        raise ReframeError(f"environment {test.current_environ.name}: Pyxis is for the launcher srun, not {launcher}")
    mounts = ",".join(f"{folder}:{folder}" for folder in mounted_folders(test))
    options = {"image": wanted["image"], "mounts": mounts, "workdir": test.stagedir}
    return [
        *(f"--container-{name}={shlex.quote(str(value))}" for name, value in options.items()),
        *wanted.get("options", []),
    ]


def podman_words(test: rfm.RegressionTest, wanted: Mapping[str, Any]) -> list[str]:
    """Podman for each rank, with the launcher's variables, and network, shared memory and processes of the node."""
    host = ["--env-host", *(f"--{space}=host" for space in ("network", "ipc", "pid"))]
    mounts = [f"--volume={shlex.quote(f'{folder}:{folder}')}" for folder in mounted_folders(test)]
    workdir = f"--workdir={shlex.quote(str(test.stagedir))}"
    return ["podman", "run", "--rm", *host, *mounts, workdir, *wanted.get("options", []), wanted["image"]]


#: The platforms that ReFrame does not know, and the words before the command.
OF_LAUNCH_LINE = {"Pyxis": pyxis_words, "Podman": podman_words}
