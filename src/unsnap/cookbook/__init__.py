"""The living cookbook: each page is documentation, notebook and test, from one Markdown file."""

from __future__ import annotations

from unsnap.cookbook.draw import curves as curves
from unsnap.cookbook.draw import image as image
from unsnap.cookbook.draw import pictures as pictures
from unsnap.cookbook.draw import pipelines as pipelines
from unsnap.cookbook.draw import plane as plane
from unsnap.cookbook.page import Page as Page
from unsnap.cookbook.page import page as page
from unsnap.cookbook.page import pages as pages
from unsnap.cookbook.run import Shown as Shown
from unsnap.cookbook.run import run as run
