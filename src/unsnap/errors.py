"""The one exception a user's file or argument can cause, and how text from outside is shown."""

from __future__ import annotations

import os
import unicodedata
from typing import Any

_LONGEST = 2000
# Controls, marks that turn the direction of writing, halves of pairs (bytes of a name that is no UTF-8), line ends.
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"  # some scripts need them


def printable(text: object) -> str:
    r"""Text from outside as one line that moves nothing on a terminal: what cannot be seen is written as its code.

    >>> print(printable("a\x1b[2Jb\nc"))
    a\x1b[2Jb\nc
    """
    return "".join(c if c.isprintable() else _code(c) for c in str(text))


def short(value: Any) -> str:
    """A value for an error message: its repr, cut where it is long."""
    if isinstance(value, int) and abs(value) >= 10**18:
        return f"a number of about {int(value.bit_length() * 0.30103) + 1} digits"
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__} that cannot be written down"
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def _code(c: str) -> str:
    if c in _JOINERS or unicodedata.category(c) not in _UNSEEN:
        return c
    if "\udc80" <= c <= "\udcff":  # a byte that Python could not decode
        return f"\\x{ord(c) - 0xDC00:02x}"
    return c.encode("unicode_escape").decode("ascii")


class InputError(ValueError):
    """Bad input: one sentence that names the file or argument, the rule, the value, and the remedy.

    The command line prints the sentence and leaves with exit code 2; nothing is written.
    """

    def __init__(self, sentence: str) -> None:
        text = printable(sentence)
        middle = f" … ({len(text)} characters) … "
        super().__init__(text if len(text) <= _LONGEST else text[: _LONGEST // 2] + middle + text[-_LONGEST // 4 :])


_NO_MEMORY = "there is not enough memory for this input; use fewer snapshots (--snapshots N) or a smaller size"
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "Storage size calculation overflowed")


def sentence(error: BaseException) -> str | None:
    """What a person is told of an exception that bad input or a small machine causes; None if nobody foresaw it."""
    if isinstance(error, InputError):
        return str(error)
    # torch has no exception of its own for a CPU without memory
    said = isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
    if said or isinstance(error, MemoryError):
        return _NO_MEMORY
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        name = f"file {error.filename}" if isinstance(error.filename, int) else os.fsdecode(error.filename)
        return f"{name} cannot be used ({error.strerror}); check the path and its permissions"
    return None
