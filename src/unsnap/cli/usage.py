"""The list of commands: each is loaded when it is called, and a mistake in its options is one sentence."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from unsnap.cli.console import BAD_INPUT, err
from unsnap.errors import printable

NAMES = (
    "reconstruct", "watch", "inspect", "calibrate", "simulate", "compare", "bench", "methods", "certify", "import",
    "export", "train", "adapt", "cookbook", "demo", "studio",
)  # fmt: skip
"""The commands, in the order of the help: `command` in the module of the same name."""


class Commands(TyperGroup):
    """The list of commands, which reads the options of each.

    Torch takes seconds to import, and the help needs none of it: of a command that is only named there the source is
    read, and the module imported when the command is called.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast(Any, dict.fromkeys(NAMES))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What the help shows of it."""
        return TyperCommand(cmd_name, callback=None, help=_purpose(cmd_name)) if cmd_name in NAMES else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, known, rest = super().resolve_command(ctx, args)
        return name, known and load(cast(str, name)), rest

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _in_one_sentence():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with _in_one_sentence():
            return super().invoke(ctx)


@cache
def load(name: str) -> Any:
    """The command itself."""
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    alone.command(name)(function(name))
    return typer.main.get_command(alone)


def function(name: str) -> Callable[..., Any]:
    """What a command calls."""
    from unsnap.cli.common import guarded

    return guarded(cast(Callable[..., Any], import_module(_module(name)).command))


def _module(name: str) -> str:
    return f"unsnap.cli.{name}_" if name == "import" else f"unsnap.cli.{name}"


def _purpose(name: str) -> str | None:
    """The docstring of a command whose module is not loaded."""
    spec = find_spec(_module(name))
    source = cast(Any, spec.loader).get_source(spec.name) if spec else None
    found = [part for part in ast.parse(source or "").body if isinstance(part, ast.FunctionDef)]
    return next((ast.get_docstring(part) for part in found if part.name == "command"), None)


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
