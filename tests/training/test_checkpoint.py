"""Checkpoints: written whole or not at all, read without running code, small enough for a repository."""

from __future__ import annotations

import json
import os
import pickle
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import same, tiny

from unsnap.errors import InputError
from unsnap.training import Trainer, resume
from unsnap.training.checkpoint import find, load_checkpoint, pack, save_checkpoint


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> Trainer:
    trainer = Trainer(tiny(clips, steps=6), tmp_path_factory.mktemp("run"))
    trainer.run()
    return trainer


@pytest.fixture
def copy(run: Trainer, tmp_path: Path) -> Path:
    """A checkpoint to spoil."""
    path = tmp_path / "checkpoint.pt"
    path.write_bytes((run.folder / "checkpoint.pt").read_bytes())
    return path


def test_a_full_disk_leaves_the_old_checkpoint(run: Trainer, copy: Path) -> None:
    before = copy.read_bytes()
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, old[1]))
    try:
        with pytest.raises(InputError, match=r"checkpoint\.pt cannot be written"):
            save_checkpoint(copy, run.state())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert copy.read_bytes() == before
    assert list(copy.parent.iterdir()) == [copy]


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.99])
def test_truncated(copy: Path, keep: float) -> None:
    data = copy.read_bytes()
    copy.write_bytes(data[: int(keep * len(data)) if 0 < keep < 1 else int(keep)])
    with pytest.raises(InputError, match=r"checkpoint\.pt") as caught:
        resume(copy)
    assert "\n" not in str(caught.value)


def test_damaged_bytes_are_never_a_traceback(copy: Path) -> None:
    data = bytearray(copy.read_bytes())
    for place in range(0, 3000, 97):
        spoiled = bytearray(data)
        spoiled[place : place + 8] = b"\xff\0\x13zz\xfe\0\x7f"
        copy.write_bytes(spoiled)
        with suppress(InputError):  # anything else is a failure
            load_checkpoint(copy)


class Hostile:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_code_is_never_run(tmp_path: Path, how: str) -> None:
    path, trace = tmp_path / "checkpoint.pt", tmp_path / "trace"
    state = {"unsnap_checkpoint": 1, "config": Hostile(trace)}
    if how == "torch":
        torch.save(state, path)
    else:
        path.write_bytes(pickle.dumps(state))
    with pytest.raises(InputError, match=r"checkpoint\.pt"):
        resume(path)
    assert not trace.exists()


def rewritten(path: Path, **changes: Any) -> Path:
    state = {k: v for k, v in load_checkpoint(path).items() if k != "unsnap_checkpoint"}
    save_checkpoint(path, {k: v for k, v in {**state, **changes}.items() if v is not None})
    return path


@pytest.mark.parametrize("key", ["step", "elapsed", "weights", "mean", "optimizer", "pool", "generator", "best"])
@pytest.mark.parametrize("value", [None, "nonsense", [1]])
def test_missing_and_foreign_parts(copy: Path, key: str, value: Any) -> None:
    with pytest.raises(InputError, match=r"checkpoint\.pt"):
        resume(rewritten(copy, **{key: value}))


def test_a_config_of_another_version(copy: Path) -> None:
    config = json.loads(load_checkpoint(copy)["config"])
    for changes in ({"version": 99}, {"colour": "blue"}, {"batch": 0}, {"batch": "many"}):
        with pytest.raises(InputError, match=r"checkpoint\.pt"):
            resume(rewritten(copy, config=json.dumps({**config, **changes})))
    with pytest.raises(InputError, match="is not a training config"):
        resume(rewritten(copy, config="nonsense"))


def test_another_format(copy: Path) -> None:
    torch.save({"unsnap_checkpoint": 2}, copy)
    with pytest.raises(InputError, match=r"format 1 \(found: 2"):
        load_checkpoint(copy)
    torch.save([1, 2], copy)
    with pytest.raises(InputError, match="found: None"):
        load_checkpoint(copy)


def test_weights_of_another_architecture(copy: Path) -> None:
    with pytest.raises(InputError, match=r"checkpoint\.pt holds another architecture than 'shift'"):
        resume(copy, changes={"settings": {"channels": [4, 4, 8]}})
    with pytest.raises(InputError, match="another architecture than 'cnn'"):
        resume(copy, changes={"network": "cnn"})


