"""Things by name: found, suggested, refused; a plug-in may bring more, but never take a name that is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from unsnap.errors import InputError
from unsnap.plugins import load_plugin
from unsnap.registry import Registry


def colours() -> Registry[object]:
    return Registry("colour", {"red": "r", "green": "g"})


def test_names_are_found_and_near_ones_suggested() -> None:
    found = colours()
    assert found.find("red") == "r"
    with pytest.raises(InputError, match=r"colour 'grin' is not known; did you mean green\?"):
        found.find("grin")
    with pytest.raises(InputError, match=r"did you mean red, green\?"):
        found.find("xyz")


def test_a_taken_name_is_refused_but_the_same_thing_may_come_again() -> None:
    found = colours()

    @found.named("ours")
    def ours() -> None: ...

    assert found.find("ours") is ours
    assert found.register("ours", ours) is ours
    with pytest.raises(InputError, match="'red' is taken by another colour"):
        found.register("red", "other")
    assert found["red"] == "r"


def test_a_value_knows_its_name() -> None:
    found = colours()
    assert found.name_of("g") == "green"
    assert found.name_of("b") is None


def test_a_plug_in_file_is_loaded_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("LOADED = []\nLOADED.append(1)\n")
    first = load_plugin(path)
    assert load_plugin(str(path)) is first
    assert first.LOADED == [1]
    assert load_plugin("json").__name__ == "json"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("absent.py", None, "is not a file"),
        ("broken.py", "def", "SyntaxError"),
        ("raising.py", "raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("no_such_module_anywhere", None, "ModuleNotFoundError"),
    ],
)
def test_a_plug_in_that_cannot_be_loaded_is_one_sentence(
    tmp_path: Path, name: str, text: str | None, reason: str
) -> None:
    path = tmp_path / name if name.endswith(".py") else Path(name)
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=reason) as error:
        load_plugin(path)
    assert "\n" not in str(error.value)
