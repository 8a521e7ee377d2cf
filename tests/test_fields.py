"""Values against annotations: what fits, and the sentence for what does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import pytest

from unsnap.errors import InputError, printable, short
from unsnap.fields import Within, check, finite, parsed, require

DEEP = "[" * 100_000 + "]" * 100_000


class Callback(Protocol):
    def __call__(self, k: int) -> None: ...


@dataclass(frozen=True)
class Example:
    count: Annotated[int, Within(1, 64)] = 2
    ratio: float = 0.5
    name: str | None = None
    flag: bool = False
    sizes: Annotated[tuple[Annotated[int, Within(1, 8)], ...], Within(1, 3)] = (1,)
    kind: Literal["a", "b"] = "a"
    extra: dict[str, Any] | None = None
    pair: tuple[int, float] = (1, 0.5)
    bit: Literal[0, 1] = 0
    anything: Any = None
    several: list[Any] | None = None
    callback: Callback | None = None


GOOD: list[tuple[str, Any]] = [
    ("count", 64), ("ratio", 3), ("ratio", -1e30), ("name", None), ("name", "x"), ("flag", True), ("sizes", [1, 8]),
    ("kind", "b"), ("extra", {"a": DEEP}), ("unknown", object()), ("anything", object()), ("several", [1, "x"]),
    ("callback", print), ("pair", [2, 0.1]), ("bit", 1),
]  # fmt: skip
BAD: dict[str, list[Any]] = {
    "count": [0, 65, 1.0, 2.5, True, "2", None, math.nan, 10**400, [1]],
    "ratio": [math.nan, math.inf, -math.inf, "0.5", True, None, 10**400],
    "name": [3, b"x"],
    "flag": [0, 1, "true", None],
    "sizes": [[], [0], [1, 2, 3, 4], [1.5], "12", 3, None],
    "kind": ["c", None, 1],
    "extra": [[], "x"],
    "pair": [[1], [1, 0.5, 2], [0.5, 1], []],
    "bit": [True, 1.0, 2, "1"],
}


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_what_fits_is_let_through(name: str, value: Any) -> None:
    check("", Example, {name: value})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_what_does_not_fit_is_one_short_sentence_that_names_it(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name} must be") as caught:
        check("file.json: ", Example, {name: value})
    assert len(str(caught.value)) < 250


def test_a_range_is_named_with_both_ends() -> None:
    with pytest.raises(InputError, match="n must be a whole number from 1 to 64, got 0"):
        require("n", 0, Annotated[int, Within(1, 64)])


@pytest.mark.parametrize("text", [DEEP, "{", "", "1" * 5000, "nonsense"])
def test_text_that_is_no_usable_json(text: str) -> None:
    with pytest.raises(InputError, match=r"config\.json is not JSON that can be used"):
        parsed(text, "config.json")


def test_json_has_no_word_for_what_is_not_finite() -> None:
    assert finite({"a": [1.0, math.inf, (math.nan, "x")]}) == {"a": [1.0, None, [None, "x"]]}


def test_text_from_outside_moves_nothing_on_a_terminal() -> None:
    hostile = "a\x1b[2J\r\n\t\u202eb\u2028\x00\x9b\udcffc"
    assert printable(hostile) == r"a\x1b[2J\r\n\t\u202eb\u2028\x00\x9b\xffc"
    assert printable(printable(hostile)) == printable(hostile)
    assert printable("Größe · 雪 – a[/b] \\") == "Größe · 雪 – a[/b] \\"
    assert str(InputError(hostile)) == printable(hostile)
    assert len(str(InputError("x" * 10**6))) < 3000


def test_values_in_sentences_are_short() -> None:
    assert short(10**400) == "a number of about 401 digits"
    assert len(short(["x"] * 10**5)) < 120
