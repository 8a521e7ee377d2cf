"""unsnap train: from a folder to a model, interrupted, resumed, packed; every mistake one sentence."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cli.contract import stored
from unsnap import load_scene, reconstruct
from unsnap.algorithms import GAP, PGD
from unsnap.models import LeastSquares, TotalVariation, load
from unsnap.training import PRESETS, Trainer, preset
from unsnap.training.checkpoint import load_checkpoint
from unsnap.training.presets import parse_changes

SIZE = ["--set", "batch=2", "--set", "crop=16", "--set", "frames=[4]", "--set", "pool=2"]
SMALL = ["--set", "settings.channels=[4,4,4]", "--set", "settings.blocks=[1,1,1]", *SIZE]
CNN = ["--network", "cnn", "--set", "settings.layers=2", "--set", "settings.channels=4", *SIZE]


@pytest.fixture(scope="module")
def trained(clips: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory after two steps."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    Trainer(preset(**parse_changes(SMALL[1::2]), clips=str(clips), steps=2), folder).run()
    return folder


@pytest.fixture
def run(unsnap: Callable, trained: Path) -> Path:
    """A copy of it, here."""
    return Path(shutil.copytree(trained, "run"))


def test_train_resume_rerun_pack_reconstruct(unsnap: Callable, clips: Path, scene: Path) -> None:
    done = unsnap("train", clips, "-o", "run", "--steps", 3, *CNN, "--json")
    facts = done.json()
    assert (done.code, facts["step"], facts["interrupted"]) == (0, 3, False)
    assert list(facts["skipped_videos"]) == [str(clips / "broken.gif")]
    assert "Skipped 1 videos" in done.err
    assert "psnr_fixed" in facts["validation"]
    assert {p.name for p in Path("run").iterdir()} == {
        "best.safetensors", "checkpoint.pt", "config.json", "last.safetensors", "log.jsonl",
    }  # fmt: skip

    more = unsnap("train", "--resume", "run", "--steps", 2, "--json").json()
    assert more["step"] == 5
    elsewhere = unsnap("train", "--resume", "run/checkpoint.pt", "-o", "other", "--minutes", 0.01, "--json").json()
    assert elsewhere["run"] == "other"
    assert elsewhere["step"] > 5
    assert load_checkpoint(Path("run/checkpoint.pt"))["step"] == 5

    again = unsnap("train", "--config", "run/config.json", "-o", "again", "--json").json()
    assert again["step"] == 5
    packed = unsnap("train", "--resume", "run", "--pack", "small.pt", "--json").json()
    assert packed["bytes"] == Path("small.pt").stat().st_size < Path("run/checkpoint.pt").stat().st_size
    video = unsnap("reconstruct", scene, "-m", "run/best.safetensors", "-o", "x.npz", "--json")
    assert video.json()["frames"] == 4


def test_an_unfolded_model_from_file_to_video(unsnap: Callable, clips: Path, scene: Path) -> None:
    done = unsnap("train", clips, "-o", "net", "--model", "gap-net", "--steps", 3, *CNN, "--set", "stages=2", "--json")
    facts = done.json()
    assert (done.code, facts["step"], facts["skipped_batches"]) == (0, 3, 0)
    assert facts["best"] == facts["validation"]["psnr_fixed"]
    assert "residual" not in facts["validation"]
    assert unsnap("train", "--resume", "net", "--steps", 1, "--json").json()["step"] == 4
    video = unsnap("reconstruct", scene, "-m", "net/best.safetensors", "-o", "x.npz", "--json")
    assert video.code == 0, video.err
    assert (video.json()["iterations"], video.json()["converged"], video.json()["diverged"]) == (2, True, False)
    loaded = load_scene(scene)
    expected = reconstruct(loaded.measurement, loaded.masks, load("net/best.safetensors")).x
    assert np.allclose(stored("x.npz")["video"], expected.reshape(-1, 40, 48), atol=1e-6)


def test_iteration_start_and_stages_are_settings(unsnap: Callable, clips: Path) -> None:
    def trained(*options: str) -> Any:
        done = unsnap("train", clips, "-o", str(len(list(Path().iterdir()))), "--steps", 1, *CNN, *options, "--json")
        assert done.code == 0, done.err
        return load(done.json()["model"])

    model = trained("--set", "iteration=pgd", "--set", "strength=0.5", "--set", "start=least_squares")
    assert (model.iteration, model.start) == (PGD(0.5), LeastSquares())
    numbers = '{"iterations": 3, "weight": 0.05}'
    model = trained("--set", "start=total_variation", "--set", f"start_settings={numbers}")
    assert (model.iteration, model.start) == (GAP(), TotalVariation(weight=0.05, iterations=3))
    levels = ["--set", "sigma_first=0.4", "--set", "sigma=0.1", "--set", "stages=4"]
    model = trained("--model", "gap-net", "--set", "shared=true", *levels)
    assert (model.stages, len(model.networks)) == (4, 1)
    assert model.sigmas.tolist() == pytest.approx([0.4, 0.3, 0.2, 0.1])


def test_stages_begin_with_the_network_of_an_equilibrium(unsnap: Callable, clips: Path) -> None:
    begin = ["--set", "start=least_squares", "--seed", 3]
    assert unsnap("train", clips, "-o", "one", "--steps", 1, *CNN, *begin, "-q").code == 0
    still = ["--set", "rate=1e-30", "--set", "decay=0", "--set", "stages=3"]
    options = ["--model", "gap-net", "--init", "one/best.safetensors", *still]
    assert unsnap("train", clips, "-o", "net", "--steps", 1, *CNN, *options, "-q").code == 0
    source, model = load("one/best.safetensors"), load("net/best.safetensors")
    assert len(model.networks) == 3
    assert all(
        torch.equal(value, source.network.state_dict()[key])
        for network in model.networks
        for key, value in network.state_dict().items()
    )


def test_people_are_told(unsnap: Callable, clips: Path) -> None:
    done = unsnap("train", clips, "-o", "run", "--steps", 2, "--set", "validate_every=1", *SMALL)
    assert done.code == 0
    assert "2 steps" in done.out
    assert done.err.count("psnr_fixed") == 2
    assert "--method run/best.safetensors" in done.err
    quiet = unsnap("train", clips, "-o", "quiet", "--steps", 1, *SMALL, "-q")
    assert quiet.err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interruption_saves(
    unsnap: Callable, clips: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    honest = Trainer.one_step

    def interrupted(self: Trainer, progress: float) -> float:
        if self.step == 1:
            os.kill(os.getpid(), number)
        return honest(self, progress)

    before = signal.getsignal(number)
    monkeypatch.setattr(Trainer, "one_step", interrupted)
    stopped = unsnap("train", clips, "-o", "run", "--steps", 9, *SMALL, "--json")
    assert stopped.code == 128 + number
    assert stopped.json()["interrupted"]
    assert "unsnap train --resume run" in stopped.err
    assert signal.getsignal(number) is before
    assert load_checkpoint(Path("run/checkpoint.pt"))["step"] == 2


def test_a_second_interruption_stops_at_once(unsnap: Callable, clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stubborn(self: Trainer, progress: float) -> float:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return 0.0

    monkeypatch.setattr(Trainer, "one_step", stubborn)
    stopped = unsnap("train", clips, "-o", "run", "--steps", 9, *SMALL)
    assert stopped.code == 130
    assert not Path("run/checkpoint.pt").exists()


MISTAKES: dict[str, tuple[list[str], list[str]]] = {
    "no folder": (["nowhere", "-o", "new"], ["nowhere", "folder"]),
    "no validation": (["CLIPS", "-o", "new", "--validation", "nowhere"], ["nowhere", "folder"]),
    "occupied": (["CLIPS", "-o", "run"], ["run", "--resume"]),
    "a file in the way": (["CLIPS", "-o", "file"], ["file"]),
    "nothing to resume": (["--resume", "nowhere"], ["nowhere"]),
    "at its end": (["--resume", "run"], ["run", "--minutes"]),
    "resume and model": (["--resume", "run", "--model", "de-rnn"], ["--model", "--resume"]),
    "resume and seed": (["--resume", "run", "--seed", "3"], ["--seed", "--resume"]),
    "config and network": (["--config", "run/config.json", "--network", "cnn"], ["--network", "--config"]),
    "no config": (["--config", "nowhere.json"], ["nowhere.json"]),
    "not a config": (["--config", "file"], ["file", "config"]),
    "another version": (["--config", "new.json", "-o", "new"], ["new.json", "99"]),
    "an old version": (["--config", "old.json", "-o", "new"], ["old.json", "version 1 with 'step'", "new run"]),
    "unknown model": (["CLIPS", "--model", "nonsense"], ["nonsense", "de-gap"]),
    "unknown network": (["CLIPS", "--network", "u-net"], ["network 'u-net' is not known", "did you mean unet"]),
    "unknown start": (["CLIPS", "--set", "start=guess"], ["start 'guess' is not known", "least_squares"]),
    "unknown iteration": (["CLIPS", "--set", "iteration=rnn"], ["iteration 'rnn' is not known"]),
    "unknown number of a start": (["CLIPS", "--set", 'start_settings={"depth": 3}'], ["depth"]),
    "unfolded and denoising": (["CLIPS", "--model", "gap-net", "--set", "gaussian=0.5"], ["unfolded", "gaussian"]),
    "no whole iteration": (["CLIPS", "--network", "cnn", "--set", "iteration=recurrent"], ["'cnn'", "iteration"]),
    "unknown setting": (["CLIPS", "--set", "nonsense=1"], ["nonsense", "batch"]),
    "bad setting": (["CLIPS", "--set", "batch=0"], ["batch", "0"]),
    "wrong architecture": (["--resume", "run", "--steps", "1", "--set", "settings.context=true"], ["architecture"]),
    "unknown device": (["CLIPS", "--device", "nonsense"], ["nonsense"]),
    "pack what": (["--pack", "small.pt"], ["--resume"]),
    "pack where": (["--resume", "run", "--pack", "small.zip"], ["small.zip"]),
    "pack over itself": (["--resume", "run", "--pack", "run/checkpoint.pt"], ["run/checkpoint.pt"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(unsnap: Callable, clips: Path, run: Path, name: str) -> None:
    arguments, words = MISTAKES[name]
    Path("file").write_text("in the way")
    config = json.loads((run / "config.json").read_text())
    Path("new.json").write_text(json.dumps({**config, "version": 99}))
    Path("old.json").write_text(json.dumps({**config, "version": 1, "step": "gap"}))
    before = {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    failed = unsnap("train", *[str(clips) if a == "CLIPS" else a for a in arguments], "-q")
    assert failed.code == 2, failed.err + failed.out
    flat = " ".join(failed.err.split())
    assert all(word in flat for word in words), flat
    assert flat.startswith("Error: ")
    assert before == {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    assert not Path("new").exists()


def test_batch_and_processes(unsnap: Callable, clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unsnap.training import trainer
    from unsnap.training.world import World

    monkeypatch.setattr(trainer, "join", lambda device: World(0, 3))
    failed = unsnap("train", clips, "-o", "run", "--steps", 1, *SMALL)
    assert failed.code == 2
    assert "batch must be a multiple of the 3 processes, got 2" in " ".join(failed.err.split())


def test_help_has_examples(unsnap: Callable) -> None:
    said = unsnap("train", "--help").out
    assert all(name in said for name in (*PRESETS, "gmm"))
    assert "torchrun" in said
    assert "--resume" in said
