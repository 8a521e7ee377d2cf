"""Things by name: what the package brings, what a plug-in registers, and what other packages offer as entry points."""

from __future__ import annotations

import difflib
import importlib.metadata
from collections.abc import Callable
from typing import TypeVar

from unsnap.errors import InputError

T = TypeVar("T")


class Registry(dict[str, T]):
    """A dictionary by name; `find` also looks among the entry points `unsnap.KINDs` of installed packages.

    of: what the values are, or what they are subclasses of. listed: where many names are listed, for messages.

    >>> COLOURS = Registry("colour", {"red": 1})
    >>> COLOURS.register("blue", 2)
    2
    >>> COLOURS.find("blue")
    2
    """

    def __init__(self, kind: str, known: dict[str, T], of: type = object, listed: str = "") -> None:
        super().__init__(known)
        self.kind, self.of, self.listed = kind, of, listed
        self.group = f"unsnap.{kind}es" if kind.endswith("s") else f"unsnap.{kind}s"
        self.broken: dict[str, str] = {}
        """Entry points that could not be loaded, and why."""

    def register(self, name: str, value: T) -> T:
        """Make a value known under a name that is free, or that it had when its module was loaded before."""
        if not (isinstance(value, self.of) or (isinstance(value, type) and issubclass(value, self.of))):
            raise InputError(f"{self.kind} {name!r} must be a {self.of.__name__}, got {value!r}")
        if name in self and _origin(self[name]) != _origin(value):
            raise InputError(f"the name {name!r} is taken by another {self.kind}; register yours under a new name")
        self[name] = value
        return value

    def named(self, name: str) -> Callable[[T], T]:
        """`register` as a decorator."""
        return lambda value: self.register(name, value)

    def find(self, name: str) -> T:
        """The value of this name; an InputError suggests the nearest names, or says where all of them are."""
        if name not in self:
            self._load(name)
        if name not in self:
            near = difflib.get_close_matches(name, self, n=3, cutoff=0.4) or ([] if self.listed else list(self))
            guess = f"; did you mean {', '.join(near)}?" if near else f"; {self.listed}" if self.listed else ""
            raise InputError(f"{self.kind} {name!r} is not known{guess} (what a plug-in brings needs --plugin FILE.py)")
        return self[name]

    def discover(self) -> Registry[T]:
        """This registry with everything that installed packages offer and that can be loaded."""
        for name in importlib.metadata.entry_points(group=self.group).names:
            try:
                self._load(name)
            except InputError as error:
                self.broken[name] = str(error)
        return self

    def name_of(self, value: T) -> str | None:
        """The name of a value, which may be an entry point of its package, or None."""
        names = [name for name, known in self.items() if known is value]
        names = names or [name for name, known in self.discover().items() if known is value]
        return names[0] if names else None

    def _load(self, name: str) -> None:
        for entry in importlib.metadata.entry_points(group=self.group, name=name):
            if name in self:
                continue
            try:
                self.register(name, entry.load())
            except (Exception, SystemExit) as error:  # a package may raise anything when it is imported
                package = entry.dist.name if entry.dist is not None else entry.value
                raise InputError(
                    f"{self.kind} {name!r} of the package {package} cannot be loaded ({error}); repair or remove it"
                ) from error


def _origin(value: object) -> object:
    """Classes and functions are known by where they were written: a module that is loaded again brings new objects."""
    if isinstance(value, type) or callable(value):
        return getattr(value, "__module__", None), getattr(value, "__qualname__", id(value))
    return id(value)
