"""Values from a file or a command line against the annotations of what takes them: kind, range, length.

The table is the annotation itself: `batch: Annotated[int, Within(1, 4096)]`. Bare `int` and `float` mean finite
numbers of a size that a machine can hold; what is annotated by nothing, or by something unknown here, is let through.
"""

from __future__ import annotations

import inspect
import json
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from unsnap.errors import InputError, short

_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    dict: "a dictionary",
    Mapping: "a dictionary",
}


class Within(NamedTuple):
    """From low to high, both allowed; of a list, text or dictionary the length."""

    low: float
    high: float

    def holds(self, value: Any) -> bool:
        size = value if isinstance(value, (int, float)) else len(value)
        return bool(self.low <= size <= self.high)  # NaN is nowhere


_DEFAULT = {int: Within(-(2**63), 2**63 - 1), float: Within(-1e300, 1e300)}
TINY = 1e-30
"""Stands for a number above 0: nothing below it makes a difference to anything here."""
Count = Annotated[int, Within(1, 2**20)]
Share = Annotated[float, Within(0, 1)]
Size = Annotated[float, Within(0, 1e30)]
Positive = Annotated[float, Within(TINY, 1e30)]
Seed = Annotated[int, Within(0, 2**63 - 1)]


def kinds(make: Callable[..., Any]) -> dict[str, Any]:
    """What the arguments of a class or function are annotated by; nothing for what cannot be told."""
    own = getattr(make, "__init__") if isinstance(make, type) and not is_dataclass(make) else make  # noqa: B009
    try:
        hints = get_type_hints(own, include_extras=True)
        names = inspect.signature(make).parameters
    except (NameError, TypeError, ValueError, AttributeError):  # a plug-in may annotate by what is not importable
        return {}
    return {name: hints[name] for name in names if name in hints}


def check(owner: str, make: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Every value as the argument of its name asks for; an InputError names the first that is not."""
    hints = kinds(make)
    for name, value in values.items():
        if name in hints:
            require(f"{owner}{name}", value, hints[name])


def require(name: str, value: Any, kind: Any) -> None:
    """One value."""
    if not fits(value, kind):
        raise InputError(f"{name} must be {described(kind)}, got {short(value)}")


def fits(value: Any, kind: Any) -> bool:
    """Is it of this kind?"""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = [bound for bound in args[1:] if isinstance(bound, Within)]
        inner = _is_number(value, args[0]) if bounds and args[0] in _DEFAULT else fits(value, args[0])
        return inner and all(bound.holds(value) for bound in bounds)
    if origin in (Union, types.UnionType):
        return any(fits(value, arg) for arg in args)
    if origin is Literal:
        return any(value == arg and type(value) is type(arg) for arg in args)
    if kind in (int, float):
        return _is_number(value, kind) and _DEFAULT[kind].holds(value)
    if origin in (tuple, list, Sequence):
        if not isinstance(value, (list, tuple)):
            return False
        each = args[:1] * len(value) if origin is not tuple or args[-1] is ... else args
        return len(each) == len(value) and all(map(fits, value, each))
    try:
        return isinstance(value, origin or kind)
    except TypeError:  # Any, a type variable, a protocol that cannot be asked: unknown here
        return True


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)


def described(kind: Any) -> str:
    """For people: `a whole number from 1 to 4096`."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return described(args[0]) + "".join(_range(bound, args[0]) for bound in args[1:] if isinstance(bound, Within))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(described(arg) for arg in args))
    if origin is Literal:
        return " or ".join(map(str, args))
    if origin in (tuple, list, Sequence) and args:
        count = "" if origin is not tuple or args[-1] is ... else f"{len(args)} values, each "
        return f"a list of {count or 'values, each '}{described(args[0])}"
    if kind is type(None):
        return "null"
    return _NAMES.get(origin or kind, getattr(kind, "__name__", str(kind)))


def parsed(text: str, source: str) -> Any:
    """The JSON in a text; an InputError for what is none, and for nests too deep to read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError, TypeError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"{source} is not JSON that can be used ({reason})") from error


def finite(value: Any) -> Any:
    """The same nest with None where a number is not finite, for which JSON has no word."""
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _range(bound: Within, kind: Any) -> str:
    low, high = (str(int(end)) if abs(end) < 1e13 and end == int(end) else f"{end:.2g}" for end in bound)
    if kind not in (int, float):
        return f", {low} of them" if low == high else f", {low} to {high} long"
    if kind is float and bound.high >= 1e30:
        return " above 0" if bound.low > 0 else f" of at least {low}"
    return f" from {low} to {high}"
