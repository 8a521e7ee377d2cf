"""Damage to bytes and to JSON, whatever they mean."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any

NUMBERS = (0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 100, 127, 128, 255, 256, 4095, 32767, 32768, 65535, 65536, 99999)
NUMBERS += (
    10**6, 2**24, 2**28 + 1, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
NAMES = (
    "a[/b]", "[bold]x", "\x1b[31mred", "new\nline", "=1+1", "+x", "@x", "-1", "ü" * 40, "x" * 200, "a\tb", "a\r",
    "‮abc",
    "\x9b31m", "a b", "%s%n", "{0}", "\\", "'", '"', "a,b", "\udcff\udcfe", "[", "[]", "[red", "x[/]",
)  # fmt: skip

Mutation = Callable[[bytearray, random.Random], None]


def number(rng: random.Random) -> int:
    """A number that a length, count or offset should not be."""
    value = rng.choice(NUMBERS)
    return value + rng.choice((-1, 0, 0, 1)) if rng.random() < 0.3 else value


def _place(data: bytearray, rng: random.Random) -> int:
    """Headers, and often ends, matter most."""
    reach = rng.choice((len(data), 64, 300, 1000))
    at = rng.randrange(max(1, min(len(data), reach)))
    return len(data) - 1 - at if data and rng.random() < 0.15 else at


def _range(data: bytearray, rng: random.Random) -> slice:
    at = _place(data, rng)
    return slice(at, min(len(data), at + rng.choice((1, 2, 4, 8, 16, 50, 400))))


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[_place(data, rng) :]


def flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[_place(data, rng)] ^= 1 << rng.randrange(8)


def put_byte(data: bytearray, rng: random.Random) -> None:
    data[_place(data, rng)] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))


def put_number(data: bytearray, rng: random.Random) -> None:
    size, at = rng.choice((2, 4, 4, 8)), _place(data, rng)
    if rng.random() < 0.7:
        at -= at % min(size, 4)
    content = (number(rng) % 2 ** (8 * size)).to_bytes(size, rng.choice(("little", "big")))
    data[at : at + size] = content[: len(data) - at]


def swap(data: bytearray, rng: random.Random) -> None:
    a, b = _range(data, rng), _range(data, rng)
    data[a], data[b] = data[b], data[a]


def remove(data: bytearray, rng: random.Random) -> None:
    del data[_range(data, rng)]


def repeat(data: bytearray, rng: random.Random) -> None:
    part = _range(data, rng)
    data[part.start : part.start] = data[part] * rng.choice((1, 2, 30))


def fill(data: bytearray, rng: random.Random) -> None:
    part = _range(data, rng)
    data[part] = bytes([rng.choice((0, 255, 32, 48))]) * (part.stop - part.start)


def insert(data: bytearray, rng: random.Random) -> None:
    at = _place(data, rng)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8, 40)))


MUTATIONS: tuple[Mutation, ...] = (
    truncate, flip, flip, put_byte, put_number, put_number, swap, remove, repeat, fill, insert,
)  # fmt: skip


def damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """The content after one or a few mutations, and the name of the first."""
    data, names = bytearray(content), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if data:
            mutation = rng.choice(MUTATIONS)
            mutation(data, rng)
            names.append(mutation.__name__)
    return names[0] if names else "nothing", bytes(data)


def edit(fields: dict[str, Any], rng: random.Random, values: Callable[[str, random.Random], Any]) -> str:
    """Replace one or two fields in place; the name of the first."""
    chosen = rng.sample(sorted(fields), min(len(fields), rng.choice((1, 1, 1, 2))))
    for name in chosen:
        fields[name] = values(name, rng)
    return chosen[0]


# ---------------------------------------------------------------------- JSON

_DEEP, _LONG, _NAN, _INF, _BIG = "@deep@", "@long@", "@nan@", "@inf@", "@big@"
_LITERAL = {_DEEP: "[" * 5000 + "]" * 5000, _LONG: "1" + "0" * 5000, _NAN: "NaN", _INF: "-Infinity", _BIG: "1e999"}
LEAVES: tuple[Any, ...] = (
    None, True, False, [], {}, "", "gap", [[]], [None], {"name": "gap"}, {"a": 1}, -1, 0, 1, 2, 3, 0.5, -0.0, 1.5,
    2**31, 2**53, 2**63,
    2**64, 10**30, -(2**70), 10**400, 1e-300, 1e30, 1e308, 5e-324, "1", "nan", "x" * 3000, [1] * 300, list(range(20)),
    [1, "a"], [0.5],
    [-1, -1, -1], [1e9, 1, 1], {"x": {"x": {"x": []}}}, _DEEP, _LONG, _NAN, _INF, _BIG, "\x00", "\ud800", *NAMES,
)  # fmt: skip


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, inner in items for found in _paths(inner, (*path, key)))]


def edit_json(value: Any, rng: random.Random) -> tuple[str, Any]:
    """The value (its containers copied) with a leaf or branch replaced, removed, renamed or repeated."""
    value = json.loads(json.dumps(value))
    what = "nothing"
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        *path, last = rng.choice(_paths(value)[1:] or [(None,)])
        inner = value
        for key in path:
            inner = inner[key]
        if last is None or (isinstance(inner, dict) and last not in inner):
            continue
        what = rng.choice(("replace", "replace", "replace", "replace", "scale", "remove", "rename", "add"))
        if what == "remove":
            del inner[last]
        elif what == "rename" and isinstance(inner, dict):
            inner[rng.choice(NAMES)] = inner.pop(last)
        elif what == "add" and isinstance(inner, dict):
            inner[rng.choice((*NAMES, "name", "settings", "about"))] = deepcopy(rng.choice(LEAVES))
        elif what == "scale" and type(inner[last]) in (int, float):
            factor = rng.choice((-1, 10, 1000, 10**6, 10**12, 0.5, 1e-12))
            with suppress(OverflowError):  # a fraction of an integer that no float holds
                inner[last] *= factor
        else:
            inner[last] = deepcopy(rng.choice(LEAVES))
    return f"json {what}", value


def dump_json(value: Any) -> str:
    """As JSON, with what Python would not write (deep nests, long numbers, NaN) put in afterwards."""
    text = json.dumps(value)
    for mark, literal in _LITERAL.items():
        text = text.replace(f'"{mark}"', literal)
    return text


def bits(number: int, form: str) -> bytes:
    """A number in a struct format of one integer, cut to its size."""
    size = struct.calcsize(form)
    return (number % 2 ** (8 * size)).to_bytes(size, "big" if form[0] == ">" else "little")
