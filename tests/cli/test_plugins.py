"""What a user's module registers is known to the commands by name; what cannot be loaded is one sentence."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from unsnap.algorithms import ITERATIONS
from unsnap.masks import bernoulli
from unsnap.methods import METHODS
from unsnap.models import Equilibrium, load, save
from unsnap.models.starts import STARTS
from unsnap.networks import NETWORKS, build
from unsnap.operators import CAMERAS
from unsnap.plugins import LOADED
from unsnap.priors import PRIORS
from unsnap.simulate import render
from unsnap.training import DATASETS, LOSSES

NETWORK = """
import torch
from torch import Tensor, nn
from unsnap.networks import NETWORKS


@NETWORKS.named("mine")
class Mine(nn.Module):
    def __init__(self, gain: float = 0.1) -> None:
        super().__init__()
        self.settings = {"gain": gain}
        self.kernel = nn.Parameter(gain * torch.ones(1, 1, 1, 3, 3) / 9)

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        return 0.9 * x + nn.functional.conv3d(x.unsqueeze(-4), self.kernel, padding=(0, 1, 1)).squeeze(-4)
"""
PRIOR = """
from unsnap.priors import PRIORS, TV, Prior
PRIORS.register("mine", Prior(TV(iterations=4), 0.15))  # what gap-tv has
"""
METHOD = """
from unsnap.algorithms import gap
from unsnap.methods import METHODS, Method
from unsnap.priors import TV


def solve(y, phi, n, watch):
    return gap(y, phi, TV(iterations=4), [0.15] * n, **watch)


MY = Method("my-method", "mine", "what gap-tv does", "Nobody, 2031", solve, iterations=40, tol=1e-2, early=False)
METHODS.register("my-method", MY)
"""
CAMERA = """
import torch
from unsnap.operators import CAMERAS, CodedOperator


@CAMERAS.named("sheared")
class Sheared(CodedOperator):
    '''Frame t falls on the sensor t columns further to the right, around its edge.'''

    @property
    def image(self):
        return self.masks.shape[-2:]

    @property
    def pixelwise(self):
        return False

    def _sheared(self, x, sign=1):
        return torch.stack([frame.roll(sign * t, -1) for t, frame in enumerate(x.unbind(-3))], -3)

    def A(self, x):
        return self._sheared(self.masks * x).sum(-3)

    def A_adjoint(self, y):
        shape = (*y.shape[:-2], *self.video)
        return self.masks * self._sheared(y.unsqueeze(-3).expand(shape), -1)

    def gram(self, y):
        return self.energy * y

    def A_dagger(self, y):
        return self.A_adjoint(torch.where(self.energy > 0, y / self.energy.clamp(min=1e-12), 0))

    def prox_l2(self, z, y, gamma):
        return z + self.A_adjoint(gamma / (1 + gamma * self.energy) * (y - self.A(z)))

    def squared_norms(self):
        return self.energy.detach().amax((-2, -1))

    def _energy(self, masks):
        return self._sheared(masks.square()).sum(-3)
