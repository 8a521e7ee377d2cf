"""What the tabs Camera and Models compute, without their page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unsnap.errors import InputError
from unsnap.io import save_scene
from unsnap.methods import get
from unsnap.run import reconstruct
from unsnap.simulate.recording import Recording
from unsnap.studio import work_models
from unsnap.studio.core import Studio
from unsnap.studio.reading import Reading
from unsnap.training import sources
from unsnap.training.clips import rendered_clips


def told(work: Any, *args: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    work(messages.append, *args)
    return messages


def test_a_busy_machine_is_expected_to_be_busy_for_other_methods_too(tmp_path: Path) -> None:
    studio, report = Studio(tmp_path), {"values": 2 * 8 * 256 * 256}
    before = {name: studio.expected(get(name), report) for name in ("gap-tv", "gap-wnnm", "desci")}
    size = {"snapshots": 1, "frames": 8, "height": 256, "width": 256}
    studio._learn("gap-wnnm", {"seconds": 30.0, "cpu_seconds": 6.0, **size})
    after = {name: studio.expected(get(name), report) for name in before}
    assert after["gap-wnnm"] == pytest.approx(60.0)
    assert after["desci"] == pytest.approx(5 * before["desci"])
    assert after["gap-tv"] == pytest.approx(5 * before["gap-tv"])


def test_masks_that_were_moved_are_found_again(tmp_path: Path) -> None:
    capture = save_scene(tmp_path / "capture.npz", Recording(size="48x48", snapshots=1).of())
    masks, camera = tmp_path / "masks.npz", tmp_path / "camera.npz"
    told(work_models.misplaced, capture, Reading(), (0.8, -0.6), masks)
    found = told(work_models.before_after, capture, Reading(masks=masks), camera)[-1]
    assert found["changed"]
    assert found["facts"]["shift"] == pytest.approx((-0.8, 0.6), abs=0.1)
    assert found["facts"]["objective_after"] < found["facts"]["objective_before"]
    assert camera.is_file()
    before, after = found["pictures"]
    assert not np.array_equal(before, after)


def test_a_shipped_equilibrium_shows_its_residuals_and_its_certificate() -> None:
    *way, last = told(work_models.convergence, "guided-certified", 16)
    facts = last["certificate"]
    assert facts["certified"]
    assert facts["converged"]
    assert last["history"][-1] <= facts["tolerance"] < last["history"][0]
    assert [m["residual"] for m in way if "residual" in m] == pytest.approx(last["history"])


def test_what_is_no_equilibrium_is_one_sentence() -> None:
    with pytest.raises(InputError, match="gmm is not an equilibrium"):
        told(work_models.convergence, "gmm", 16)


def test_seconds_of_training_make_a_model_that_reconstructs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "rendered_clips", lambda seed: rendered_clips(3, 12, 48, seed))  # twelve take seconds
    *way, last = told(work_models.train, "de-gap", 0.5, tmp_path / "run")
    assert any("loss" in message for message in way)
    assert last["steps"] > 0
    scene = Recording(size="16x16").of()
    assert reconstruct(scene.measurement, scene.operator, get(str(last["model"]))).x.isfinite().all()
