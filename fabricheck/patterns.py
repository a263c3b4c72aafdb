"""Regular expressions that somebody wrote into a file or a command line: whether matching with them ends."""

from __future__ import annotations

import re

_MOST_REPETITIONS = 4
_LONGEST = 1000
_REPEAT = r"(?:[*+]|\{\d*,?\d*\})"


def mistake_of(pattern: str) -> str | None:
    """What is wrong with a regular expression, None where nothing is.

    Python tries all ways in which what is repeated can be divided: their number grows exponentially where a repeated
    group has a repetition or a choice in it, and with a high power where many repetitions follow each other.
    """
    if len(pattern) > _LONGEST:
        return f"has {len(pattern)} characters, and {_LONGEST} are allowed"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression: {error}"
    # Escapes and classes stand for one character, whatever is in them.
    plain = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "x", pattern)
    if len(re.findall(_REPEAT, plain)) > _MOST_REPETITIONS:
        return f"has more than {_MOST_REPETITIONS} repetitions: write several simpler ones"
    while (group := re.search(r"\(([^()]*)\)", plain)) is not None:
        inside, after = group[1].removeprefix("?:"), plain[group.end() :]
        varies = re.search(rf"{_REPEAT}|[|?]", inside) is not None
        if varies and re.match(_REPEAT, after):
            return "has a repeated group with a repetition or a choice in it: simplify it"
        plain = plain[: group.start()] + ("x?" if varies else "x") + after
    return None
