"""Named tuning profiles: the environment variables that a system needs, each with what is known about it.

A profile is what was found on one system with one software stack. `default` is empty: it measures what users get who
set nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fabricheck.errors import UserError
from fabricheck.patterns import mistake_of
from fabricheck.results.environment import VARIABLES, is_recorded
from fabricheck.yamlfile import Place, YamlFile, read_yaml

Library = Literal["ccl", "mpi", "gpu"]
Without = Literal["fails", "harms"]

#: The key in the extras of an environment that `upgrade` writes: variables with the value to try, None to unset them.
TRIED = "tried"

_NUMBER = r"0|[1-9][0-9]*"
_POSITIVE = r"[1-9][0-9]*"
_SWITCH = r"0|1"

# Values that the libraries accept, by variable, as regular expressions for the whole value. A library ignores a value
# that it does not know, and the run would measure the default under the name of the tuning.
ACCEPTED: Mapping[str, str] = {
    "NCCL_NET_GDR_LEVEL": r"LOC|PIX|PXB|PHB|SYS|[0-5]",  # a number is the older form: 3 is PHB
    "NCCL_P2P_LEVEL": r"LOC|NVL|PIX|PXB|PHB|SYS",
    "NCCL_IGNORE_CPU_AFFINITY": _SWITCH,
    "NCCL_NCHANNELS_PER_PEER": _POSITIVE,
    "NCCL_IB_SL": _NUMBER,
    "NCCL_NET": r".+",
    "NCCL_NVLS_ENABLE": r"0|1|2",
    "NCCL_PROTO": r"\^?(LL|LL128|Simple)(,(LL|LL128|Simple))*",
    "UCX_IB_SL": rf"{_NUMBER}|auto",
    "UCX_RNDV_SCHEME": r"auto|get_zcopy|put_zcopy|get_ppln|put_ppln|am|rkey_ptr",
    # A list that leaves the device transports out makes UCX stage through the host without a word.
    "UCX_TLS": r"all|(?=.*\b(cuda|cuda_ipc|rocm|rocm_ipc)\b).+",
    "HSA_ENABLE_SDMA": _SWITCH,
    "HSA_ENABLE_PEER_SDMA": _SWITCH,
    "HSA_XNACK": _SWITCH,
    "MPICH_GPU_SUPPORT_ENABLED": _SWITCH,
    "MPICH_GPU_IPC_THRESHOLD": _POSITIVE,
    "MPICH_GPU_ALLREDUCE_BLK_SIZE": _POSITIVE,
    "OMPI_MCA_btl": r"\^?[a-z][a-z0-9_]*(,[a-z][a-z0-9_]*)*",
    "MPICH_OFI_NIC_POLICY": r"NUMA|GPU|ROUND-ROBIN",
    "FI_CXI_RX_MATCH_MODE": r"hardware|software|hybrid",
    "FI_CXI_RDZV_PROTO": r"default|alt_read",
    "MPIR_CVAR_ENABLE_GPU": _SWITCH,
    "MPIR_CVAR_CH4_OFI_ENABLE_GPU_PIPELINE": _SWITCH,
    "MPIR_CVAR_CH4_OFI_ENABLE_GPU_RDMA": _SWITCH,
    "CCL_ALLREDUCE": r"topo|direct|rabenseifner|nreduce|ring|double_tree|recursive_doubling|2d",
    "CCL_ALLREDUCE_SCALEOUT": r"direct|rabenseifner|nreduce|ring|double_tree|recursive_doubling",
    "CCL_BCAST": r"topo|direct|ring|double_tree|naive",
    "CCL_ZE_CACHE_OPEN_IPC_HANDLES_THRESHOLD": _POSITIVE,
    "ZE_FLAT_DEVICE_HIERARCHY": r"FLAT|COMPOSITE|COMBINED",
    "FI_MR_CACHE_MONITOR": r"userfaultfd|kdreg2|memhooks|disabled",
}


_Text = Annotated[str, Field(min_length=1)]


class TuningVariable(BaseModel):
    """One variable of a profile.

    `library`: who reads it (`ccl`: NCCL or RCCL; `mpi`; `gpu`: the GPU runtime, and so everybody). `systems`: where
    the source saw it work. `effect`: what the source says it does there. `source`: paper and section, or page.
    `without`: what taking it away does where that is not a question of speed: nothing runs (`fails`), or the
    machine may come to harm (`harms`), so that it must not be tried. `accepts`: its values, where they are
    not among `ACCEPTED`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    variable: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9_]*$")]
    value: _Text
    """as text, in quotes"""
    library: Library
    systems: Annotated[list[_Text], Field(min_length=1)]
    effect: _Text
    source: _Text
    without: Without | None = None
    accepts: _Text | None = None


