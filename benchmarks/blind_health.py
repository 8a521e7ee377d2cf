"""What `unsnap inspect` finds without truth: faults × scenes, with detection and false alarm rates.

    python benchmarks/blind_health.py [--clips FOLDER] [--scenes FOLDER] [--sound] [--json PATH]

Rendered scenes through masks of every kind and size; the windows of validation clips and scene files, if named. A fault
counts as found if a finding of its subject is fatal or a warning; "cannot tell" is neither found nor a false alarm.
--sound: no faults, only the alarms on all of these, and on every kind of camera that `unsnap simulate` knows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import clips, finish, show
from unsnap import Scene, diagnose, load_scene
from unsnap.masks import bernoulli, gray, shifted
from unsnap.simulate import gaussian, render, simulate
from unsnap.simulate.recording import Recording

Fault = Callable[[Scene], Scene]


def _masks(change: Callable[[Tensor], Tensor]) -> Fault:
    return lambda scene: replace(scene, masks=change(scene.masks).contiguous(), truth=None)


def _pixels(share: float, value: float) -> Fault:
    def fault(scene: Scene) -> Scene:
        y = scene.measurement.clone()
        where = torch.rand(y.shape[-2:], generator=torch.Generator().manual_seed(2)) < share
        where[where.shape[0] // 2, where.shape[1] // 3] = True  # small pictures have one at least
        y[:, where] = value * float(y.max())
        return replace(scene, measurement=y, truth=None)

    return fault


def _exposed(scene: Scene) -> Scene:
    """The last frame got 1.6 times the light of the others."""
    weights = torch.ones(scene.frames)
    weights[-1] = 1.6
    truth = scene.truth if scene.truth is not None else torch.empty(0)
    coded = scene.operator.with_masks(scene.masks * weights[:, None, None]).A(truth)
    return replace(scene, measurement=coded, truth=None)


def _offset(scene: Scene) -> Scene:
    """A fifth of the mean light came through no mask."""
    return replace(scene, measurement=scene.measurement + 0.2 * scene.measurement.mean(), truth=None)


def _blurred(masks: Tensor) -> Tensor:
    """Through a lens, σ about half a pixel."""
    kernel = torch.tensor([0.15, 0.7, 0.15]).to(masks)
    return torch.stack([_smooth(_smooth(m, kernel).mT, kernel).mT for m in masks])


def _smooth(picture: Tensor, kernel: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(picture[None], (1, 1), mode="replicate")[0]
    return torch.stack([w * padded[:, k : k + picture.shape[1]] for k, w in enumerate(kernel)]).sum(0)


def _softened(scene: Scene) -> Scene:
    """The masks that coded the capture were less sharp than those given."""
    truth = scene.truth if scene.truth is not None else torch.empty(0)
    coded = scene.operator.with_masks(_blurred(scene.masks)).A(truth)
    return replace(scene, measurement=coded, truth=None)


def _shuffled(masks: Tensor) -> Tensor:
    return masks[torch.randperm(len(masks), generator=torch.Generator().manual_seed(1))]


FAULTS: dict[str, tuple[str, Fault]] = {
    "upside down": ("alignment", _masks(lambda m: m.flip(-2))),
    "mirrored": ("alignment", _masks(lambda m: m.flip(-1))),
    "turned by 180°": ("alignment", _masks(lambda m: m.flip(-1, -2))),
    "transposed": ("alignment", _masks(lambda m: m.mT)),
    "rolled by (17, -9)": ("alignment", _masks(lambda m: m.roll((17, -9), (-2, -1)))),
    "moved by (2, 1)": ("alignment", _masks(lambda m: m.roll((2, 1), (-2, -1)))),
    "frames shuffled": ("frame order", _masks(_shuffled)),
    "frames rolled by 3": ("frame order", _masks(lambda m: m.roll(3, -3))),
    "backwards in time": ("time", _masks(lambda m: m.flip(-3))),
    "hot pixels": ("hot pixels", _pixels(1e-3, 3.0)),
    "dead pixels": ("dead pixels", _pixels(1e-3, 0.0)),
    "last frame 1.6 × exposed": ("exposure", _exposed),
    "offset of a fifth": ("contrast", _offset),
    "masks blurred": ("contrast", _softened),
}


NEED_TRUTH = ("last frame 1.6 × exposed", "masks blurred")


def rendered() -> Iterator[tuple[str, Scene]]:
    random = torch.Generator().manual_seed(0)
    for size, frames in ((32, 4), (64, 2), (64, 8), (128, 8), (64, 16), (64, 24)):
        kinds = {
            "binary": bernoulli(frames, size, size, generator=random),
            "sparse": bernoulli(frames, size, size, p=0.1, generator=random),
            "grey": gray(frames, size, size, generator=random),
            "soft": gray(frames, size, size, blur=1.0, generator=random),
            "moving": shifted(frames, size, size, blur=0.5, generator=random),
            "one-hot": torch.eye(frames)[torch.randint(frames, (size, size), generator=random)].movedim(-1, 0),
        }
        video = render(2 * frames, size, size, seed=size + frames)
        for kind, masks in kinds.items():
            yield kind, simulate(video, masks.contiguous(), noise=gaussian(0.02), generator=random)


CAMERAS: dict[str, dict[str, Any]] = {
    **{f"bayer:{order}": {} for order in ("rggb", "bggr", "grbg", "gbrg", "quad-rggb")},
    **{kind: {} for kind in ("rgb", "dispersed:2", "dispersed:-1", "dispersed:1,0", "dual:2")},
    "multishot": {"shots": 2},
    "snapshot": {"photons": 2000.0, "read_noise": 5.0, "bits": 8},
    "snapshot, moving": {"mask": "shifted", "blur": 0.7, "photons": 500.0, "read_noise": 5.0, "bits": 12},
    "snapshot, grey": {"mask": "gray", "blur": 0.7, "frames": 20, "bits": 10},
}


def simulated() -> Iterator[tuple[str, Scene]]:
    for name, settings in CAMERAS.items():
        kind = name.partition(",")[0]
        snapshots = None if kind.startswith(("dispersed", "dual")) else 2
        for seed in (0, 1):
            plain: dict[str, Any] = {"kind": kind, "size": "96x96", "snapshots": snapshots, "seed": seed}
            noise: dict[str, Any] = {} if "photons" in settings else {"noise": 0.02}
            yield name, Recording(**plain, **noise, **settings).of()


def alarms(scene: Scene, *, deep: bool = True) -> set[str]:
    """Subjects of all warnings; pixels that no mask opens are no fault of the sensor's."""
    found = diagnose(scene, deep=deep)
    return {one.subject for one in found if one.level in ("warning", "fatal") and "Σm² = 0" not in one.text}


