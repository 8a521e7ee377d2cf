"""unsnap train: from a folder to a model, interrupted, resumed, packed; every mistake one sentence."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unsnap.simulate import render
from unsnap.training import Trainer
from unsnap.training.checkpoint import load_checkpoint

SMALL = [
    "--set", "settings.channels=[4,4,4]", "--set", "settings.blocks=[1,1,1]", "--set", "batch=2", "--set", "crop=16",
    "--set", "frames=[4]", "--set", "pool=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    for seed in range(2):
        np.savez(folder / f"{seed}.npz", frames=(render(8, 32, 32, seed=seed).numpy() * 255).astype(np.uint8))
    (folder / "broken.gif").write_bytes(b"GIF89a")
    return folder


@pytest.fixture
def run(unsnap: Callable, clips: Path) -> Path:
    assert unsnap("train", clips, "-o", "run", "--steps", 2, *SMALL, "-q").code == 0
    return Path("run")


def test_train_resume_rerun_pack_reconstruct(unsnap: Callable, clips: Path, scene: Path) -> None:
    done = unsnap("train", clips, "-o", "run", "--steps", 3, *SMALL, "--json")
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


def test_people_are_told(unsnap: Callable, clips: Path) -> None:
    done = unsnap("train", clips, "-o", "run", "--steps", 2, "--set", "validate_every=1", *SMALL)
    assert done.code == 0
    assert "2 steps" in done.out
    assert done.err.count("psnr_fixed") == 2
    assert "--method run/best.safetensors" in done.err
    quiet = unsnap("train", clips, "-o", "quiet", "--steps", 1, *SMALL, "-q")
    assert quiet.err == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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
    assert stopped.code == 130
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
    "unknown network": (["CLIPS", "--network", "nonsense"], ["nonsense", "unet"]),
    "unknown setting": (["CLIPS", "--set", "nonsense=1"], ["nonsense", "batch"]),
    "bad setting": (["CLIPS", "--set", "batch=0"], ["batch", "0"]),
    "wrong architecture": (["--resume", "run", "--steps", "1", "--set", "settings.context=false"], ["architecture"]),
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
    assert "torchrun" in said
    assert "--resume" in said
