"""Every option of every command with values that nobody means, found by introspection: a new one is tried by itself."""

from __future__ import annotations

import inspect
import shutil
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import typer

from unsnap.cli.usage import NAMES, function

NUMBERS = {int: ["-1", "99999999999999999999", "9" * 400, "1e9"], float: ["nan", "inf", "-inf", "1e308", "1e-320"]}
TEXTS = ["", "[/b]", "\x1b[2Jx\ny", "x" * 5000, "\udcff", "/"]
# Valid values must end soon as well: an input that is missing, or an output that cannot be.
BASES: dict[str, list[str]] = {
    "reconstruct": ["scene.mat", "-m", "gap-tv", "--iterations", "1", "-o", "out.npz"],
    "inspect": ["scene.mat"],
    "calibrate": ["missing.mat", "-o", "camera.npz"],
    "simulate": ["-o", "s.npz", "--size", "16x16", "--frames", "2"],
    "compare": ["missing.mat", "--methods", "gap-tv", "-o", "c"],
    "bench": ["scene.mat", "--methods", "gap-tv", "--iterations", "1"],
    "methods": [],
    "certify": ["missing.safetensors"],
    "export": ["missing.safetensors", "-o", "m.onnx"],
    "import": ["w.ckpt", "-o", "m.safetensors"],
    "train": ["missing", "-o", "run", "--steps", "1"],
    "adapt": ["missing.mat", "-o", "a.safetensors"],
    "demo": ["-o", "scene.mat/demo"],
    "watch": ["missing", "-o", "videos"],
    "cookbook": ["missing"],
    "studio": ["--port", "70000"],  # refused, or it would serve until somebody ends it
}
# A good value would write outside the scratch folder, or serve.
LEFT_OUT = {("demo", "--output"), ("studio", "--port")}


def options() -> Iterator[tuple[str, str, type]]:
    for name in NAMES:
        for p in inspect.signature(function(name)).parameters.values():
            annotation, info = typing.get_args(p.annotation)[:2]
            kind = next((t for t in typing.get_args(annotation) if t is not type(None)), annotation)
            if isinstance(info, typer.models.OptionInfo) and kind is not bool:
                # In an annotation the first name stands where a default value would.
                names = [n for n in (info.default, *(info.param_decls or ())) if str(n).startswith("--")]
                yield name, names[0] if names else "--" + p.name.replace("_", "-"), kind


OPTIONS = list(options())


def test_the_introspection_finds_the_options() -> None:
    assert ("reconstruct", "--seed", int) in OPTIONS
    assert ("import", "--tol", float) in OPTIONS
    assert len({name for name, _, _ in OPTIONS}) == len(BASES)


@pytest.mark.parametrize("command", BASES)
def test_hostile_values_are_refused_or_harmless(unsnap: Callable, scene: Path, tmp_path: Path, command: str) -> None:
    weights = {f"model.{2 * k}.weight": w for k, w in enumerate((torch.ones(8, 1, 3, 3), torch.ones(1, 8, 3, 3)))}
    torch.save(weights, tmp_path / "w.ckpt")
    own = [(option, kind) for name, option, kind in OPTIONS if name == command and (name, option) not in LEFT_OUT]
    tries = [(option, kind, value) for option, kind in own for value in NUMBERS.get(kind, TEXTS)]
    before = set(tmp_path.iterdir())
    for option, kind, value in tries:
        run = unsnap(command, *BASES[command], f"{option}={value}")  # an exception would come through
        assert run.code in (0, 2, 3), (option, value, run.err)
        assert "\x1b[2J" not in run.out + run.err, (option, value)
        if kind in NUMBERS and value not in ("-1", "1e308", "1e-320"):
            assert run.code == 2, (option, value)
            assert run.err, (option, value)
        for path in set(tmp_path.iterdir()) - before:  # or the next value would be refused for that alone
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("device", ["meta", "hpu", "cuda:99", "nonsense", "cpu:5x", "mkldnn", ""])
def test_devices_that_compute_nothing(unsnap: Callable, scene: Path, device: str) -> None:
    run = unsnap("reconstruct", scene, "-m", "gap-tv", "--device", device, "--json")
    assert run.code == 2
    assert run.err.splitlines()[-1].startswith("Error: device ")


@pytest.mark.parametrize(
    "args",
    [
        ["simulate", "-o", "s.npz", "--size", "16x16", "--mask", "gray", "--blur", "1e9"],
        ["simulate", "-o", "s.npz", "--size", "999999999x999999999"],
        ["simulate", "-o", "s.npz", "--shots", "999999999"],
        ["simulate", "-o", "s.npz", "--snapshots", "999999999999"],
        ["certify", "de-gap", "--crop", "999999999"],
        ["simulate", "-o", f"{'x' * 300}.npz", "--size", "16x16"],
    ],
)
def test_sizes_that_fit_nowhere(unsnap: Callable, tmp_path: Path, args: list[str]) -> None:
    run = unsnap(*args)
    assert run.code == 2
    assert list(tmp_path.iterdir()) == []
