"""Jobs of the tabs Camera and Models: calibration before and after, certificates, training."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from unsnap import zoo
from unsnap.calibration import Camera, calibrate
from unsnap.errors import InputError
from unsnap.fields import finite
from unsnap.fixed_point.rates import describe
from unsnap.io import save_arrays
from unsnap.masks import bernoulli
from unsnap.models import Equilibrium
from unsnap.models.stability import certify
from unsnap.operators import Snapshot
from unsnap.run import reconstruct
from unsnap.scene import Scene
from unsnap.simulate import render
from unsnap.studio.jobs import Tell
from unsnap.studio.reading import Reading
from unsnap.studio.work import read, small
from unsnap.training import Trainer, preset

SMALL: dict[str, dict[str, Any]] = {
    "denoiser": {"settings": {"channels": [8, 8, 8]}, "batch": 2, "crop": 32},
    "de-gap": {"settings": {"channels": [8, 8, 8]}, "start": "total_variation", "crop": 32, "implicit": 0.0},
    "shift-net": {"settings": {"channels": [8, 8, 8], "context": False}, "crop": 32, "stages": 3},
}
"""What is made smaller in a preset, so that seconds show something."""


def misplaced(tell: Tell, path: Path, reading: Reading, shift: tuple[float, float], target: Path) -> None:
    """A file of the masks, moved: as if they had been taken before somebody touched the camera."""
    scene = read(path, reading, anyway=True)
    moved = Camera(shift=shift).apply(scene)
    save_arrays(target, mask=moved.masks.numpy())
    tell({"masks": target})


def before_after(tell: Tell, path: Path, reading: Reading, target: Path) -> None:
    """What `unsnap calibrate` finds, its camera file, and a frame by gap-tv3d without and with it."""
    scene = read(path, reading, anyway=True)
    tell({"stage": "Reconstructing with the masks as given …", "share": 0.0})
    before = _frame(scene)
    camera = calibrate(scene, told=lambda stage, share: tell({"stage": f"Calibrating: {stage} …", "share": share}))
    if not camera.told:
        raise InputError("the captures do not show where their masks were, so that nothing can be calibrated")
    camera.save(target)
    after = _frame(camera.apply(scene))
    frames = [small(frame) for frame in (before, after)]
    tell({"camera": target, "facts": camera.to_dict(), "pictures": frames, "changed": camera.changed})


def _frame(scene: Scene) -> torch.Tensor:
    """The middle frame of the first snapshot."""
    first = scene.pick([0])
    frame = reconstruct(first.measurement, first.operator, "gap-tv3d").x[0, scene.frames // 2]
    return frame / max(float(torch.quantile(frame.flatten()[:: 1 + frame.numel() // 10**6], 0.995)), 1e-12)


def convergence(tell: Tell, name: str, crop: int) -> None:
    """A shipped equilibrium on the built-in scene: its residual on the way, then what is proven and measured of it."""
    model = zoo.load(name)
    if not isinstance(model, Equilibrium):
        raise InputError(f"{name} is not an equilibrium: it has no residual that would tell of convergence")
    phi = Snapshot(bernoulli(8, crop, crop, generator=torch.Generator().manual_seed(0)))
    y = phi.A(render(8, crop, crop, seed=0))[None]

    def watch(k: int, x: torch.Tensor, residual: torch.Tensor) -> None:
        if k > 0:
            tell({"iteration": k, "total": model.max_iter, "residual": float(residual.max())})
        else:  # a start counts up to 0 first
            tell({"stage": "Making its start …"})

    with torch.no_grad():
        solution = model(y, phi, callback=watch)
    tell({"stage": "Measuring at the equilibrium …"})
    certificate = certify(model, y, phi, solution=solution, iterations=10)
    facts = {
        "statement": certificate.statement,
        "certified": certificate.certified,
        "solver": describe(certificate.solver),
        "residual": float(solution.final.max()),
        "tolerance": model.tol,
        "evaluations": int(solution.evaluations),
        "converged": bool(solution.converged.all()),
        "Lipschitz constant here (estimate)": certificate.local_lipschitz,
        "spectral radius here (estimate)": certificate.spectral_radius,
    }
    history = solution.residual.flatten(1).amax(1).tolist()
    tell({"certificate": finite(facts), "history": history})


def train(tell: Tell, name: str, seconds: float, folder: Path) -> None:
    """A small model of a preset on rendered clips, for so many seconds; its file is best.safetensors in the folder."""
    tell({"stage": "Rendering clips …"})
    config = preset(name, minutes=seconds / 60, warmup=20, validate_every=10**6, checkpoint_every=10**6, **SMALL[name])
    last = 0.0

    def report(facts: dict[str, Any]) -> None:
        nonlocal last
        if "loss" in facts:
            told = {"step": facts["step"], "loss": facts["loss"], "share": facts["progress"]}
            if time.monotonic() - last > 0.15:
                last = time.monotonic()
                told["draw"] = True
            tell(told)

    trainer = Trainer(config, folder, report=report)
    trainer.run()
    scores = finite(trainer.log.lines[-1]) if trainer.log.lines else {}
    tell({"model": folder / "best.safetensors", "steps": trainer.step, "scores": scores})
