"""A page as a Jupyter notebook: nbformat 4 is JSON, and needs nothing to be written."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from unsnap.cookbook.page import Page, plain
from unsnap.cookbook.run import Shown


def notebook(page: Page, known: dict[str, Page], shown: Iterable[Shown] = ()) -> str:
    """The notebook's text; with what its blocks have shown, if that is given."""
    results = iter(shown)
    cells: list[dict[str, Any]] = []
    for k, (kind, source) in enumerate(page.cells()):
        if kind == "markdown":
            cells.append({"cell_type": "markdown", "id": f"c{k}", "metadata": {}, "source": plain(source, known)})
            continue
        cells.append(
            {
                "cell_type": "code",
                "id": f"c{k}",
                "metadata": {"tags": ["parameters"]} if kind == "parameters" else {},
                "execution_count": None,
                "source": source,
                "outputs": _outputs(next(results, None)),
            }
        )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _outputs(shown: Shown | None) -> list[dict[str, Any]]:
    if shown is None:
        return []
    printed = [{"output_type": "stream", "name": "stdout", "text": shown.text}] if shown.text else []
    drawn = [
        {
            "output_type": "display_data",
            "metadata": {},
            "data": {"image/png": base64.b64encode(picture.png).decode(), "text/plain": picture.name},
        }
        for picture in shown.pictures
    ]
    return [*printed, *drawn]
