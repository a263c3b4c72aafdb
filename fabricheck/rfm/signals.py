"""A signal that ends ReFrame is not lost where it comes while a line is logged.

ReFrame 4 turns SIGTERM and SIGHUP into an exception, once, and ignores them from then on. A handler of Python's logging
takes whatever is raised in it for a mistake of its own and goes on; with a line for every look at a job that is often.
"""

from __future__ import annotations

import logging
import sys

from reframe.core.exceptions import ForceExitError


def keep_signals() -> None:
    """Makes all handlers pass the exception on."""
    others = logging.Handler.handleError

    def handle_error(handler: logging.Handler, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, ForceExitError):
            raise error
        others(handler, record)

    logging.Handler.handleError = handle_error  # type: ignore[method-assign, assignment]