"""
SIZE = ["--set", "batch=2", "--set", "crop=16", "--set", "frames=[4]", "--set", "pool=2"]


@pytest.fixture
def forget() -> Iterator[Callable[[], None]]:
    """Call it to be a new process that knows of no plug-in; happens at the end in any case."""
    registries = (NETWORKS, PRIORS, METHODS, CAMERAS, STARTS, ITERATIONS, DATASETS, LOSSES)
    known, modules = [dict(registry) for registry in registries], set(sys.modules)
    loaded = dict(LOADED)

    def undo() -> None:
        for registry, before in zip(registries, known, strict=True):
            for name in set(registry) - set(before):
                del registry[name]
            registry.broken.clear()
        for name in set(LOADED) - set(loaded):
            del LOADED[name]
        for name in [name for name in sys.modules if name not in modules and "plugin" in name]:
            del sys.modules[name]

    yield undo
    undo()


@pytest.fixture
def plugin(unsnap: Callable, forget: Callable[[], None]) -> Callable[[str], Path]:
    """Writes a plug-in into the working directory."""

    def written(code: str, name: str = "my_plugin.py") -> Path:
        path = Path(name)
        path.write_text(code)
        return path

    return written


def refused(run: object, *words: str) -> None:
    """One sentence on stderr, exit code 2."""
    assert run.code == 2, run.out + run.err
    assert run.out == ""
    assert run.err.startswith("Error: ")
    assert run.err.count("\n") == 1
    assert all(word in run.err for word in words), run.err


def test_a_network_from_training_to_video(
    unsnap: Callable, plugin: Callable, forget: Callable[[], None], scene: Path, clips: Path
) -> None:
    code = ["--plugin", plugin(NETWORK)]
    start = ["--set", "start=least_squares", "--set", "settings.gain=0.05"]
    done = unsnap("train", clips, "--network", "mine", "--steps", 2, "-o", "run", *SIZE, *start, *code, "-q")
    assert done.code == 0, done.err
    forget()
    video = unsnap("reconstruct", scene, "-m", "run/best.safetensors", *code, "--json", "-q")
    assert video.code in (0, 3), video.err
    assert video.json()["psnr"] > 5
    more = unsnap("train", "--resume", "run", "--steps", 1, *code, "--json", "-q")
    assert more.json()["step"] == 3
    forget()
    refused(
        unsnap("reconstruct", scene, "-m", "run/best.safetensors", "-q"),
        "run/best.safetensors", "network 'mine' is not known", "--plugin",
    )  # fmt: skip
    refused(unsnap("train", "--resume", "run", "--steps", 1, "-q"), "network 'mine' is not known", "--plugin")
    refused(unsnap("train", "--network", "mine", "--steps", 1, "-o", "new", "-q"), "'mine' is not known", "--plugin")
    assert not Path("new").exists()


def test_settings_of_its_network_are_checked_like_others(unsnap: Callable, plugin: Callable) -> None:
    options = ["--network", "mine", "--steps", 1, "-o", "run", "--plugin", plugin(NETWORK), "-q"]
    refused(unsnap("train", *options, "--set", "settings.width=3"), "network 'mine' has no setting 'width'", "gain")


def test_a_prior_is_a_method(unsnap: Callable, plugin: Callable, forget: Callable[[], None], scene: Path) -> None:
    code = ["--plugin", plugin(PRIOR)]
    mine, usual = (unsnap("reconstruct", scene, "-m", m, *code, "--json", "-q").json() for m in ("gap-mine", "gap-tv"))
    assert mine["method"] == "gap-mine"
    assert (mine["psnr"], mine["ssim"]) == (usual["psnr"], usual["ssim"])
    rows = unsnap("bench", scene, "--methods", "gap-mine,gap-tv3d", *code, "--json", "-q").json()
    assert [row["method"] for row in rows] == ["gap-mine", "gap-tv3d"]
    forget()
    refused(unsnap("reconstruct", scene, "-m", "gap-mine", "-q"), "method 'gap-mine' is not known", "--plugin")


@pytest.mark.parametrize("as_module", [False, True])
def test_a_method_by_file_and_by_module(
    unsnap: Callable, plugin: Callable, scene: Path, monkeypatch: pytest.MonkeyPatch, as_module: bool
) -> None:
    path = plugin(METHOD)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    code = ["--plugin", path.stem if as_module else path]
    mine, usual = (unsnap("reconstruct", scene, "-m", m, *code, "--json", "-q").json() for m in ("my-method", "gap-tv"))
    assert (mine["psnr"], mine["method"]) == (usual["psnr"], "my-method")
    listed = {row["name"]: row for row in unsnap("methods", "--json", *code).json()}
    assert (listed["my-method"]["family"], listed["my-method"]["year"]) == ("mine", 2031)
    assert "my-method" in unsnap("methods", *code).out


def test_without_it_methods_lists_none_of_it(unsnap: Callable) -> None:
    assert "my-method" not in unsnap("methods", "--json").out


def test_a_camera_reads_a_file_and_sees_its_video(unsnap: Callable, plugin: Callable) -> None:
    truth, masks = render(4, 40, 48, seed=1), bernoulli(4, 40, 48, generator=torch.Generator().manual_seed(0))
    coded = sum(np.roll((masks[t] * truth[t]).numpy(), t, -1) for t in range(4))
    np.savez("sheared.npz", meas=coded, mask=masks.numpy(), orig=truth.numpy())
    code = ["--plugin", plugin(CAMERA)]
    right = unsnap("reconstruct", "sheared.npz", "--kind", "sheared", "-m", "gap-tv3d", *code, "--json", "-q")
    assert right.code == 0, right.err
    wrong = unsnap("reconstruct", "sheared.npz", "-m", "gap-tv3d", "--json", "-q").json()
    assert right.json()["psnr"] > wrong["psnr"] + 5
    assert right.json()["psnr"] > 22
    report = unsnap("inspect", "sheared.npz", "--kind", "sheared", *code, "--json").json()
    assert (report["fatal"], report["meta"]["camera"]) == (False, "sheared")
    (model,) = [f for f in report["findings"] if f["subject"] == "forward model"]
    assert model["level"] == "ok", model


def test_its_scene_file_remembers_the_camera(
    unsnap: Callable, plugin: Callable, forget: Callable[[], None], tmp_path: Path
) -> None:
    from unsnap import Scene, load_plugin, save_scene

    code = ["--plugin", plugin(CAMERA)]
    load_plugin(code[1])
    masks = bernoulli(4, 40, 48, generator=torch.Generator().manual_seed(0))
    save_scene("s.mat", Scene.of(render(4, 40, 48, seed=1)[None], masks, "sheared"))
    forget()
    run = unsnap("reconstruct", "s.mat", "-m", "gap-tv3d", *code, "--json", "-q")
    assert run.json()["psnr"] > 22
    forget()
    refused(unsnap("reconstruct", "s.mat", "-m", "gap-tv3d", "-q"), "camera 'sheared' is not known", "--plugin")


def test_several_plugins(unsnap: Callable, plugin: Callable, scene: Path) -> None:
    code = ["--plugin", plugin(PRIOR, "a_plugin.py"), "--plugin", plugin(METHOD, "b_plugin.py")]
    rows = unsnap("bench", scene, "--methods", "gap-mine,my-method", *code, "--json", "-q").json()
    assert rows[0]["psnr"] == rows[1]["psnr"]


BROKEN: dict[str, tuple[str, bytes | None, list[str]]] = {
    "raises": ("my_plugin.py", b"raise RuntimeError('no luck\\nat all')", ["RuntimeError", "no luck"]),
    "needs what is not here": ("my_plugin.py", b"import no_such_package_at_all", ["no_such_package_at_all"]),
    "is not there": ("absent.py", None, ["absent.py is not a file"]),
    "is a folder": (".py", None, [".py"]),
    "is no module": ("no_such_package_at_all", None, ["ModuleNotFoundError", "no_such_package_at_all"]),
    "is not Python": ("my_plugin.py", b"dear diary,", ["SyntaxError"]),
    "is not text": ("my_plugin.py", b"\x00\xff\xfe\x00", ["my_plugin.py"]),
    "is another file": ("notes.txt", b"dear diary", ["notes.txt"]),
    "takes a name": (
        "my_plugin.py",
        b"from unsnap.networks import CNN, NETWORKS\nNETWORKS.register('unet', CNN)",
        ["the name 'unet' is taken by another network"],
    ),
    "lacks a part": (
        "my_plugin.py",
        b"from unsnap.operators import CodedOperator\nclass Mine(CodedOperator): pass\nMine(None)",
        ["TypeError", "abstract"],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("command", [["reconstruct", "SCENE"], ["train", "--steps", "1"], ["methods"]])
def test_what_cannot_be_loaded_is_one_sentence(
    unsnap: Callable, forget: Callable[[], None], scene: Path, name: str, command: list[str]
) -> None:
    file, content, words = BROKEN[name]
    if content is not None:
        Path(file).write_bytes(content)
    before = sorted(p.name for p in Path().iterdir())
    refused(unsnap(*[scene if word == "SCENE" else word for word in command], "--plugin", file), *words)
    assert sorted(p.name for p in Path().iterdir() if p.name != "__pycache__") == before


# ---- packages that are installed


@pytest.fixture
def installed(tmp_path: Path, forget: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake distribution with a method, a network and a start that is missing, where Python looks for packages."""
    site = tmp_path / "site"
    facts = site / "fake-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: fake\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[unsnap.methods]\nmy-method = fake_plugin.method:MY\n\n"
        "[unsnap.networks]\nmine = fake_plugin.network:Mine\n\n"
        "[unsnap.starts]\nbroken = fake_plugin.nothing:Start\n\n"
        "[unsnap.iterations]\nslow = fake_plugin.iteration:Slow\n"
    )
    package = site / "fake_plugin"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "method.py").write_text(METHOD.replace('METHODS.register("my-method", MY)', ""))
    (package / "iteration.py").write_text(
        "from dataclasses import dataclass\n\nfrom unsnap import GAP\n\n\n"
        "@dataclass(frozen=True)\nclass Slow(GAP):\n    weight: float = 0.5\n"
    )
    (package / "network.py").write_text(NETWORK.replace('@NETWORKS.named("mine")', ""))
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.usefixtures("installed")
def test_an_installed_package_is_found_by_name(
    unsnap: Callable, forget: Callable[[], None], scene: Path, clips: Path
) -> None:
    start = ["--set", "start=least_squares"]
    first = unsnap("methods")
    assert first.code == 0, first.err
    assert "my-method" in first.out, "listed before it is used"
    forget()
    video = unsnap("reconstruct", scene, "-m", "my-method", "--json", "-q")
    assert video.code == 0, video.err
    assert video.json()["psnr"] > 20, "used before it is listed"
    assert "my-method" in {row["name"] for row in unsnap("methods", "--json").json()}
    options = ["--steps", 1, *SIZE, "-q"]
    trained = unsnap("train", clips, "--network", "mine", "-o", "run", *options, *start, "--json")
    assert trained.code == 0, trained.err
    forget()
    again = unsnap("reconstruct", scene, "-m", "run/best.safetensors", "--json", "-q")
    assert again.code in (0, 3), again.err
    assert again.json()["method"] == "run-best"
    refused(
        unsnap("train", clips, "-o", "new", *options, "--set", "start=broken"),
        "Error: start 'broken' of the package fake cannot be loaded",
    )


