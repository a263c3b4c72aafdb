"""`make bundle-offline`: an archive that installs where there is no network."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.suite import suite_root
from fabricheck.suites import sources
from tools import offline, setup


def test_the_archive_has_the_suite_and_the_wheels(tmp_path: Path) -> None:
    wheels = tmp_path / "downloaded"
    wheels.mkdir()
    (wheels / "some-1.0-py3-none-any.whl").write_text("a wheel")
    releases = tmp_path / "releases"
    releases.mkdir()
    (releases / "v1.tar.gz").write_text("a release")
    offline.write(tmp_path / "o.tar.gz", wheels, releases)
    with tarfile.open(tmp_path / "o.tar.gz") as archive:
        names = {*archive.getnames()}
    assert {"fabricheck/Makefile", "fabricheck/src/CMakeLists.txt", "fabricheck/checks/smoke.py"} <= names
    assert {"fabricheck/wheels/some-1.0-py3-none-any.whl", "fabricheck/vendor/v1.tar.gz"} <= names
    assert not any(name.startswith(("fabricheck/.venv", "fabricheck/.git/", "fabricheck/output")) for name in names)


@pytest.mark.parametrize("has_wheels", [True, False])
def test_no_registry_is_asked_where_there_are_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_wheels: bool
) -> None:
    seen: dict[str, str] = {}
    monkeypatch.setattr(setup, "setup_run", lambda: seen.update(os.environ))
    monkeypatch.setattr(setup, "WHEELS", tmp_path if has_wheels else tmp_path / "none")
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "DEBIAN_FRONTEND"):
        monkeypatch.setenv(name, "")
    assert setup.main(["run"]) == 0
    assert (seen["PIP_NO_INDEX"], seen["PIP_FIND_LINKS"]) == (("1", str(tmp_path)) if has_wheels else ("", ""))


@pytest.mark.full
def test_it_installs_without_a_network(tmp_path: Path) -> None:
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine allows no network namespaces")
    wheels = tmp_path / "downloaded"
    wheels.mkdir()
    offline.fetch(wheels)
    (tmp_path / "releases").mkdir()
    offline.write(tmp_path / "o.tar.gz", wheels, tmp_path / "releases")
    subprocess.run(["tar", "xzf", "o.tar.gz"], cwd=tmp_path, check=True)
    suite = tmp_path / "fabricheck"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHON": sys.executable, "PIP_COMPILE": "false"}
    subprocess.run(["unshare", "-rn", "tools/setup.sh", "run"], cwd=suite, env=environment, check=True)
    job = subprocess.run(
        [suite / ".venv/bin/fabricheck", "validate", "--system", "local"], capture_output=True, text=True, check=True
    )
    assert job.stdout == "local: ok\n"
    assert suite != suite_root()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A mirror with one package, which is a proxy to other hosts as well; its address."""
    with zipfile.ZipFile(tmp_path / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        about = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        kind = "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr("tiny.py", "")
        wheel.writestr("tiny-1.0.dist-info/METADATA", about)
        wheel.writestr("tiny-1.0.dist-info/WHEEL", kind)
        wheel.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            listing = self.path.endswith("/simple/tiny/")
            page = b'<a href="/tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>'
            content = page if listing else (tmp_path / "tiny-1.0-py3-none-any.whl").read_bytes()
            self.send_response(200 if listing or self.path.endswith(".whl") else 404)
            self.send_header("Content-Type", "text/html" if listing else "application/zip")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("way", ["mirror", "proxy", "pip.conf"])
def test_mirrors_and_proxies_are_those_of_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: str, way: str
) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {registry}/simple\n" if way == "pip.conf" else "")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    if way == "mirror":
        monkeypatch.setenv("PIP_INDEX_URL", f"{registry}/simple")
    if way == "proxy":
        monkeypatch.setenv("PIP_INDEX_URL", "http://registry.invalid/simple")
        monkeypatch.setenv("PIP_TRUSTED_HOST", "registry.invalid")
        monkeypatch.setenv("HTTP_PROXY", registry)
    setup.run_pip("install", "--no-cache-dir", "--target", tmp_path / "here", "tiny==1.0", log=tmp_path / "log")
    assert (tmp_path / "here" / "tiny.py").exists()


def test_a_registry_that_does_not_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    with pytest.raises(setup.SetupError) as raised:
        setup.run_pip("download", "--retries=1", "--dest", tmp_path, "tiny", log=tmp_path / "log")
    assert "PIP_INDEX_URL" in str(raised.value) and len(str(raised.value).splitlines()) == 1
    assert "Retrying" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n  x:\n", "constraints.txt"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", "TMPDIR"),
        ("ERROR: No matching distribution found for x==1\n", "has no such version"),
        ("ERROR: something new\n", "something new"),
        ("Traceback (most recent call last):\n", "without a reason"),
    ],
)
def test_errors_of_pip_are_one_line(output: str, advice: str) -> None:
    reason = setup.reason_of_pip(output)
    assert advice in reason and len(reason.splitlines()) == 1


def test_releases_of_the_archive_are_taken_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suite" / "config").mkdir(parents=True)
    sums = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("good", "bad")}
    text = "tools:\n" + "".join(
        f"  {name}:\n    {{title: {name}, variable: FABRICHECK_X, program: x, source: [x], release: {{version: '1', "
        f"url: 'https://host.invalid/{name}.tar.gz', sha256: {sums[name]}, sha256_from: here}}}}\n"
        for name in sums
    )
    (tmp_path / "suite" / "config" / "vendor.yaml").write_text(text)
    monkeypatch.setattr(sources, "suite_root", lambda: tmp_path / "suite")

    def serve_good(url: str, file: Path) -> None:
        file.write_bytes(b"good")

    folder = tmp_path / "fetched"
    folder.mkdir()
    (line,) = sources.fetch_releases(folder, serve_good)
    assert "bad.tar.gz has the SHA-256" in line and [file.name for file in folder.iterdir()] == ["good.tar.gz"]
    folder.rename(tmp_path / "suite" / sources.RELEASES)
    tool = sources.load_tools(tmp_path / "suite" / "config" / "vendor.yaml")["good"]

    def no_network(url: str, file: Path) -> None:
        raise AssertionError(url)

    with pytest.raises(UserError, match="cannot be unpacked"):  # it is taken, and is no tarball
        sources.fetch(tool, sources.Source(sources.SourceKind.RELEASE, ""), tmp_path / "stage", no_network)
