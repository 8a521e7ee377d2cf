"""What a named recipe is: how to solve, and what a user wants to know before choosing it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unsnap.algorithms.iterate import Callback, Solution, Watch
from unsnap.errors import InputError
from unsnap.operators import RGB, Bayer, CodedOperator, planes

Solve = Callable[[Tensor, CodedOperator, int, Watch], Solution]
"""solve(y, phi, iterations, watch)"""
Warm = Callable[[Tensor, CodedOperator, int, Watch, Tensor], Solution]
"""warm(y, phi, iterations, watch, start)"""
Check = Callable[[int, int, int], None]
"""check(frames, height, width): an InputError if such a video cannot be served here"""

SHIPPED = "shipped weights"


def serves_all(frames: int, height: int, width: int) -> None:
    """The check of a method that needs nothing and takes any size."""


def plane_by_plane(solve: Solve) -> Solve:
    """For what knows grey cameras alone: the colours of a colour camera one by one, as a batch."""

    def coloured(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        if not isinstance(phi, (Bayer, RGB)):
            return solve(y, phi, n, watch)
        lead = phi.aligned(y)[2]
        callback = watch.get("callback")

        def joined(k: int, x: Tensor, change: Tensor) -> None:
            if callback is not None:
                callback(k, x.reshape(*lead, *phi.video), change.reshape(*lead, -1).amax(-1))

        found = solve(*planes(y, phi), n, {**watch, "callback": joined})
        residual, converged, diverged = (
            part.reshape(*part.shape[:-1], *lead, -1) for part in (found.residual, found.converged, found.diverged)
        )
        return Solution(found.x.reshape(*lead, *phi.video), residual.amax(-1), converged.all(-1), diverged.any(-1))

    return coloured


@dataclass(frozen=True)
class Method:
    """A recipe and what a user wants to know before choosing it."""

    name: str
    family: str
    summary: str
    reference: str
    solve: Solve
    iterations: int = 40
    tol: float = 1e-2
    """What the last relative change may be for the run to count as converged."""
    early: bool = False
    """Stop as soon as `tol` is reached, before all iterations are done."""
    solved: bool = False
    """Every part of a picture goes on to `tol` by itself, and does not stop where a sample of the whole did."""
    needs: str = ""
    """What it runs on beside the snapshot: nothing (empty), `SHIPPED`, a file of weights or a package to get."""
    frames: str = "any"
    """Which numbers of frames T it takes."""
    check: Check = serves_all
    """Can it serve a video of this size here and now? Costs nothing, and is asked before any work begins."""
    serves: tuple[type[CodedOperator], ...] = (CodedOperator,)
    """Which kinds of cameras: all, unless it needs more than the base has."""
    cpu_seconds: float | None = None
    """Processor seconds for one snapshot of 8 frames 256×256, as `benchmarks/method_times.py` measured them."""
    warm: Warm | None = None
    """The same from a given video: streams begin with the last one."""
    reach: int = 32
    """Pixels beyond a part of a picture that have a say in it: `benchmarks/tiles.py` measures what fewer would cost."""
    grid: int = 8
    """Parts begin at multiples of it, where patches lie on a grid or networks halve the picture."""
    footprint: int = 700
    """Bytes of memory for each pixel of each frame while it runs, with masks and snapshot (`benchmarks/scale.py`)."""
    together: Solve | None = None
    """The same for snapshots (N, *image) taken one after the other, which tell one another what they saw."""

    @property
    def year(self) -> int | None:
        """Of the publication that `reference` names first."""
        found = re.findall(r"\b(?:19|20)\d\d\b", self.reference)
        return int(found[0]) if found else None

    def missing(self) -> str | None:
        """Why it cannot run here, whatever the snapshot (weights or a package are not there), or None."""
        try:
            self.check(8, 256, 256)
        except InputError as error:
            return str(error)
        return None

    def __call__(
        self,
        y: Tensor,
        phi: CodedOperator,
        *,
        iterations: int | None = None,
        tol: float | None = None,
        callback: Callback | None = None,
        together: bool = False,
        start: Tensor | None = None,
    ) -> Solution:
        """Run the recipe without recording gradients; a tolerance given here also stops early.

        together: the snapshots (N, *image) are one camera's in sequence, and may help one another. start: a video like
        the one to be found, for methods that are `warm`.
        """
        watch: Watch = {
            "tol": self.tol if tol is None else tol,
            "early": self.early or tol is not None,
            "callback": callback,
        }
        self.check_camera(phi)
        count = self.iterations if iterations is None else iterations
        if not isinstance(count, int) or count < 1:
            raise InputError(f"iterations must be a whole number of at least 1, got {count!r}")
        if not watch["tol"] >= 0:  # NaN, too
            raise InputError(f"tol must be a number of at least 0, got {tol!r}")
        with torch.no_grad():
            y, phi = phi.normalised(y.to(phi.masks))
            phi.aligned(y)  # do they fit one another? Said here, in the name of no method
            if y.numel() == 0:
                return replace(_nothing(y, phi), method=self.name, colour=isinstance(phi, (Bayer, RGB)))
            told = None if phi.whole is None or self.solved else phi.whole.told("iterations")
            if told is not None and watch["early"]:  # all parts stop where the sample of the whole did
                count, watch["early"] = told, False
            solve = self._solver(y, phi, together) if start is None else self._from(start)
            found = solve(y, phi, count, watch)
            if phi.whole is not None:
                phi.whole.note("iterations", found.iterations)
        return replace(found, method=self.name, colour=isinstance(phi, (Bayer, RGB)))

    def _solver(self, y: Tensor, phi: CodedOperator, together: bool) -> Solve:
        if not together:
            return self.solve
        if self.together is None:
            raise InputError(
                f"method {self.name!r} takes every snapshot alone; leave out --together, or use one that need not, "
                "such as gap-wnnm"
            )
        if y.ndim != len(phi.image) + 1:
            size = ", ".join(map(str, phi.image))
            raise InputError(f"snapshots in sequence must be (N, {size}), got {tuple(y.shape)}")
        if phi.channels > 1 and len(y) > 1:
            raise InputError("snapshots in sequence must be grey, these are in colour or spectra; leave out --together")
        return self.together if len(y) > 1 else self.solve

    def _from(self, start: Tensor) -> Solve:
        warm = self.warm
        if warm is None:
            raise InputError(f"method {self.name!r} has a start of its own; leave out the video to begin with")
        return lambda y, phi, n, watch: warm(y, phi, n, watch, phi.project(start, y))

    def check_camera(self, phi: CodedOperator) -> None:
        """An InputError unless it serves this camera, and videos of this size here and now."""
        if not isinstance(phi, self.serves):
            wanted = " or ".join(kind.__name__ for kind in self.serves)
            raise InputError(
                f"method {self.name!r} serves cameras of the kind {wanted}, not {type(phi).__name__}; use one that "
                "serves any, such as gap-tv3d"
            )
        try:
            self.check(*phi.video)
        except InputError as error:
            named = "" if self.name in str(error) else f"method {self.name!r} cannot serve this: "
            raise InputError(f"{named}{error}") from error


def _nothing(y: Tensor, phi: CodedOperator) -> Solution:
    """The videos of no snapshots."""
    x = phi.A_adjoint(y)
    none = x.new_zeros(x.shape[:-3])
    return Solution(x, none[None], none == 0, none != 0)
