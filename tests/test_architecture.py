"""The rooms import one another in the declared direction only, imports inside functions included."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import unsnap
from snippets import ROOT

SOURCE = ROOT / "src"
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_name(path): path for path in sorted((SOURCE / "unsnap").rglob("*.py"))}


def known(name: str) -> str:
    """The longest part of a dotted name that is a module of ours."""
    while name not in FILES:
        name = name.rpartition(".")[0]
        if not name:
            return ""
    return name


def imports(module: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {known(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            found |= {known(home(f"{node.module}.{alias.name}")) for alias in node.names}
    return found - {"", "unsnap", module}  # the package itself holds the version and, lazily, the names of others


def home(name: str) -> str:
    """Where a name of the package comes from: `unsnap.METHODS` is `unsnap.methods`."""
    package, _, own = name.rpartition(".")
    return unsnap._HOMES.get(own, name) if package == "unsnap" else name


def test_names_of_the_package_are_imports_of_their_rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.py"
    page.write_text("def f():\n    from unsnap import METHODS, __version__, psnr\n    import unsnap.masks\n")
    monkeypatch.setitem(FILES, "unsnap.page", page)
    assert imports("unsnap.page") == {"unsnap.methods", "unsnap.metrics", "unsnap.masks"}


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    return {module: imports(module) for module in FILES if module != "unsnap"}


def room(module: str) -> str:
    return module.split(".")[1]


def declared() -> list[list[str]]:
    block = re.search(r"```direction\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    return [line.split(", ") for line in block[1].split("\n") if line]


def test_every_room_has_its_place(graph: dict[str, set[str]]) -> None:
    assert sorted(name for line in declared() for name in line) == sorted({room(module) for module in graph})


def test_no_import_points_against_the_declared_direction(graph: dict[str, set[str]]) -> None:
    level = {name: k for k, line in enumerate(declared()) for name in line}
    wrong = {
        f"{a} -> {b}"
        for a, targets in graph.items()
        for b in targets
        if room(a) != room(b) and level[room(b)] >= level[room(a)]
    }
    assert wrong == set()


def test_only_the_runners_know_the_list_of_methods(graph: dict[str, set[str]]) -> None:
    users = {room(a) for a, targets in graph.items() if any(room(b) == "methods" for b in targets)}
    assert users - {"methods"} <= {"run", "tiling", "bench", "campaign", "studio", "cli"}


def test_modules_form_no_cycle(graph: dict[str, set[str]]) -> None:
    """Repeatedly leaving out modules that import nothing that is left must leave out all."""
    left = {a: {b for b in targets if b in graph} for a, targets in graph.items()}
    while left:
        free = {a for a, targets in left.items() if not targets & left.keys()}
        assert free, f"a cycle among {sorted(left)}"
        left = {a: targets for a, targets in left.items() if a not in free}


def test_the_forward_sum_is_written_in_operators_only() -> None:
    """Φx is Σ_t m_t ⊙ x_t for one camera only; elsewhere it is `phi.A(x)`."""
    frames = r"\((?:axis=|dim=)?(?:0|-3)[,)]"
    sums = re.compile(rf"\((?:\w+\.)?\w+ \* [\w.\[\]()]+\)\.sum{frames}|einsum\(\"[a-z]*thw,")
    found = {
        (m, line.strip())
        for m, path in FILES.items()
        for line in path.read_text(encoding="utf-8").splitlines()
        if sums.search(line) and room(m) not in ("operators", "kernels")
    }
    other = {"unsnap.networks.capture", "unsnap.calibration.agreement"}  # a mean over shots, and a correlation
    assert {m for m, line in found if ">>>" not in line} == other
    assert any(sums.search(path.read_text(encoding="utf-8")) for m, path in FILES.items() if m.startswith("unsnap.op"))


def test_a_module_fits_on_a_few_screens() -> None:
    assert {m for m, path in FILES.items() if len(path.read_text(encoding="utf-8").splitlines()) > 350} == set()
