"""nccl-tests writes the whole environment into its file: nothing of it that is not allow-listed may survive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.suites.runs import drop_environment
from fabricheck.vendor.nccl_json import clean_nccl_json
from tests.support.effort import effort
from tests.vendor.mutations import DATA
from tests.vendor.reading import read_one, read_report

SECRET = "Xq7-planted-9Zk"
FILE = (DATA / "nccl_tests" / "h200x4_all_reduce.json").read_text()


def planted(where: str) -> str:
    value = json.loads(FILE)
    if where == "env":
        value["env"] += [
            f"AWS_SECRET_ACCESS_KEY={SECRET}",
            f"NCCL_AUTH={SECRET}",
            f"http_proxy=http://me:{SECRET}@proxy",
        ]
        value["env"] += [f"OMPI_MCA_url=http://me:{SECRET}@host", f"X={SECRET}", SECRET]
    elif where == "args":
        value["args"] += ["--token", SECRET]
    elif where == "program":
        value["args"][0] = f"/home/{SECRET}/all_reduce_perf"
    elif where == "errors":
        value["errors"] = [f"TOKEN={SECRET}"]
    elif where == "host":
        value["config"]["devices"][0]["hostname"] = SECRET
    elif where == "new field":
        value["config"][SECRET] = value[SECRET] = {"a": SECRET}
    else:
        value["results"][0]["experiment_name"] = SECRET
    return json.dumps(value)


@pytest.mark.parametrize("where", ["env", "args", "program", "errors", "host", "new field", "experiment"])
def test_a_planted_secret_never_survives(where: str, tmp_path: Path) -> None:
    text = planted(where)
    assert SECRET in text
    clean = clean_nccl_json(text)
    assert clean is not None
    assert SECRET not in clean
    output = read_report(text, "x.json")
    assert SECRET not in repr(output)
    again = read_report(clean, "x.json")
    assert [each.times_ns.tolist() for each in again.samples] == [each.times_ns.tolist() for each in output.samples]
    assert again.facts == output.facts
    assert again.facts["NCCL_NVLS_ENABLE"] == "0"
    report = tmp_path / "report.json"
    report.write_text(text)
    drop_environment(report)
    assert SECRET not in report.read_text()


def test_the_recorded_file_loses_its_secret_and_nothing_that_was_measured() -> None:
    assert "not-a-real-one" in FILE
    clean = clean_nccl_json(FILE)
    assert clean is not None
    assert "SECRET" not in clean
    assert "not-a-real-one" not in clean
    assert json.loads(clean)["env"] == ["NCCL_NVLS_ENABLE=0"]
    assert read_report(clean).problems == ()


@settings(max_examples=effort(200), deadline=None)
@given(cut=st.integers(0, len(FILE) - 1))
def test_nothing_is_stored_of_a_file_that_was_cut_off(cut: int) -> None:
    assert clean_nccl_json(FILE[:cut]) is None
    output = read_report(FILE[:cut], "x.json")
    assert output.problems
    assert "not-a-real-one" not in repr(output)


def test_a_quoted_line_holds_no_secret() -> None:
    line = f"8   SECRET_TOKEN={SECRET}   14.23\n"
    begin = "# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n"
    for text in (line, f"1 2 srun: error: password: {SECRET}\n"):
        output = read_one(begin + text, "out.txt")
        assert output.problems and SECRET not in repr(output)
