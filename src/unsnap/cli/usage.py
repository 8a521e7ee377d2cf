"""A mistake in the options is one sentence too, as every other; the help says the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperGroup

from unsnap.cli.common import BAD_INPUT, err
from unsnap.errors import printable


class Commands(TyperGroup):
    """The list of commands, which reads the options of each."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _in_one_sentence():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _in_one_sentence():
            return super().invoke(ctx)


@contextmanager
def _in_one_sentence() -> Iterator[None]:
    """Typer brings click along under a name of its own, so that its errors are known by what they can do."""
    try:
        yield
    except Exception as error:
        context = getattr(error, "ctx", None)
        if not hasattr(error, "format_message") or context is None or type(error).__name__ == "NoArgsIsHelpError":
            raise
        message = printable(" ".join(error.format_message().split())).rstrip(".")
        sentence = f"Error: {message} (see `{context.command_path} --help`)"
        err.print(sentence, style="red", markup=False, highlight=False, soft_wrap=True)
        raise SystemExit(BAD_INPUT) from None
