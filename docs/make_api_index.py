"""Rewrite the table "Every public name" at the end of api.md: `python docs/make_api_index.py`. The tests check it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOMS = [
    "operators",
    "algorithms",
    "priors",
    "networks",
    "fixed_point",
    "models",
    "methods",
    "run",
    "arrays",
    "tiling",
    "zoo",
    "simulate",
    "masks",
    "metrics",
    "calibration",
    "doctor",
    "training",
    "io",
]


def public(room: str) -> set[str]:
    """What a room promises: its `__all__`, or whatever it defines without an underscore."""
    module = importlib.import_module(room)
    own = {key for key, value in vars(module).items() if getattr(value, "__module__", "") == room and key[0] != "_"}
    return set(getattr(module, "__all__", own)) - {"__version__"}


def documented() -> dict[str, str]:
    """name -> the path under which a page of the site describes it."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md")))
    return {path.rpartition(".")[2]: path for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}


def row(room: str) -> str:
    homes = documented()
    names = (
        f"[`{n}`][{homes[n]}]" if n in homes else f"`{n}`" for n in sorted(public(room), key=lambda n: (n.lower(), n))
    )
    return f"| `{room}` | {', '.join(names)} |"


def main() -> None:
    page = DOCS / "api.md"
    head, _, _ = page.read_text(encoding="utf-8").partition("| room | names |\n")
    rows = [row(room) for room in ("unsnap", *(f"unsnap.{name}" for name in ROOMS))]
    page.write_text(head + "\n".join(["| room | names |", "|---|---|", *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
