"""What jobs do, each in a process of its own: functions that tell the page what it is to show."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsnap.calibration import calibrate
from unsnap.doctor import ALIGNMENT
from unsnap.doctor import examine as doctor
from unsnap.errors import InputError
from unsnap.io import save_arrays, save_scene, sha256
from unsnap.methods import everything, get
from unsnap.metrics import psnr
from unsnap.run import in_sequence, measure
from unsnap.scene import Scene
from unsnap.simulate.recording import Recording
from unsnap.studio.jobs import Message, Tell
from unsnap.studio.reading import TURNS, Reading
from unsnap.studio.uploads import unpacked

_PREVIEWS, _SIDE = 4, 192
_EVERY = 0.2
"""Seconds between pictures of a running method."""


def examine(tell: Tell, path: Path, reading: Reading) -> None:
    """The doctor's report, a picture of the snapshot and of a mask, and which methods can serve."""
    if path.suffix.lower() == ".zip":
        path = unpacked(path)
    tell({"path": path})
    report = doctor(path, deep=True, **reading.options())
    scene, facts = report.scene, report.to_dict() | {"meta": None, "arrays": {}}
    if scene is None:
        tell({"report": facts})
        return
    facts["truth"] = scene.truth is not None
    facts["values"] = int(np.prod(scene.operator.video)) * scene.snapshots
    facts["refused"] = {method.name: _refusal(method.check_camera, scene) for method in everything()}
    mask = scene.masks.reshape(-1, *scene.masks.shape[-2:])[0]
    pictures = [small(part / max(float(part.max()), 1e-12)) for part in (scene.pictures[0], mask)]
    tell({"report": facts, "pictures": pictures})


def _refusal(check: Callable[[Any], None], scene: Scene) -> str | None:
    try:
        check(scene.operator)
    except InputError as error:
        return str(error)
    return None


def read(path: Path, reading: Reading, anyway: bool) -> Scene:
    """The scene, as the commands read it: what the doctor calls fatal is refused."""
    report = doctor(path, **reading.options())
    for finding in report.findings:
        if finding.level == "fatal" and not (anyway and finding.subject == ALIGNMENT):
            raise InputError(finding.text)
    if report.scene is None:
        raise InputError(f"{path}: no scene could be read")
    return report.scene


def reconstruct(tell: Tell, path: Path, reading: Reading, name: str, anyway: bool, folder: Path, alone: bool) -> None:
    """The method on the capture: frames on the way, then video.npy (and truth.npy) in the folder, and the result."""
    scene, method = read(path, reading, anyway), get(name)
    method.check_camera(scene.operator)
    solution, result = measure(
        scene,
        method,
        seed=0,
        together=in_sequence(scene, method) and not alone,
        watcher=_watcher(tell, scene, method.iterations),
        sha256=sha256(path),
    )
    if not result.diverged:
        np.save(folder / "video.npy", solution.x.cpu().numpy())
        np.save(folder / "snapshot.npy", scene.pictures.numpy())
        if scene.truth is not None:
            np.save(folder / "truth.npy", scene.truth.numpy())
    history = solution.residual.flatten(1).amax(1).tolist() if solution.residual.ndim > 1 else []
    tell({"result": result.to_dict(), "look": scene.video_options, "history": history})


def _watcher(tell: Tell, scene: Scene, iterations: int) -> Callable[[int, Tensor, Tensor], None]:
    known, colours = scene.truth, 3 if scene.video_options["colour"] else 1
    last, begun = 0.0, 0

    def watch(iteration: int, x: Tensor, residual: Tensor) -> None:
        nonlocal last, begun
        begun = min(begun, iteration - 1)  # a start counts up to 0 first
        facts: Message = {"iteration": iteration - begun, "total": iterations - begun}
        facts["residual"] = float(residual.max())
        if time.monotonic() - last >= _EVERY:
            facts["frames"] = previews(x[0], colours)
            if known is not None:
                facts["psnr"] = float(psnr(x[:1].cpu(), known[:1]).mean())
            last = time.monotonic()
        tell(facts)

    return watch


def previews(video: Tensor, colours: int = 1) -> list[NDArray[np.uint8]]:
    """A few small frames (H, W) or (H, W, 3) of a video (colours · T, H, W)."""
    planes = torch.unflatten(video.detach().cpu(), 0, (colours, -1))
    count = planes.shape[1]
    chosen = sorted({round(k * (count - 1) / (_PREVIEWS - 1)) for k in range(_PREVIEWS)})
    frames = planes[:, chosen].movedim(0, -1)
    return [small(frame[..., 0] if colours == 1 else frame) for frame in frames]


def small(picture: Tensor) -> NDArray[np.uint8]:
    """A picture (H, W) or (H, W, 3) in [0, 1] as bytes, every n-th pixel of a large one."""
    step = max(1, -(-max(picture.shape[:2]) // _SIDE))
    found: NDArray[np.uint8] = (picture[::step, ::step].clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
    return found


def simulate(tell: Tell, video: Path | None, recording: Recording, target: Path) -> None:
    """The scene file that `unsnap simulate` would write."""
    if video is not None and video.suffix.lower() == ".zip":
        video = unpacked(video)
    save_scene(target, recording.of(video))
    tell({"path": target})


def turned(tell: Tell, path: Path, reading: Reading, turn: str, target: Path) -> None:
    """A file with the masks put right, as --masks takes it."""
    masks = read(path, reading, anyway=True).masks.numpy()
    save_arrays(target, mask=np.ascontiguousarray(TURNS[turn](masks)))
    tell({"masks": target})


def calibrated(tell: Tell, path: Path, reading: Reading, target: Path) -> None:
    """The camera file that `unsnap calibrate` would write; an InputError if there is nothing to put right."""
    scene = read(path, reading, anyway=True)
    camera = calibrate(scene, told=lambda stage, share: tell({"stage": f"Calibrating: {stage} …", "share": share}))
    if not camera.told:
        raise InputError("the captures do not show where their masks were, so that nothing can be calibrated")
    if not camera.changed:
        raise InputError("the calibration finds the masks where they should be; nothing is changed")
    camera.save(target)
    tell({"camera": target, "facts": camera.to_dict()})


def speed(tell: Tell) -> None:
    """How many times longer than the developers' machine this one takes, by gap-tv on a small scene."""
    method, scene = get("gap-tv"), Recording(frames=8, size="128x128").of()
    taken = [measure(scene, method)[1].cpu_seconds for _ in range(4)]  # the first reads compiled code from the disk
    tell({"factor": max(0.2, min(min(taken) / ((method.cpu_seconds or 0.2) / 4), 50.0))})
