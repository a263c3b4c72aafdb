"""What the `extras` of a partition in a site's settings say beside what ReFrame knows, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fabricheck.results.fabricbench_format import PLAN_SETTINGS, is_plan_setting

#: Keys of earlier versions, and what they are called now.
RENAMED = {"lacks": "unsupported"}


def renamed_keys(extras: Mapping[str, object]) -> Iterator[str]:
    """One line for each key of an earlier version, which nothing reads any more."""
    for old, new in RENAMED.items():
        if old in extras:
            yield f"{old!r} in extras is called {new!r} now: rename it"


def most_bytes_problems(extras: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with `most_bytes`, the largest size that checks of a partition measure, in bytes."""
    most = extras.get("most_bytes", 1)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        yield f"most_bytes {most!r} in extras is no number of bytes: give a whole number, such as {1 << 20}"


def unsupported_settings(extras: Mapping[str, object], settings: Mapping[str, str]) -> str:
    """What of `settings` a partition says that it does not support, with its reasons; empty where all is supported."""
    unsupported = extras.get("unsupported")
    known = unsupported if isinstance(unsupported, dict) else {}
    needed = [f"{name}={value}" for name, value in settings.items()]
    return "; ".join(f"{each}: {known[each]}" for each in needed if each in known)


def unsupported_problems(unsupported: object) -> Iterator[str]:
    """What is wrong with the value of `unsupported`: a reason by each setting that the machine does not support."""
    if not isinstance(unsupported, dict):
        yield "unsupported is no map of settings, such as host_numa=remote, to reasons"
        return
    for setting, reason in unsupported.items():
        if not is_plan_setting(*str(setting).partition("=")[::2]):
            yield f"unsupported has {setting!r}, which is no NAME=VALUE of {', '.join(PLAN_SETTINGS)}"
        if not isinstance(reason, str) or not reason.strip():
            yield f"unsupported has {setting!r} without a reason: say what showed it, and when"
