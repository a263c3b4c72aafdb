"""Errors that are the user's to fix."""


class UserError(Exception):
    """A mistake in what the user gave us, as one line that says what, where and what to do."""


#: Exit status of a command that was given something wrong.
EXIT_USER_ERROR = 2


def reason_of(error: Exception) -> str:
    """Why something ended, in one line: the message of a UserError, of any other with what kind of error it is."""
    text = " ".join(str(error).split())
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
