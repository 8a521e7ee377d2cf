"""The site as a reader opens it, from disk and without a network: search finds, formulas are drawn, phones suffice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from snippets import ROOT

CHROMIUM = shutil.which("chromium")
PAGE = r"""# Of herons

A heron stands in $\sum_{t=1}^T m_t \odot x_t + \left(\frac{\rho}{2} + \frac{\rho^2}{4} + \frac{\rho^3}{8}\right)$.

\[ \left(\sum_{t=1}^T m_t^2\right)^{-1} = \left(m_1^2 + m_2^2 + m_3^2 + m_4^2 + m_5^2 + m_6^2 + m_7^2\right)^{-1} \]

```python
unsnap.reconstruct(scene.measurement, scene.operator, "gap-tv3d", iterations=100, tol=1e-3, together=True)
```
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages with our settings and our assets: the whole takes longer and proves no more."""
    pytest.importorskip("material", reason="mkdocs-material builds the site: pip install 'unsnap[docs]'")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs" / "assets", folder / "docs" / "assets")
    (folder / "docs" / "index.md").write_text("# Of nothing\n\nNo bird here.\n", encoding="utf-8")
    (folder / "docs" / "herons.md").write_text(PAGE, encoding="utf-8")
    nav = [{"Nothing": "index.md"}, {"Herons": "herons.md"}]
    config = load_config(
        str(ROOT / "mkdocs.yml"), docs_dir=str(folder / "docs"), site_dir=str(folder / "site"), nav=nav
    )
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    return folder / "site"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(site: Path, browser: Any) -> Iterator[Any]:
    """A phone; whatever it asks of a network is an error."""
    page, asked = browser.new_page(viewport={"width": 390, "height": 800}), []
    page.on("request", lambda request: asked.append(request.url))
    yield page
    page.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


def test_search_works_from_disk(site: Path, page: Any) -> None:
    page.goto((site / "index.html").as_uri())
    page.click("label.md-header__button[for=__search]")
    page.type(".md-search__input", "heron")  # letter by letter: the theme listens to keys
    found = page.wait_for_selector(".md-search-result__link", timeout=240_000)
    assert found.get_attribute("href").partition("?")[0].endswith("herons.html")


def test_formulas_have_a_font_with_large_sums_and_brackets(site: Path, page: Any) -> None:
    page.goto((site / "herons.html").as_uri())
    page.evaluate("document.fonts.ready")
    assert page.evaluate("[...document.fonts].some(f => f.family.includes('STIX') && f.status == 'loaded')")
    height = "selector => document.querySelector(selector).getBoundingClientRect().height"
    letter = page.evaluate(height, "math[display=block] mi")
    assert page.evaluate(height, "math[display=block] mo[stretchy]") > 2 * letter


def test_nothing_is_wider_than_a_phone(site: Path, page: Any) -> None:
    page.goto((site / "herons.html").as_uri())
    assert page.evaluate("document.querySelector('pre > code').scrollWidth") > 390
    assert page.evaluate("document.querySelector('math[display=block]').scrollWidth") > 390
    assert page.evaluate("document.documentElement.scrollWidth") == 390