def test_another_optimiser(copy: Path) -> None:
    optimizer = load_checkpoint(copy)["optimizer"]
    optimizer["param_groups"][0]["betas"] = (0.9, 0.99)
    with pytest.raises(InputError, match="its optimiser is another one"):
        resume(rewritten(copy, optimizer=optimizer))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unsnap train"):
        resume(tmp_path)
    assert find(tmp_path) == tmp_path / "checkpoint.pt"


def test_the_slim_form(run: Trainer, tmp_path: Path) -> None:
    full, small = run.folder / "checkpoint.pt", tmp_path / "small.pt"
    pack(full, small)
    assert small.stat().st_size < 0.5 * full.stat().st_size
    with pytest.raises(InputError, match="-o"):
        resume(small)
    again = resume(small, tmp_path / "new", more_steps=3)
    assert same(again.state()["weights"], run.state()["weights"])
    assert same(again.state()["mean"], run.state()["mean"])
    assert again.pool.entries == []
    for new, old in zip(again.optimizer.state.values(), run.optimizer.state.values(), strict=True):
        assert new.keys() == old.keys()
        for name in [name for name, value in old.items() if isinstance(value, torch.Tensor)]:
            assert new[name].dtype == torch.float32
            torch.testing.assert_close(new[name], old[name], rtol=0.01, atol=0)
    again.run()
    assert (again.step, again.skipped) == (9, 0)


def test_packing_changes_the_config(copy: Path) -> None:
    small = copy.parent / "small.pt"
    pack(copy, small, {"clips": "elsewhere", "settings": {"context": False}})
    before, after = (json.loads(load_checkpoint(path)["config"]) for path in (copy, small))
    assert after["clips"] == "elsewhere"
    assert after["settings"] == {**before["settings"], "context": False}
    assert {k for k in before if before[k] != after[k]} == {"clips", "settings"}


@pytest.mark.parametrize("target", ["checkpoint.pt", "small.zip"])
def test_packing_refuses_bad_targets(copy: Path, target: str) -> None:
    before = copy.read_bytes()
    with pytest.raises(InputError, match=target):
        pack(copy, copy.parent / target)
    assert copy.read_bytes() == before


def test_packing_half_a_checkpoint(copy: Path) -> None:
    with pytest.raises(InputError, match="not a whole checkpoint"):
        pack(rewritten(copy, optimizer=None), copy.parent / "small.pt")


@pytest.mark.parametrize("part", ["optimizer", "weights", "mean"])
def test_numbers_that_would_spoil_the_run_are_refused_before_it_is_touched(part: str, copy: Path) -> None:
    state = load_checkpoint(copy)
    if part == "optimizer":
        state[part]["state"][0]["mean"].fill_(float("nan"))
    else:
        for weight in state[part].values():
            weight.fill_(1e38)
    save_checkpoint(copy, state)
    before = copy.read_bytes()
    with pytest.raises(InputError):
        resume(copy)
    assert copy.read_bytes() == before
    assert list(copy.parent.iterdir()) == [copy]


def test_a_run_that_ended_before_its_last_validation_makes_up_for_it(clips: Path, tmp_path: Path) -> None:
    trainer = Trainer(tiny(clips, steps=2, checkpoint_every=1), tmp_path)

    def full() -> None:
        raise OSError(28, "No space left on device")

    trainer.validate = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="No space"):
        trainer.run()
    again = resume(tmp_path)
    assert again.progress >= 1
    assert not again.validated
    assert again.run().is_file()
    assert resume(tmp_path).validated


def test_changed_settings_take_effect_or_are_refused(run: Trainer, tmp_path: Path) -> None:
    other = resume(run.folder, tmp_path / "other", more_steps=1, changes={"decay": 0.5})
    assert {group["weight_decay"] for group in other.optimizer.param_groups} == {0.5}
    for name, value in (("seed", 7), ("init", "nowhere")):
        with pytest.raises(InputError, match=f"{name} is what a run begins with"):
            resume(run.folder, tmp_path / "new", more_steps=1, changes={name: value})


def test_the_log_of_another_run_is_not_taken_over(run: Trainer, clips: Path, tmp_path: Path) -> None:
    Trainer(tiny(clips, steps=2, validate_every=1), tmp_path).run()
    resume(run.folder, tmp_path, more_steps=1, force=True).run()
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [7]
