"""Run a method: on arrays (`reconstruct`), or on a scene with a stopwatch and a score (`measure`)."""

from __future__ import annotations

import sys
import time
import warnings
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

from unsnap import __version__
from unsnap.algorithms.iterate import Callback, Solution
from unsnap.arrays import as_tensor
from unsnap.errors import InputError, short
from unsnap.fields import finite
from unsnap.methods import DEFAULT, Method, as_method, get
from unsnap.metrics import score
from unsnap.models.file import AnyModel
from unsnap.operators import CodedOperator, Snapshot
from unsnap.progress import bar, watcher
from unsnap.scene import Scene


class Watcher(Protocol):
    """Is shown every iteration; the time it takes is not counted."""

    def __call__(self, iteration: int, x: Tensor, residual: Tensor, /) -> None: ...


@dataclass(frozen=True)
class Result:
    """What `--json` prints: the contract for scripts. Scores are means over frames, then snapshots with known truth."""

    method: str
    scene: str
    snapshots: int
    frames: int
    height: int
    width: int
    psnr: float | None
    ssim: float | None
    psnr_per_snapshot: list[float] | None
    ssim_per_snapshot: list[float] | None
    seconds: float
    """Wall time of the reconstruction alone: kernels warm, file reading, scoring and progress display not counted."""
    cpu_seconds: float
    """The same in processor time, all threads added."""
    peak_rss_mb: float | None
    """Largest resident memory of the process while reconstructing."""
    iterations: int
    residual: float
    """Relative change of the last iteration, the largest over snapshots."""
    tolerance: float
    converged: bool
    diverged: bool
    device: str
    seed: int | None
    together: bool
    """Were the snapshots told of one another (`--together`)?"""
    output: str | None
    input_sha256: str | None
    unsnap_version: str
    torch_version: str
    warnings: list[str] = field(default_factory=list)
    """What a user should know before trusting the video."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: numbers that are not finite become None."""
        facts: dict[str, Any] = finite(asdict(self))
        return facts


def reconstruct(
    y: Tensor | NDArray[Any],
    masks: Tensor | NDArray[Any] | CodedOperator,
    method: str | Path | Method | AnyModel = DEFAULT,
    *,
    iterations: int | None = None,
    tol: float | None = None,
    callback: Callback | None = None,
    together: bool = False,
    progress: bool = False,
) -> Solution:
    """Video(s) (..., T, H, W) behind snapshot(s) y (..., H, W) taken through masks (T, H, W); intensities in [0, 1].

    y, masks: tensors or numpy arrays, computed with in 32 bits at least; any other camera than `Snapshot` is given in
    place of masks. A y far brighter than white is warned of: it is taken as it is. method: a name, the path of a model
    file, a `Method` or a model. together: y (N, H, W) are snapshots of one camera in sequence, which may help one
    another, where the method can (the default, `gap-wnnm`, finer grades). progress: show a bar, in a terminal or a
    notebook. No gradients are recorded: call a model or an algorithm for them.

    >>> from unsnap.masks import bernoulli
    >>> masks = bernoulli(4, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> reconstruct(masks.sum(0) / 2, masks).x.shape
    torch.Size([4, 32, 32])
    """
    phi = masks if isinstance(masks, CodedOperator) else Snapshot(as_tensor(masks, "masks"))
    phi = phi if phi.masks.dtype.itemsize >= 4 else phi.with_masks(phi.masks.float())
    chosen = get(method) if isinstance(method, (str, Path)) else method
    recipe = chosen if isinstance(chosen, Method) else as_method(chosen)
    with bar(recipe.name) if progress else nullcontext() as tell:
        ends = tol if tol is not None else recipe.tol if recipe.early else None
        shown = None if tell is None else watcher(tell, iterations or recipe.iterations, ends=ends)
        watch = _all_of(callback, shown)
        measured = as_tensor(y, "y").to(phi.masks)
        if torch.is_grad_enabled() and (measured.requires_grad or phi.masks.requires_grad):
            warnings.warn(
                "reconstruct records no gradients: its video has none with respect to y or the masks; call a model, as "
                "model(y, phi), or an algorithm, as gap(y, phi, denoiser, schedule)",
                RuntimeWarning,
                stacklevel=2,
            )
        if (level := _brightness(measured, phi)) > IMPLAUSIBLE:
            warnings.warn(
                f"y is about {level:.3g} times as bright as a white video behind these masks; divide it by what white "
                "is in its units, such as 255 for 8 bits",
                UserWarning,
                stacklevel=2,
            )
        return recipe(measured, phi, iterations=iterations, tol=tol, callback=watch, together=together)


IMPLAUSIBLE = 2.0
"""Times white: half of the pixels of a snapshot of a video in [0, 1] are not as bright, whatever the noise."""


@torch.no_grad()
def _brightness(y: Tensor, phi: CodedOperator) -> float:
    r"""Median of y over what a white video measures, of about a million pixels; 0 where that says nothing."""
    if not phi.pixelwise or phi.masks.numel() == 0 or bool((phi.masks < 0).any()):
        return 0.0  # negative masks cancel, and nobody agrees on the white of a spectrum
    y, phi, _ = phi.aligned(y)
    white = phi.A(phi.masks.new_ones(phi.video)).expand_as(y).flatten()
    step = 1 + y.numel() // 10**6
    some, light = y.flatten()[::step], white[::step]
    seen = light > 0.05 * light.max() if light.numel() else light > 0  # a little light is mostly noise
    return float((some[seen] / light[seen]).median()) if bool(seen.any()) else 0.0


