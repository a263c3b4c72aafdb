"""Errors that are the user's to fix."""


class UserError(Exception):
    """A mistake in what the user gave us, as one line that says what, where and what to do."""


#: Exit status of a command that was given something wrong.
EXIT_USER_ERROR = 2
