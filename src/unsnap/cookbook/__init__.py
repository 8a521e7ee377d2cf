"""The living cookbook: each page is documentation, notebook and test, from one Markdown file."""

from __future__ import annotations

from unsnap.cookbook.draw import curves, image, pictures, pipelines, plane
from unsnap.cookbook.page import Page, page, pages
from unsnap.cookbook.run import Shown, run

__all__ = ["Page", "Shown", "curves", "image", "page", "pages", "pictures", "pipelines", "plane", "run"]