@dataclass(frozen=True)
class Profile:
    """A named list of settings."""

    name: str
    description: str
    settings: tuple[TuningVariable, ...]

    def environment(self, libraries: Collection[Library]) -> dict[str, str]:
        """Variables and values of the settings that any of `libraries` reads."""
        return {each.variable: each.value for each in self.settings if each.library in libraries}


@dataclass(frozen=True)
class Profiles:
    """The profiles of one file."""

    path: str
    profiles: tuple[Profile, ...]

    def profile(self, name: str) -> Profile:
        """The profile of that name. Raises UserError, naming those that exist, where there is none."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        names = ", ".join(each.name for each in self.profiles)
        raise UserError(f"{self.path}: has no tuning profile {name!r}: choose from {names}")


class ProfileEntry(BaseModel):
    """The variables that one system needs."""

    model_config = ConfigDict(extra="forbid", strict=True)

    description: _Text
    settings: list[TuningVariable]


class _FileModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    profiles: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")], ProfileEntry]


def load_profiles(path: str | PathLike[str]) -> Profiles:
    """The tuning profiles of a YAML file such as config/tuning.yaml.

    Raises UserError, naming file, line and field: for unknown and missing fields, for a value that is not text (YAML
    reads `0x10` or `on` in unintended ways), for one that the variable does not accept, for a variable that is
    set twice in a profile, and for one that is not among `ACCEPTED` and does not state what it `accepts`.
    """
    file = read_yaml(Path(path))
    content = file.validated(_FileModel.model_validate)
    profiles = []
    for name, profile in content.profiles.items():
        seen: set[str] = set()
        for number, setting in enumerate(profile.settings):
            place = ("profiles", name, "settings", number)
            accepted = _accepted(file, place, setting)
            if not accepted.fullmatch(setting.value):
                file.fail(
                    (*place, "value"),
                    f"{setting.variable} does not accept {setting.value!r}: it has to match {accepted.pattern}",
                )
            if setting.variable in seen:
                file.fail((*place, "variable"), f"{setting.variable} is set twice in this profile")
            seen.add(setting.variable)
        profiles.append(Profile(name, profile.description, tuple(profile.settings)))
    return Profiles(str(path), tuple(profiles))


def _accepted(file: YamlFile, place: Place, setting: TuningVariable) -> re.Pattern[str]:
    """The values that a variable takes: as known here, else as the setting says itself."""
    name = setting.variable
    known = ACCEPTED.get(name)
    if known is not None:
        if setting.accepts is not None:
            file.fail((*place, "accepts"), f"the values of {name} are known, {known}: leave this out")
        return re.compile(known)
    if setting.accepts is None:
        file.fail(
            (*place, "variable"),
            f"{name} is unknown: correct the name, or give its values in `accepts`, a regular expression",
        )
    if not is_recorded(name):
        file.fail(
            (*place, "variable"),
            f"{name} is not recorded by fabricbench ({VARIABLES}): no run could prove it",
        )
    if (mistake := mistake_of(setting.accepts)) is not None:
        file.fail((*place, "accepts"), mistake)
    return re.compile(setting.accepts)


def require_accepted(variable: str, value: str) -> None:
    """Raises UserError for a value that the variable does not take, and for a variable that no run could prove."""
    known = ACCEPTED.get(variable)
    if known is not None and re.fullmatch(known, value) is None:
        raise UserError(f"{variable} does not accept {value!r}: it has to match {known}")
    if not is_recorded(variable):
        raise UserError(f"{variable} is not recorded by fabricbench ({VARIABLES}): no run could prove it")


def removed(profiles: Collection[Profile], variable: str) -> dict[str, None]:
    """The variables to unset to measure profiles without `variable`, or without all that can be removed at once, where
    that is empty. Raises UserError where there are none, and for one that the machine needs for its safety.
    """
    settings = [setting for profile in profiles for setting in profile.settings]
    names = " and ".join(profile.name for profile in profiles)
    if not variable:
        chosen = [setting for setting in settings if setting.without is None]
    else:
        chosen = [setting for setting in settings if setting.variable == variable]
        if any(setting.without == "harms" for setting in chosen):
            raise UserError(f"the tuning profile {names} needs {variable} for safety: it is not removed")
    if not chosen:
        has = ", ".join(setting.variable for setting in settings) or "no variable"
        raise UserError(f"there is nothing to remove: the tuning profile {names} has {has}")
    return dict.fromkeys(setting.variable for setting in chosen)


def libraries_of(transport: str) -> tuple[Library, ...]:
    """Whose settings a transport obeys: the GPU runtime's always, and those of the library that moves the data."""
    if transport == "ccl":
        return ("gpu", "ccl")
    return ("gpu", "mpi") if transport == "mpi" else ("gpu",)
