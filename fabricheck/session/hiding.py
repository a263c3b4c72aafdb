"""What is taken out of texts before others see them: secrets out of a run, names out of a bundle.

Names are those of nodes, users, projects and addresses, known ones and others; a name has the same hash throughout.
What neither is known nor looks like a name is left.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fabricheck.results.environment import REDACTED, is_recorded, is_secret, names_a_secret
from fabricheck.wholefile import whole_file

# Shorter ones stand in too many words that are none.
_SHORTEST = 6
_LARGEST = 64 << 20
_REDACTED = REDACTED.encode()
_USER_INFORMATION = re.compile(rb"(?<=://)[^/?#\"' \t\r\n,;@]*(?=@)")
# Words of a variable's name that make it a credential's.
_WORDS = re.compile(
    r"(?:\A|_)(?:TOKENS?|SECRETS?|PASS(?:W(?:OR)?D|PHRASE)?|PWD|CRED(?:ENTIAL)?S?|(?:API)?KEY|AUTH|BEARER|PSK|COOKIE|JWT)(?:_|\Z)",
    re.IGNORECASE,
)
_OPTION = re.compile(rb"(?<![\w-])(--?[A-Za-z0-9_-]+)([= ]+)(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"']+)")


def scrub(folder: Path, environment: Mapping[str, str]) -> None:
    """Takes out of the text files below `folder` what in `environment` is secret, and what looks like a credential.

    Nothing of Fabricheck's records secrets; but a library's log shows all variables that begin as its own do, and a
    job script has the launcher's options. A file that cannot be read or written is left alone.
    """
    hidden = sorted(map(str.encode, secrets_of(environment)), key=len, reverse=True)
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if file.is_symlink() or not file.is_file() or not 0 < file.stat().st_size <= _LARGEST:
                continue
            content = file.read_bytes()
            # Programs and Parquet files have zeros.
            clean = content if b"\0" in content[:8192] else _clean(content, hidden)
            if clean != content:
                with whole_file(file) as new:  # a full disk costs nothing of it
                    new.write_bytes(clean)
                    shutil.copymode(file, new)


def secrets_of(environment: Mapping[str, str]) -> set[str]:
    """The values that must not be written down; paths, numbers and what is too short to be told are left out."""
    return {text for name, value in environment.items() for text in _secret_parts(name, value)}


def _secret_parts(name: str, value: str) -> Iterator[str]:
    if is_recorded(name) and not is_secret(value):
        return
    if not is_secret(value) and _WORDS.search(name) is None:
        return
    for text in (value, *re.findall(r"://([^/?#\"' \t,;]*)@", value)):
        for part in (text, text.partition(":")[2]):
            if len(part) >= _SHORTEST and not part.startswith("/") and not part.isdecimal():
                yield part


def _clean(content: bytes, hidden: list[bytes]) -> bytes:
    for secret in hidden:
        content = content.replace(secret, _REDACTED)
    content = _USER_INFORMATION.sub(_REDACTED, content)
    return _OPTION.sub(_without_value, content)


def _without_value(option: re.Match[bytes]) -> bytes:
    return option[1] + option[2] + _REDACTED if names_a_secret(option[1].decode()) else option[0]


#: What folders of a run are called.
RUN, SUITE, HOME = "/RUN", "/SUITE", "/HOME"
# Paths below these say what is installed, and not whose it is.
_SYSTEM = "usr|lib|lib64|bin|sbin|etc|proc|sys|dev|opt|boot|cvmfs|run|RUN|SUITE"
_HEX = "[0-9A-Fa-f]"
# The hardware addresses of InfiniBand (20 bytes) and of ports (8 and 6).
_BYTES = "|".join(rf"(?:{_HEX}{{2}}[:-]){{{count - 1}}}{_HEX}{{2}}" for count in (20, 8, 6))
# What is a name by its form. A rule can have a beginning and an end that stay: `kept` and `end`.
_FORMS = (
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    # GUIDs as sysfs and ibstat have them; not the hash of a plan in fabricbench's results.
    rf"(?<![\w:])(?<!\"hash\":\")(?:{_BYTES}|(?:{_HEX}{{4}}:){{3}}{_HEX}{{4}}|0x{_HEX}{{16}}"
    rf"|(?=[0-9]*[A-Fa-f]){_HEX}{{16}})(?![\w:])",
    # Addresses of IPv6 and IPv4, but those of the node itself.
    rf"(?<![\w:.])(?=[\w:]*::|(?:{_HEX}{{1,4}}:){{7}}){_HEX}{{1,4}}(?::{_HEX}{{0,4}}){{2,7}}(?![\w:])",
    r"(?<![\w.])(?!127\.|0\.0\.)[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w.])",
    r"(?P<kept>(?:--(?:account|reservation|wckey|qos|user|uid)|\b(?:[Aa]ccount|Reservation|UserId|GroupId|User)"
    r"|(?<![\w-])-A|_(?:ACCOUNT|RESERVATION|QOS|SUBMIT_HOST))(?:[= ]|\":\s*\"))[\w.()+-]+",
    r"(?P<kept>\b(?:uid|gid|euid|UID|GID|user|pid|PID|process)[=: ]+|/run/user/)[0-9]+(?![0-9])(?:\([^)\s]*\))?",
    # The folders of a path may be a user's or a project's; a file says what it is.
    rf"(?<![\w:/.~<-])(?P<kept>/)(?!(?:{_SYSTEM})/)(?=[\w.+@~-]+/[\w.+@~:-])[\w.+@~-]+(?:/[\w.+@~:-]+)*?"
    r"(?P<end>/[\w+@~-]*\.[\w.+@~-]*)?/?(?![\w.+@~:/-])",
)


@dataclass
class Hiding:
    """Gives a text in which names are hashes of one archive. `paths`: what folders are called; the others are known
    names. A salt that is thrown away keeps others from trying names."""

    nodes: Iterable[str] = ()
    more: Iterable[str] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    _salt: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    _rules: list[re.Pattern[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        hosts = {part for node in self.nodes for part in (node.partition(".")[0], node.partition(".")[2])}
        names = {name for name in (*self.more, *hosts) if len(name) > 1}
        # Those that are numbered as known ones are nodes too, such as those that were down, and lists of them.
        known = [
            (name in hosts and _stem(name)) or _of(name) for name in sorted(names, key=lambda name: (-len(name), name))
        ]
        self._rules = [re.compile(_FORMS[0]), *(re.compile(name, re.IGNORECASE) for name in known)]
        self._rules += map(re.compile, _FORMS[1:])

    def __call__(self, text: str) -> str:
        for path in sorted(self.paths, key=len, reverse=True):
            text = re.sub(rf"{re.escape(path)}(?![\w.-])", self.paths[path], text)
        for rule in self._rules:
            text = rule.sub(self._hidden, text)
        return text

    def _hidden(self, match: re.Match[str]) -> str:
        parts = match.groupdict()
        kept, end = parts.get("kept") or "", parts.get("end") or ""
        name = match[0].removeprefix(kept).removesuffix(end)
        salted = self._salt + name.lower().encode("utf-8", "surrogateescape")
        return f"{kept}x{hashlib.sha256(salted).hexdigest()[:8]}{end}"


def _of(name: str) -> str:
    """A name wherever it stands, also in capitals or with a suffix, as of the address of a port."""
    return rf"(?<![A-Za-z0-9]){re.escape(name)}(?![0-9{'' if name[-1].isdigit() else 'A-Za-z'}])"


def _stem(node: str) -> str:
    """What names that are numbered as this one look like, and lists of them; empty where it has no number or no word
    before it."""
    parts = re.split("([0-9]+)", node)
    if len(parts) < 3 or len(re.sub("[^A-Za-z]", "", parts[0])) < 2:
        return ""
    numbered = "".join(f"[0-9]{{{len(each)}}}" if each.isdigit() else re.escape(each) for each in parts)
    return rf"(?<![A-Za-z0-9])(?:{numbered}(?![0-9])|{re.escape(parts[0])}[0-9]*\[[0-9,-]+\])"
