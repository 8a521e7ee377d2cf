"""Where tiles come from: a scene in memory, or a file that is read a window at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from unsnap.errors import InputError
from unsnap.io.windows import Windows
from unsnap.operators import CodedOperator
from unsnap.scene import Scene
from unsnap.tiling.cut import Window, foreign, leaving_out, part, sampled


@dataclass(frozen=True)
class Source:
    """A scene of which any window can be had. video: (T, H, W); look: what `save_video` must know of its videos."""

    video: tuple[int, ...]
    snapshots: int
    spread: tuple[int, int]
    window: Window
    truth: Callable[[int, int], Tensor | None]
    """truth(snapshot, frame): (H, W), if it is known"""
    corner: Scene
    """A small part, to know the camera by"""

    @property
    def operator(self) -> CodedOperator:
        return self.corner.operator

    def sample(self, most: int | None = None) -> Scene:
        """What stands for all of it, of `most` pixels at most."""
        return sampled(self.window, self.video, self.spread, most)


def of_scene(scene: Scene) -> Source:
    phi, known = scene.operator, scene.truth
    spread = phi.spread
    if spread is None:
        raise InputError(f"a {scene.camera} mixes pixels in a way of its own, so that it cannot be cut into tiles")

    def truth(snapshot: int, frame: int) -> Tensor | None:
        return known[snapshot, frame] if known is not None and snapshot < len(known) else None

    window = partial(part, scene)
    return Source(phi.video, scene.snapshots, spread, window, truth, _corner(window, phi.video))


def of_file(windows: Windows) -> Source:
    def window(rows: slice, columns: slice) -> Scene:
        scene = windows.window(rows, columns)
        if not max(windows.spread):
            return scene
        return leaving_out(scene, foreign(windows.video, windows.step, rows, columns))

    corner = _corner(window, windows.video)
    return Source(windows.video, windows.snapshots, windows.spread, window, windows.truth, corner)


def _corner(window: Window, video: tuple[int, ...]) -> Scene:
    return window(slice(0, min(32, video[1])), slice(0, min(32, video[2])))
