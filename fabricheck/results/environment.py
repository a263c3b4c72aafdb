"""Which environment variables may be stored, and what of values and command lines: any other may hold a secret.

fabricbench records by the same list (src/data/variables.txt) and the same rules (src/fabricbench/secrets.cpp);
src/data/secrets.txt has the cases that both are tested with.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from fabricheck.errors import refused
from fabricheck.suite import suite_root

#: Where the names lie in a suite.
VARIABLES = "src/data/variables.txt"
REDACTED = "<redacted>"
# Parts of the names of credentials, for lines of which nothing else is known.
_SECRET_PARTS = ("TOKEN", "SECRET", "PASSW", "PASSPHRASE", "PWD", "CREDENTIAL", "_KEY", "APIKEY", "AUTH", "PSK")
_KEY_WORDS = (
    *("password", "passwd", "passphrase", "pwd", "token", "secret", "apikey", "accesskey", "privatekey", "bearer"),
    *("psk", "credential", "cookie", "authkey", "authtoken", "authorization", "auth"),
)
_SHORTEST_RANDOM, _FEWEST_DISTINCT = 16, 10

_ASSIGNMENT = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*)\s*(?:=\s*|:\s+)(?=\S)")
_USER_INFORMATION = re.compile(r"://[^/?#\"' \t,;]*@")
_NAME = re.compile(r"(?<![A-Za-z0-9_-])([A-Za-z0-9_-]+)[\"']*[=: ][=: \"']*(?![=: \"']|\Z)")
_PIECE = re.compile(r"[A-Za-z0-9]+")
# Folders of a path may have a hash in their names.
_PATH = re.compile(r"(?:(?<=[:,;= \t])|\A)/[^:,;= \t]*")
_KINDS = str.maketrans("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 10 * "0" + 26 * "A" + 26 * "a")


@lru_cache(maxsize=1)
def recorded_variables() -> frozenset[str]:
    """The names of the variables that may be recorded."""
    # Beside this package, as the suite that a test or a site makes for itself need not have src/.
    beside = Path(__file__).resolve().parents[2] / VARIABLES
    file = beside if beside.exists() else suite_root() / VARIABLES
    with refused(f"{file}:", "read"):
        text = file.read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def is_recorded(name: str) -> bool:
    """Whether the variable `name` may be stored."""
    return name in recorded_variables()


def is_secret(value: str) -> bool:
    """Whether a value looks like a credential: user information in a URL, a key word and a value, random characters."""
    if _USER_INFORMATION.search(value) is not None:
        return True
    if any(names_a_secret(match[1]) for match in _NAME.finditer(value)):
        return True
    return any(_is_random(piece) for piece in _PIECE.findall(_PATH.sub(" ", value)))


def names_a_secret(name: str) -> bool:
    """Whether the name of a variable or an option is that of a credential, such as MY_TOKEN or --api-key."""
    return name.lower().replace("-", "").replace("_", "").removesuffix("s").endswith(_KEY_WORDS)


def _is_random(piece: str) -> bool:
    """Whether it changes between digits, capitals and small letters as random characters do."""
    kinds = piece.translate(_KINDS)
    changes = sum(one != other for one, other in itertools.pairwise(kinds))
    return (
        len(piece) >= _SHORTEST_RANDOM and 10 * changes >= 3 * (len(piece) - 1) and len(set(piece)) >= _FEWEST_DISTINCT
    )


def redacted(value: str) -> str:
    """`value`, or what stands in its place where it is secret."""
    return REDACTED if is_secret(value) else value


def redacted_command(words: Sequence[str]) -> list[str]:
    """A command line without the words that are secret, or follow on an option such as --token."""
    before = ["", *words[:-1]]
    return [
        REDACTED if one.startswith("-") and names_a_secret(one) else redacted(word)
        for one, word in zip(before, words, strict=True)
    ]


def recorded_environment(entries: Iterable[str]) -> dict[str, str]:
    """The variables that may be stored, of entries `NAME=value` as `env` prints them; all others are dropped."""
    pairs = (entry.partition("=") for entry in entries)
    return {name: redacted(value) for name, equals, value in pairs if equals and is_recorded(name)}


def without_values(text: str) -> str:
    """`text` with what follows the first `NAME=` or `NAME: ` that may not be stored cut off, for quoting a line.

    `text` without a name that is to be kept secret comes back as it is. A plain `name: value` is cut only where the
    name looks like a credential, because tools print `name: value` of their own.
    """
    for match in _ASSIGNMENT.finditer(text):
        name = match[1]
        secret = any(part in name.upper() for part in _SECRET_PARTS)
        if secret or ("=" in match[0] and not is_recorded(name)):
            return text[: match.end()] + "…"
    return text if not is_secret(text) else "…"


# What srun and the mpirun of Open MPI, MPICH and Intel MPI tell the ranks that they start: no tuning, and wrong in
# another run. Open MPI 4 passes on how it was told to place them, 5 does not; the cores of each rank are recorded.
_OF_LAUNCHER = re.compile(
    r"SLURMD_NODENAME|OMPI_MCA_(PREFIXES|cpu_type|initial_wdir|num_procs|mpi_oversubscribe|pmix|ess|ess_.*|orte_.*)"
    r"|OMPI_MCA_(rmaps_base_.*|hwloc_base_binding_policy)|PMIX_MCA_mca_base_component_show_load_errors"
    r"|MPIR_CVAR_CH3_INTERFACE_HOSTNAME"
    r"|I_MPI_(INFO_.*|INTERNAL_.*|HYDRA_UUID|MPIRUN|PIN_INFO|PIN_MAPPING|RETURN_WIN_.*|BIND_WIN_.*)"
)


def set_by_launcher(variable: str) -> bool:
    """Whether mpirun sets the variable itself, so that it is not tuning and differs from run to run."""
    return _OF_LAUNCHER.fullmatch(variable) is not None
