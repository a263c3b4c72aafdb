from __future__ import annotations

from tests.support.effort import effort
from tests.vendor.mutations import COUNT, MUTATIONS, run, sources


def test_what_is_mutated_is_sound() -> None:
    for source in sources():
        output = source.parse(source.text)
        assert output.problems == (), source.name
        assert output.samples, source.name


def test_no_mutated_output_is_taken_for_another_result() -> None:
    count = effort(COUNT // 10)
    outcomes, silent = run(count)
    assert [(each.source, each.kind, each.text) for each in silent] == []
    for kind in MUTATIONS:
        assert outcomes[kind, "found"] > count // 200, kind
    assert sum(number for (_, outcome), number in outcomes.items() if outcome == "found") > count // 2
    assert sum(number for (_, outcome), number in outcomes.items() if outcome == "indistinguishable") < count // 1000
