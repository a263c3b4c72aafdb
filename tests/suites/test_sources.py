"""Where a vendor suite comes from, and what is refused."""

from __future__ import annotations

import hashlib
import io
import tarfile
import urllib.error
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.suite import suite_root
from fabricheck.suites.sources import (
    NotAvailableError,
    Source,
    SourceKind,
    Tool,
    fetch,
    find_source,
    load_tools,
    site_setting,
)
from tests.suites.conftest import without_sum

RELEASE = Source(SourceKind.RELEASE, "")


def serve(content: bytes) -> Callable[[str, Path], None]:
    def download(url: str, file: Path) -> None:
        file.write_bytes(content)

    return download


def with_sum(tool: Tool, content: bytes) -> Tool:
    assert tool.release is not None
    return replace(tool, release=replace(tool.release, sha256=hashlib.sha256(content).hexdigest()))


def test_the_file_of_the_suite_is_valid() -> None:
    tools = load_tools(suite_root() / "config" / "vendor.yaml")
    assert set(tools) == {"osu", "nccl-tests", "rccl-tests", "imb", "oneccl", "libfabric", "ucx", "perftest"}
    assert all(tool.release is None or tool.release.sha256 for tool in tools.values())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("https://mvapich", "http://mvapich", "tools.osu.release.url"),
        ("618de3d0", "618DE3D0", "tools.osu.release.sha256"),
        ("      sha256_from: Spack", "      from: Spack", "tools.osu.release.from"),
        ("    title: OSU", "    titel: OSU", "tools.osu.tit"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (suite_root() / "config" / "vendor.yaml").read_text()
    assert old in text
    file = tmp_path / "vendor.yaml"
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=said):
        load_tools(file)


def test_a_sum_that_nobody_states_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "vendor.yaml"
    file.write_text(
        "tools: {t: {title: T, variable: FABRICHECK_T, program: t, source: [t], "
        f"release: {{version: '1', url: 'https://t/t.tar.gz', sha256: '{'0' * 64}'}}}}}}\n"
    )
    with pytest.raises(UserError, match="name the source of the sum"):
        load_tools(file)


def test_the_variable_comes_before_the_environment_and_the_release_last(osu: Tool) -> None:
    variables = {"FABRICHECK_OSU": "/a"}
    assert site_setting("osu", osu, {"vendor": {"osu": "/b"}}, variables) == "/a"
    assert site_setting("osu", osu, {"vendor": {"osu": "/b"}}, {}) == "/b"
    assert site_setting("osu", osu, {"vendor": {}}, {}) is None
    assert site_setting("osu", osu, {}, {}) == "release"
    assert site_setting("osu", osu, {"vendor": {}}, {"FABRICHECK_OSU": ""}) is None


def test_each_kind_of_source_is_told(osu: Tool, tree: Path, tarball: Path, tmp_path: Path) -> None:
    program = tmp_path / "installed" / "libexec" / "osu_latency"
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(0o755)
    assert find_source(osu, str(tree)) == Source(SourceKind.DIRECTORY, str(tree))
    assert find_source(osu, str(tarball)) == Source(SourceKind.TARBALL, str(tarball))
    assert find_source(osu, str(tmp_path / "installed")) == Source(SourceKind.PREFIX, str(tmp_path / "installed"))
    assert find_source(osu, "osu-micro-benchmarks/7.5") == Source(SourceKind.MODULE, "osu-micro-benchmarks/7.5")
    assert find_source(osu, "release").kind is SourceKind.RELEASE