def _known(scene: Scene) -> bool:
    return scene.truth is not None and len(scene.truth) == scene.snapshots


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--scenes", type=Path, nargs="*", default=[])
    parser.add_argument("--sound", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    groups: dict[str, list[Scene]] = {}
    for kind, scene in rendered():
        groups.setdefault(f"rendered, {kind}", []).append(scene)
    if options.clips:
        masks, videos = clips(options.clips, 128)
        groups["clips, binary"] = [simulate(v, m, noise=gaussian(0.02)) for m, v in zip(masks, videos, strict=True)]
    for folder in options.scenes:
        groups.setdefault("files", []).extend(load_scene(path) for path in sorted(folder.glob("*cacti.mat")))
    rows: list[dict[str, Any]] = []
    if options.sound:
        for name, scene in simulated():
            groups.setdefault(name, []).append(scene)
    sound = {group: [alarms(replace(scene, truth=None)) for scene in scenes] for group, scenes in groups.items()}
    if options.sound:
        for group, found in sound.items():
            subjects = sorted(set().union(*found))
            rows.append({"scenes": group, "count": len(found), "alarms": ", ".join(subjects) or "none"})
        show("alarms without a fault", rows)
        finish(options.json, rows)
        return
    quiet = {group: f"{sum(map(bool, found))}/{len(found)}" for group, found in sound.items()}
    rows.append({"fault": "none: any alarm", **quiet})
    for name, (subject, fault) in FAULTS.items():
        row: dict[str, Any] = {"fault": name}
        deep = subject in ("frame order", "time", "exposure")
        for group, scenes in groups.items():
            # Other exposures and masks can be simulated only where all of the truth is known.
            usable = [k for k, s in enumerate(scenes) if name not in NEED_TRUTH or _known(s)]
            hits = sum(subject in alarms(fault(scenes[k]), deep=deep) for k in usable)
            false = sum(subject in sound[group][k] for k in usable)
            row[group] = f"{hits}/{len(usable)}" + (f" ({false} false)" if false else "")
        rows.append(row)
        finish(options.json, rows)  # as they come: all of them take minutes
    show("faults found (false alarms on the same scenes without the fault)", rows)


if __name__ == "__main__":
    main()
