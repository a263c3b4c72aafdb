"""Whatever a paste looks like, a reader has its values or says what is wrong with it; never another value."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from tests.support.effort import effort
from tests.vendor.paste import Values
from tests.vendor.pastes import TOOLS, draw_paste
from tests.vendor.reading import read_all


def values_of(text: str, asked: dict[str, Any]) -> tuple[Values, list[str]]:
    """The rates that are read, of pairs the lowest, and the problems."""
    values: Values = {}
    outputs = read_all(text, **asked)
    for output in outputs:
        for sample in output.samples:
            if sample.placement != "in-place":
                key = (sample.operation, sample.bytes)
                rate = float(sample.goodput_gbps[0])
                values[key] = min(values.get(key, rate), rate)
    return values, [problem.message for output in outputs for problem in output.problems]


@pytest.mark.parametrize("kind", TOOLS)
def test_the_right_values_or_a_refusal(kind: str) -> None:
    refused = readable = 0
    for seed in range(effort(100)):
        paste = draw_paste(kind, seed)
        values, problems = values_of(paste.text, paste.asked)
        readable += bool(paste.values)
        if problems or not values:
            assert paste.refusable, (seed, problems, paste.text)
            refused += bool(paste.values) and not paste.cut
            continue
        wanted = {key: value for key, value in paste.values.items() if key in values or not paste.cut}
        assert values == {key: pytest.approx(value, rel=2e-3) for key, value in wanted.items()}, (seed, paste.text)
    assert refused <= readable // 2


def seconds_of(text: str) -> float:
    """CPU time of reading a text, the least of two."""
    times = []
    for _ in range(2):
        begin = time.process_time()
        read_all(text)
        times.append(time.process_time() - begin)
    return min(times)


@pytest.mark.quiet
@pytest.mark.parametrize("what", ["outputs", "rows", "newlines", "variables"])
def test_a_text_of_eight_times_the_length_takes_no_more_than_about_that(what: str) -> None:
    """Where time grew with the square, it would be sixty-four times as much."""
    kinds = random.Random(1).sample(sorted(TOOLS), min(effort(len(TOOLS)), len(TOOLS)))
    for kind in kinds if what in ("outputs", "rows") else ("nccl",):
        text = TOOLS[kind](random.Random(1)).text
        longest_row = max(text.splitlines(), key=lambda line: sum(word[0].isdigit() for word in line.split()))
        filling = {
            "outputs": text,
            "rows": f"{longest_row}\n",
            "newlines": "\n",
            "variables": "export NCCL_A=1 UCX_B=2\n",
        }
        small, large = (text + filling[what] * (size // len(filling[what])) for size in (1 << 14, 1 << 17))
        assert seconds_of(large) < 24 * max(seconds_of(small), 1e-3), kind
