"""The run: it learns, it survives, and it goes on exactly where it was."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import finished, lasting, resumed, same, tiny
from torch import nn

from unsnap.errors import InputError
from unsnap.models import load
from unsnap.networks import NETWORKS
from unsnap.training import Config, Trainer, preset, resume, sources, trainer
from unsnap.training import validate as validation
from unsnap.training.checkpoint import load_checkpoint
from unsnap.training.clips import rendered_clips
from unsnap.training.validate import validate


def weights(run: Trainer) -> list[torch.Tensor]:
    return [p.detach().clone() for p in run.parameters]


def test_seconds_of_training_improve_the_reconstruction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "rendered_clips", lambda seed: rendered_clips(4, 12, 48, seed))
    monkeypatch.setattr(validation, "DEPTHS", (5, 20, 80))
    few = {
        "crop": 32,
        "batch": 4,
        "frames": (8,),
        "pool": 4,
        "age": 60,
        "warmup": 10,
        "rate": 5e-3,
        "steps": 200,
        "noise": 0.02,
    }
    stages = {"gaussian": 0.1, "blend": 0.3, "implicit": 0.0, "start": "least_squares"}
    run = Trainer(Config(network="cnn", settings={"layers": 4, "channels": 8}, unroll=1, **few, **stages), tmp_path)
    before = validate(run.mean, run.views)
    best = run.run()
    after = run.log.lines[-1]
    gains = {k: after[k] - before[k] for k in ("psnr_5", "psnr_20", "psnr_80", "psnr_fixed")}
    assert min(gains.values()) > 3, gains
    assert abs(after["psnr_80"] - after["psnr_20"]) < 3, "it does not drift with depth"
    model = load(best)
    assert model.about["step"] == 200
    assert same(model.state_dict(), run.mean.state_dict())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> Trainer:
    """A run from its beginning to its end, for those that must end alike."""
    return finished(tiny(clips), tmp_path_factory.mktemp("whole"))


def test_the_same_config_gives_the_same_run(tmp_path: Path, clips: Path, whole: Trainer) -> None:
    runs = [Trainer(tiny(clips, seed=s), tmp_path / str(s)) for s in (0, 1)]
    for run in runs:
        run.run()
    assert same(lasting(runs[0].state()), lasting(whole.state()))
    assert not same(runs[1].state()["weights"], whole.state()["weights"])
    again = Config.from_json((tmp_path / "0" / "config.json").read_text())
    assert again == runs[0].config


@pytest.mark.parametrize("stop", [1, 7])
def test_resuming_is_bit_identical(tmp_path: Path, clips: Path, whole: Trainer, stop: int) -> None:
    again = resumed(tiny(clips), tmp_path, stop)
    assert same(lasting(again.state()), lasting(whole.state()))
    strip = [{**line, "minutes": 0, "cpu_hours": 0} for line in again.log.lines]
    assert strip == [{**line, "minutes": 0, "cpu_hours": 0} for line in whole.log.lines]


def test_more_minutes_and_steps_are_counted_from_here(tmp_path: Path, clips: Path) -> None:
    first = Trainer(tiny(clips, steps=4), tmp_path)
    first.run()
    longer = resume(tmp_path, more_steps=4)
    assert (longer.config.steps, longer.config.minutes, longer.progress) == (8, None, 0.5)
    timed = resume(tmp_path, more_minutes=3)
    assert timed.config.steps is None
    assert timed.config.minutes == pytest.approx(3 + first.elapsed / 60)
    assert timed.progress < 0.1
    longer.run()
    assert longer.step == 8
    assert len([line for line in longer.log.lines if line["step"] == 4]) == 1


def test_a_longer_run_does_not_go_back_to_an_earlier_stage(
    tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = {"gaussian": 0.5, "blend": 0.5, "implicit": 0.5, "implicit_share": 1.0}
    Trainer(tiny(clips, steps=4, **stages), tmp_path).run()
    longer = resume(tmp_path, more_steps=100)
    assert longer.progress < 0.1
    seen = []
    monkeypatch.setattr(longer, "_gaussian", lambda: pytest.fail("Gaussian noise again"))
    learn = longer._learned
    monkeypatch.setattr(longer, "_learned", lambda batch, how: seen.append(how) or learn(batch, how))
    longer.one_step(longer.progress)
    assert [how.tol for how in seen] == [1e-4], "implicit gradients, as exact as at the end"


def test_a_run_by_the_clock_can_be_resumed_again_and_again(tmp_path: Path, clips: Path) -> None:
    Trainer(tiny(clips, steps=None, minutes=1e-3), tmp_path).run()  # its last step ends after its last minute
    for _ in range(2):
        run = resume(tmp_path, more_steps=1)
        assert run.reached == 1
        run.run()


def test_a_new_folder_gets_a_best_model_of_its_own(tmp_path: Path, clips: Path) -> None:
    run = Trainer(tiny(clips, steps=3), tmp_path / "old")
    run.run()
    run.best = 1e9
    run.save()
    best = resume(tmp_path / "old", tmp_path / "new", more_steps=1).run()
    assert best == tmp_path / "new" / "best.safetensors"
    assert same(load(best).state_dict(), load(tmp_path / "new" / "last.safetensors").state_dict())


def test_the_log_forgets_what_came_after_the_checkpoint(tmp_path: Path, clips: Path) -> None:
    run = Trainer(tiny(clips, steps=4, validate_every=2), tmp_path)
    run.run()
    log = tmp_path / "log.jsonl"
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [2, 4]
    log.write_text(log.read_text() + '{"step": 6, "psnr_fixed": 99}\n{"step": broken\n')
    resume(tmp_path, more_steps=2).run()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6]
    assert lines[-1]["psnr_fixed"] < 99


def test_looking_and_saving_do_not_count_as_training(
    tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def tick(seconds: float, result: Any = None) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            now[0] += seconds
            return result

        return call

    monkeypatch.setattr(trainer.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(trainer, "validate", tick(1000, {"psnr_fixed": 20.0}))
    run = Trainer(tiny(clips, steps=None, minutes=5, validate_every=1), tmp_path)
    monkeypatch.setattr(run, "save", tick(1000))
    monkeypatch.setattr(run, "_average", tick(60))
    run.run()
    assert (run.step, run.elapsed, run.progress) == (5, 300, 1)


def test_batches_that_are_not_finite_are_skipped_and_counted(
    tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, broken = Trainer(tiny(clips, gaussian=0, blend=0, implicit=0), tmp_path), []
    honest = run.model.loss

    def sometimes(*args: Any) -> Any:
        found = honest(*args)
        if run.step in (3, 4):  # once the loss, once only its gradient
            broken.append(weights(run))
            spoilt = found.value * math.nan if run.step == 3 else found.value + (run.parameters[0] * 0).sqrt().sum()
            return found._replace(value=spoilt)
        return found

    monkeypatch.setattr(run.model, "loss", sometimes)
    run.run()
    assert (run.step, run.skipped, len(broken)) == (12, 2, 2)
    assert same(broken[0], broken[1]), "nothing was learned from it"
    assert not same(broken[1], weights(run)), "the run went on"
    assert all(bool(torch.isfinite(w).all()) for w in weights(run))
    assert run.log.lines[-1]["skipped"] == 2


@pytest.mark.parametrize("implicit", [0.0, 1.0])
def test_states_that_are_not_finite_are_renewed(tmp_path: Path, clips: Path, implicit: float) -> None:
    run = Trainer(tiny(clips, gaussian=0, blend=0, implicit=implicit, pool=1, age=100), tmp_path)
    run.one_step(0.5)
    entry = run.pool.entries[0]
    entry.batch, entry.life = replace(entry.batch, state=(entry.batch.truth * math.nan,)), 1000
    assert math.isnan(run.one_step(0.5))
    assert run.skipped == 1
    assert math.isfinite(run.one_step(0.5))
    assert run.pool.entries[0] is not entry


def test_a_hopeless_run_gives_up_with_advice(tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "HOPELESS", 3)
    run = Trainer(tiny(clips), tmp_path)
    with torch.no_grad():
        run.parameters[0].fill_(math.nan)
    with pytest.raises(InputError, match=r"3 batches in a row .* lower rate than 0.0"):
        run.run()


def test_a_model_that_cannot_be_scored_is_not_the_best(
    tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "validate", lambda model, views: {"psnr_fixed": math.nan, "residual": math.inf})
    run = Trainer(tiny(clips, steps=1), tmp_path)
    run.run()
    assert not (tmp_path / "best.safetensors").exists()
    assert (tmp_path / "last.safetensors").exists()
    line = json.loads((tmp_path / "log.jsonl").read_text())
    assert (line["psnr_fixed"], line["residual"]) == (None, None)


def test_the_mean_of_the_weights(tmp_path: Path, clips: Path) -> None:
    run = Trainer(tiny(clips, ema=0.5), tmp_path)
    expected = [p.detach().clone() for p in run.mean.parameters()]
    for step in range(1, 12):
        run.one_step(0.1)
        keep = min(0.5, (1 + step) / (10 + step))
        expected = [keep * e + (1 - keep) * w for e, w in zip(expected, weights(run), strict=True)]
    for mean, e in zip(run.mean.parameters(), expected, strict=True):
        torch.testing.assert_close(mean.detach(), e)


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        (None, {"network": "dncnn", "settings": {"layers": 2, "channels": 4}}),
        (None, {"network": "ffdnet", "settings": {"layers": 2, "channels": 4}}),
        (None, {"network": "cnn", "settings": {"layers": 2, "channels": 4}, "iteration": "admm"}),
        (None, {"network": "cnn", "settings": {"layers": 2, "channels": 4}, "iteration": "pgd", "strength": 0.5}),
        ("dun-3dunet", {"settings": {"channels": [4, 4, 4]}, "stages": 3, "shared": True}),
        ("gap-net", {"network": "ffdnet", "settings": {"layers": 2, "channels": 4}, "stages": 3, "shared": True}),
        ("gap-net", {"network": "rnn", "settings": {"channels": 4}, "stages": 1, "iteration": "recurrent"}),
        (None, {"network": "gradient_step", "settings": {"channels": 4}}),
    ],
)
def test_others_than_the_presets_train(tmp_path: Path, clips: Path, model: str | None, changes: dict[str, Any]) -> None:
    short = {"clips": str(clips), "steps": 6, "batch": 2, "crop": 16, "frames": (3,), "pool": 2, "warmup": 1}
    run = Trainer(preset(model, **short, **changes), tmp_path)
    start = weights(run)
    best = run.run()
    assert run.skipped == 0
    assert not any(torch.equal(a, b) for a, b in zip(start, weights(run), strict=True) if a.numel() > 1)
    loaded = load(best)
    assert same(loaded.state_dict(), run.mean.state_dict())
    assert (loaded.iteration, loaded.start) == (run.model.iteration, run.model.start)
    assert math.isfinite(run.log.lines[-1]["psnr_start"])


def test_the_jacobian_penalty_lowers_the_jacobian(tmp_path: Path, clips: Path) -> None:
    base = tiny(clips, gaussian=0, blend=0, implicit=1.0, steps=3)
    losses = []
    for penalty in (0.0, 1.0):
        run = Trainer(replace(base, penalty=penalty), tmp_path / str(penalty))
        losses.append(run.one_step(0.5))
    assert losses[1] > losses[0]


def test_an_occupied_folder_is_refused(tmp_path: Path, clips: Path) -> None:
    Trainer(tiny(clips, steps=1), tmp_path / "a").run()
    Trainer(tiny(clips, steps=1), tmp_path / "b").run()
    before = {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}
    with pytest.raises(InputError, match="already holds a run"):
        Trainer(tiny(clips), tmp_path / "a")
    with pytest.raises(InputError, match="already holds a run"):
        resume(tmp_path / "a", tmp_path / "b")
    assert before == {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {"channels": 5}}, "ShiftUNet: channels must be a list"),
        ({"settings": {"nonsense": 5}}, "has no setting 'nonsense'"),
        ({"network": "rnn", "settings": {}, "iteration": "recurrent"}, "set gaussian, blend and gaussian_share to 0"),
        ({"kind": "unfolded"}, "this unfolded of 'gap' has no single denoiser"),
        (
            {"network": "cnn", "settings": {}, "iteration": "recurrent", "gaussian": 0.0, "blend": 0.0},
            "the network 'cnn' is no whole iteration",
        ),
        ({"clips": "/nowhere/at/all"}, "/nowhere/at/all is not a folder of videos"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, clips: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        Trainer(replace(tiny(clips), **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Forgetful(nn.Module):
    """A network that does not say what it was made from."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor, sigma: float | torch.Tensor = 0.0) -> torch.Tensor:
        return 0.9 * x + self.weight.sum()


def test_what_could_not_be_loaded_again_is_not_trained(
    tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NETWORKS, "forgetful", Forgetful)
    with pytest.raises(InputError, match="'forgetful' built from its attribute `settings`"):
        Trainer(tiny(clips, network="forgetful", settings={"width": 5}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_unusable_videos_are_named(tmp_path: Path, clips: Path) -> None:
    folder = tmp_path / "clips"
    folder.mkdir()
    (folder / "good.npz").write_bytes((clips / "clip0.npz").read_bytes())
    (folder / "bad.mp4").write_bytes(b"no video")
    run = Trainer(tiny(folder, validation=str(folder)), tmp_path / "run")
    assert list(run.unused) == [str(folder / "bad.mp4")]


def test_the_checkpoint_is_the_whole_state(whole: Trainer) -> None:
    saved = load_checkpoint(whole.folder / "checkpoint.pt")
    assert same({k: v for k, v in saved.items() if k != "unsnap_checkpoint"}, whole.state())
