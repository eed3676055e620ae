"""The errors that end a command with one line instead of a traceback."""


class SparseRLError(Exception):
    """Base of every error that SparseRL raises on purpose."""


class UserError(SparseRLError):
    """The user's input cannot be used: exit code 2, one line on stderr.

    The message says what was expected, what came, where (file, line, row) and what to do.
    """
