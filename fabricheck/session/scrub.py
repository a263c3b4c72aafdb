"""Secrets taken out of what others wrote into a run's folder: job scripts, logs of libraries, ReFrame's report."""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
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
    secrets = sorted(map(str.encode, secrets_of(environment)), key=len, reverse=True)
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if file.is_symlink() or not file.is_file() or not 0 < file.stat().st_size <= _LARGEST:
                continue
            content = file.read_bytes()
            # Programs and Parquet files have zeros.
            clean = content if b"\0" in content[:8192] else _clean(content, secrets)
            if clean != content:
                with whole_file(file) as new:  # a full disk costs nothing of it
                    new.write_bytes(clean)
                    shutil.copymode(file, new)


def scrub_database(database: Path, session: str, environment: Mapping[str, str]) -> None:
    """The same for what ReFrame keeps of a session in its database, where that can be written."""
    secrets = sorted(map(str.encode, secrets_of(environment)), key=len, reverse=True)
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{database}?mode=rw", uri=True)) as opened,
    ):
        opened.execute("PRAGMA secure_delete = ON")
        for (text,) in opened.execute("SELECT json_blob FROM sessions WHERE uuid = ?", (session,)).fetchall():
            clean = _clean(text.encode("utf-8", "surrogatepass"), secrets).decode("utf-8", "surrogatepass")
            if clean != text:
                opened.execute("UPDATE sessions SET json_blob = ? WHERE uuid = ?", (clean, session))
                opened.commit()


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


def _clean(content: bytes, secrets: list[bytes]) -> bytes:
    for secret in secrets:
        content = content.replace(secret, _REDACTED)
    content = _USER_INFORMATION.sub(_REDACTED, content)
    return _OPTION.sub(_without_value, content)


def _without_value(option: re.Match[bytes]) -> bytes:
    return option[1] + option[2] + _REDACTED if names_a_secret(option[1].decode()) else option[0]
