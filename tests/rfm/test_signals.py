"""A signal that comes while a line is logged ends ReFrame all the same."""

from __future__ import annotations

import logging

import pytest
from reframe.core.exceptions import ForceExitError

import fabricheck.rfm  # noqa: F401 (the checks import it, and with that it holds)


@pytest.mark.parametrize("error", [ForceExitError("received signal 15"), OSError("disk full")])
def test_only_the_end_passes_a_handler(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(logging.StreamHandler):  # type: ignore[type-arg]
        def format(self, record: logging.LogRecord) -> str:
            raise error

    log = logging.Logger("a job")
    log.addHandler(Broken())
    if isinstance(error, ForceExitError):
        with pytest.raises(ForceExitError):
            log.info("polling")
    else:
        log.info("polling")
        assert "disk full" in capsys.readouterr().err