def test_what_is_no_source_is_refused(osu: Tool, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no tarball")
    for name, said in (("empty", "osu_latency"), ("text", "not a tarball"), ("nowhere", "does not exist")):
        with pytest.raises(UserError, match=said) as error:
            find_source(osu, str(tmp_path / name))
        assert "FABRICHECK_OSU" in str(error.value)


def test_a_program_that_cannot_be_executed_is_not_installed(osu: Tool, tmp_path: Path) -> None:
    (tmp_path / "osu_latency").write_text("")
    with pytest.raises(UserError):
        find_source(osu, str(tmp_path))


def test_a_tarball_and_a_directory_are_laid_out(osu: Tool, tree: Path, tarball: Path, tmp_path: Path) -> None:
    for number, source in enumerate(
        (Source(SourceKind.DIRECTORY, str(tree)), Source(SourceKind.TARBALL, str(tarball)))
    ):
        laid = fetch(osu, source, tmp_path / str(number))
        assert laid is not None
        assert (laid / "configure").is_file()


def test_a_release_is_fetched_where_its_sum_is_right(osu: Tool, tarball: Path, tmp_path: Path) -> None:
    content = tarball.read_bytes()
    tree = fetch(with_sum(osu, content), RELEASE, tmp_path / "to", serve(content))
    assert tree is not None
    assert (tree / "configure").is_file()


def test_a_release_with_another_sum_is_thrown_away(osu: Tool, tarball: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the pinned file"):
        fetch(osu, RELEASE, tmp_path / "to", serve(tarball.read_bytes()))
    assert not list((tmp_path / "to").iterdir())


def test_without_a_sum_nothing_is_fetched(osu: Tool, tmp_path: Path) -> None:
    def download(url: str, file: Path) -> None:
        pytest.fail("it was fetched")

    with pytest.raises(NotAvailableError, match=r"SHA-256.*set FABRICHECK_OSU"):
        fetch(without_sum(osu), RELEASE, tmp_path / "to", download)


def test_a_tool_without_a_release_says_what_to_set(tmp_path: Path) -> None:
    tool = load_tools(suite_root() / "config" / "vendor.yaml")["rccl-tests"]
    with pytest.raises(NotAvailableError, match="set FABRICHECK_RCCL_TESTS"):
        fetch(tool, RELEASE, tmp_path / "to")


@pytest.mark.parametrize("error", [urllib.error.URLError("no route to host"), TimeoutError("timed out")])
def test_without_a_network_it_says_what_to_set(osu: Tool, error: OSError, tmp_path: Path) -> None:
    def download(url: str, file: Path) -> None:
        raise error

    with pytest.raises(NotAvailableError, match=r"cannot be fetched.*set FABRICHECK_OSU"):
        fetch(osu, RELEASE, tmp_path / "to", download)


def test_a_tarball_of_something_else_is_refused(osu: Tool, tmp_path: Path) -> None:
    file = tmp_path / "other.tar"
    with tarfile.open(file, "w") as tar:
        tar.addfile(tarfile.TarInfo("other/README"))
    with pytest.raises(UserError, match="not a source of OSU"):
        fetch(osu, Source(SourceKind.TARBALL, str(file)), tmp_path / "to")


def test_a_tarball_that_was_cut_off_is_refused(osu: Tool, tarball: Path, tmp_path: Path) -> None:
    tarball.write_bytes(tarball.read_bytes()[:40])
    with pytest.raises(UserError, match="cannot be unpacked"):
        fetch(osu, Source(SourceKind.TARBALL, str(tarball)), tmp_path / "to")


@pytest.mark.parametrize("filters", [True, False])
@pytest.mark.parametrize("by", ["name", "symbolic link", "link"])
def test_a_tarball_does_not_write_elsewhere(
    osu: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, filters: bool
) -> None:
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    file = tmp_path / "evil.tar"
    with tarfile.open(file, "w") as tar:
        member = tarfile.TarInfo("../escaped" if by == "name" else "link")
        if by == "name":
            member.size = 1
        else:
            member.type, member.linkname = (
                tarfile.SYMTYPE if by == "symbolic link" else tarfile.LNKTYPE,
                "../../escaped",
            )
        tar.addfile(member, io.BytesIO(b"x"))
    (tmp_path / "to" / "below" / "source").mkdir(parents=True)
    with pytest.raises(UserError, match="cannot be unpacked"):
        fetch(osu, Source(SourceKind.TARBALL, str(file)), tmp_path / "to" / "below")
    assert not list(tmp_path.rglob("escaped"))