def _all_of(*callbacks: Callback | None) -> Callback | None:
    there = [callback for callback in callbacks if callback is not None]

    def each(iteration: int, x: Tensor, residual: Tensor) -> None:
        for callback in there:
            callback(iteration, x, residual)

    return each if there else None


def measure(
    scene: Scene,
    method: Method,
    *,
    iterations: int | None = None,
    tol: float | None = None,
    device: str = "cpu",
    seed: int | None = None,
    together: bool = False,
    start: Tensor | None = None,
    watcher: Watcher | None = None,
    sha256: str | None = None,
) -> tuple[Solution, Result]:
    """Reconstruct all snapshots of a scene as one batch; the numbers behind `--json`, `bench` and `compare`."""
    place = resolve_device(device)
    if seed is not None:
        torch.manual_seed(seed)
    scene = scene.to(place)
    y, phi = scene.measurement, scene.operator
    _warm_up(method, scene)
    reset_peak()
    stopwatch = _Stopwatch(place, watcher)
    solution = method(
        y, phi, iterations=iterations, tol=tol, callback=stopwatch.callback, together=together, start=start
    )
    seconds, cpu_seconds = stopwatch.read()
    known = None if scene.truth is None else score(solution.x.cpu(), scene.truth)
    height, width = phi.video[-2:]
    result = Result(
        method=method.name,
        scene=str(scene.meta.get("name", "scene")),
        snapshots=scene.snapshots,
        frames=scene.frames,
        height=height,
        width=width,
        psnr=known.psnr if known else None,
        ssim=known.ssim if known else None,
        psnr_per_snapshot=known.psnr_per_snapshot if known else None,
        ssim_per_snapshot=known.ssim_per_snapshot if known else None,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_rss_mb=peak_rss_mb(),
        iterations=solution.iterations,
        residual=float(solution.final.max()) if solution.final.numel() else 0.0,
        tolerance=method.tol if tol is None else tol,
        converged=bool(solution.converged.all()),
        diverged=bool(solution.diverged.any()),
        device=str(place),
        seed=seed,
        together=together,
        output=None,
        input_sha256=sha256,
        unsnap_version=__version__,
        torch_version=torch.__version__,
    )
    return solution, result


def in_sequence(scene: Scene, method: Method) -> bool:
    """Whether the snapshots of the scene tell one another what they saw, unless somebody says otherwise."""
    return scene.snapshots > 1 and method.together is not None and scene.operator.channels == 1


def resolve_device(name: str) -> torch.device:
    """`auto`, or a torch device that is really there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what becomes of a device some day
            device = torch.device(name)
        if not torch.equal(torch.ones(1, device=device).cpu(), torch.ones(1)):  # what holds no numbers is no use
            raise RuntimeError("it computes nothing")
    except (RuntimeError, AssertionError, NotImplementedError, ImportError, AttributeError, ValueError) as error:
        reason = str(error).splitlines()[0][:200]
        raise InputError(f"device {short(name)} cannot be used on this machine ({reason}); use cpu or auto") from error
    return device


def peak_rss_mb() -> float | None:
    """Largest resident memory since `reset_peak`, or of the whole process where that cannot be told; in MB."""
    with suppress(OSError, IndexError, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 2**10
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def reset_peak() -> None:
    """Begin to measure `peak_rss_mb` anew."""
    # Linux forgets the high-water mark when told so; without it a benchmark would report its greediest method for all.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


class _Stopwatch:
    """Wall and processor time since construction, less what the watcher took."""

    def __init__(self, device: torch.device, watcher: Watcher | None) -> None:
        self.callback = None if watcher is None else self._watch
        self._watcher = watcher
        self._device = device
        self._away = (0.0, 0.0)
        self._start = self._now()

    def read(self) -> tuple[float, float]:
        now = self._now()
        wall, cpu = (n - s - a for n, s, a in zip(now, self._start, self._away, strict=True))
        return wall, cpu

    def _watch(self, iteration: int, x: Tensor, residual: Tensor) -> None:
        before = self._now()
        if self._watcher is not None:
            self._watcher(iteration, x, residual)
        after = self._now()
        self._away = (self._away[0] + after[0] - before[0], self._away[1] + after[1] - before[1])

    def _now(self) -> tuple[float, float]:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter(), time.process_time()


def _warm_up(method: Method, scene: Scene) -> None:
    """A few iterations on a corner, so that compiling kernels is not taken for reconstructing.

    Solvers of equilibria mix their steps from the third on, with kernels of their own.
    """
    few, corner = min(method.iterations, 3), scene.window(16)
    if corner is scene:  # a camera that mixes pixels: as many frames, not as many pixels
        phi = Snapshot(scene.masks.reshape(-1, *scene.masks.shape[-2:])[: scene.frames, :16, :16])
        if isinstance(phi, method.serves):
            method(phi.A(phi.masks)[None], phi, iterations=few)
        return
    method(corner.measurement, corner.operator, iterations=few)
