"""The exception that means: what the user gave is wrong; and the one kind of it that a search goes on after."""


class InputError(ValueError):
    """A file, flag or value from outside cannot be used.

    The message is one sentence that names the file, line or field and the remedy. Scripts print it and
    exit with status 1; any other exception is a defect of ours and keeps its traceback.
    """


class Diverged(InputError):
    """Training came to a loss that is no longer finite."""
