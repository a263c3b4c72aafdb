"""What `fabricheck run` changes of the ReFrame that it starts.

ReFrame reads the checks once: before the first test it says how many are to come, and waits for an answer.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any

#: Variable of ReFrame's environment: the descriptor of the socket at which it says that and waits.
BEGIN = "FABRICHECK_BEGIN"


def begin_when_told() -> None:
    """For a process of ReFrame."""
    import reframe.core.fields
    import reframe.core.variables
    import reframe.frontend.cli
    from reframe.core.warnings import ReframeDeprecationWarning
    from reframe.frontend.executors import Runner

    class Asking(Runner):  # type: ignore[misc]
        def runall(self, testcases: Any, restored_cases: Any = None) -> None:
            with socket.socket(fileno=int(os.environ.pop(BEGIN))) as run:
                run.sendall(str(len(testcases)).encode())
                run.recv(1)
            super().runall(testcases, restored_cases)

    # The checks and their variables are a hundred thousand objects that stay: to look for garbage among them again and
    # again is a tenth of the time of a list.
    gc.set_threshold(100_000)
    if BEGIN in os.environ:
        reframe.frontend.cli.Runner = Asking

    # ReFrame 4 goes through the stack for each deprecated field of a test that it makes, to suppress the warning then:
    # half of the time in which it reads the checks.
    def unless_suppressed(warn: Callable[..., None], *message: str) -> None:
        action, _, category, *_ = warnings.filters[0]
        if (action, category) != ("ignore", ReframeDeprecationWarning):
            warn(*message)

    for module in (reframe.core.fields, reframe.core.variables):
        if (warn := getattr(module, "user_deprecation_warning", None)) is not None:  # another release has another name
            module.user_deprecation_warning = functools.partial(unless_suppressed, warn)


def keep_signals() -> None:
    """For a process of ReFrame: a signal that ends it is not lost where it comes while a line is logged.

    ReFrame 4 turns SIGTERM and SIGHUP into an exception, once, and ignores them from then on. A handler of Python's
    logging takes whatever is raised in it for a mistake of its own and goes on; with a line for every look at a job
    that is often. All handlers pass that exception on.
    """
    from reframe.core.exceptions import ForceExitError

    others = logging.Handler.handleError

    def handle_error(handler: logging.Handler, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, ForceExitError):
            raise error
        others(handler, record)

    logging.Handler.handleError = handle_error  # type: ignore[method-assign, assignment]
