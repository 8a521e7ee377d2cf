"""The one exception a user's file or argument can cause."""


class InputError(ValueError):
    """Bad input: one sentence that names the file or argument, the rule, the value, and the remedy.

    The command line prints the sentence and leaves with exit code 2; nothing is written.
    """
