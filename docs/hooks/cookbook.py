"""MkDocs hook: run the pages of the cookbook, show what their blocks print and draw, and offer them as notebooks."""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath
from typing import Any

from equations import table  # beside this file
from mkdocs.structure.files import File, Files

from unsnap.cookbook import Page, Shown, pages, run
from unsnap.cookbook.notebook import notebook

MAP = "<!-- the map of equations -->"


@cache  # `mkdocs serve` runs a page again only when its text changes
def results(page: Page) -> tuple[Shown, ...]:
    return tuple(run(page))


def on_config(config: Any) -> Any:
    if "md_in_html" not in config.markdown_extensions:  # folded solutions hold Markdown
        config.markdown_extensions.append("md_in_html")
    return config


def on_files(files: Files, config: Any) -> Files:
    known = pages()
    for page in known.values():
        if files.get_file_from_path(f"cookbook/{page.name}.md") is None:  # another site with our settings
            continue
        shown = results(page)
        files.append(File.generated(config, f"cookbook/{page.name}.ipynb", content=notebook(page, known, shown)))
        for picture in (picture for block in shown for picture in block.pictures):
            files.append(File.generated(config, f"cookbook/{page.name}/{picture.slug}.png", content=picture.png))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    source = PurePosixPath(page.file.src_uri)
    if source.parent.name != "cookbook":
        return markdown
    known = pages().get(source.stem)
    return markdown.replace(MAP, table()) if known is None else rendered(known)


def rendered(page: Page) -> str:
    """The page with what each block has shown below it, and its first line followed by a link to the notebook."""
    parts, start = [], 0
    for shown in results(page):
        parts.append(page.text[start : shown.block.end])
        start = shown.block.end
        if shown.text:
            parts.append(f'\n\n```text title="prints"\n{shown.text.rstrip()}\n```')
        parts.extend(f"\n\n![{p.name}]({page.name}/{p.slug}.png){{ #{p.slug} loading=lazy }}" for p in shown.pictures)
    title, _, rest = "".join([*parts, page.text[start:]]).partition("\n")
    offer = f"[Play with this page: a notebook]({page.name}.ipynb){{ download }} · `unsnap cookbook {page.name}`"
    whole = f"{title}\n\n{offer}\n{rest}"
    return whole.replace('```python tags=["parameters"]', '```python title="parameters to change"')