@pytest.mark.usefixtures("installed")
def test_a_value_of_an_installed_package_is_saved_by_its_name(forget: Callable[[], None], tmp_path: Path) -> None:
    forget()
    iteration = importlib.import_module("fake_plugin.iteration").Slow(0.8)
    model = Equilibrium(iteration, build("cnn", {"channels": 2, "layers": 2}))
    assert load(save(tmp_path / "slow.safetensors", model)).iteration == iteration


def test_videos_and_a_loss_of_ones_own(unsnap: Callable, plugin: Callable, forget: Callable[[], None]) -> None:
    path = plugin(
        "import torch\n\n\nclass Ramps:\n    def __init__(self, folder):\n        pass\n\n"
        "    def draw(self, batch, frames, size, generator):\n"
        "        return torch.rand(batch, frames, size, size, generator=generator)\n\n\n"
        "def absolute(x, truth):\n    return (x - truth).abs().mean()\n"
    )
    small = ["--network", "cnn", "--set", 'settings={"channels": 4, "layers": 2}', "--set", "start=least_squares", "-q"]
    given = ["--dataset", f"{path}:Ramps", "--loss", f"{path}:absolute"]
    done = unsnap("train", "-o", "run", *given, "--cache", 0.01, "--steps", 2, *SIZE, *small)
    assert done.code == 0, done.err
    forget()
    refused = unsnap("train", "--resume", "run", "--steps", 1, "-q")
    assert refused.code == 2
    assert "absolute' is not known" in " ".join(refused.err.split())
    assert unsnap("train", "--resume", "run", "--steps", 1, "-q", *given).code == 0
