r"""Adaptation to a capture without its truth: learn to predict measurements that were hidden from the model.

Of the pixels put aside for good (`held_out.py`) one set says when to stop and another, looked at once, whether it
helped. Of the others a random tenth is hidden anew for every crop: with $P$ for these pixels and $Q$ for the rest,

$$\min_\theta\ \|P(\Phi\hat x - y)\|, \qquad \hat x = f_\theta(\hat x; Qy, Q\Phi).$$

Noise is no trouble: what was hidden has noise of its own, which cannot be learned. Half of the batches instead take
$\hat x$ for a truth, mirror it, code it with the masks of another place and have it found again, so that the model goes
on working where nothing is hidden.

Yaman et al., *Self-supervised learning of physics-guided reconstruction neural networks without fully sampled reference
data*, MRM 2020; Chen, Tachella & Davies, *Equivariant imaging*, ICCV 2021.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from unsnap.algorithms.iteration import States
from unsnap.errors import InputError
from unsnap.fields import finite
from unsnap.fixed_point import FixedPoint, jfb
from unsnap.metrics import psnr
from unsnap.models import Equilibrium
from unsnap.operators import Snapshot
from unsnap.scene import Scene
from unsnap.training.held_out import hold_out

Listener = Callable[[dict[str, Any]], None]

STEPS, RATE = 400, 3e-5
_BATCH, _CROP, _HIDE = 4, 64, 0.1
_RECODED = 0.5
"""Share of batches that are re-coded estimates."""
_CROPS, _LIFE = 8, 8  # batches of crops kept at their equilibrium, and how many steps each serves
_RENEW: dict[str, Any] = {"max_iter": 25, "tol": 1e-3}
_FOLLOW: dict[str, Any] = {"max_iter": 3, "tol": 0.0}  # the weights moved a little, and the equilibrium with them
_LOOK: dict[str, Any] = {"max_iter": 40, "tol": 5e-4}
_EVERY, _PATIENCE = 25, 5
SURE = 2.0
"""Standard errors by which the error on the judging pixels must have fallen to count."""
_FORGOTTEN = 1.05
"""Growth of the re-coding error that is still allowed."""
_LONGEST = 100  # evaluations of one solve, where a model's own limit is larger
_HOPELESS = 20


@dataclass(frozen=True)
class Facts:
    """What `--json` prints. Errors are RMS of Φx − y on hidden pixels relative to y there."""

    helped: bool
    """The judging pixels are predicted better, by two standard errors, and the model is neither of the following."""
    unsettled: bool
    """The best weights do not come to rest as exactly as the original ones."""
    forgetful: bool
    """They fill gaps, but from all pixels they find a video again less well than the original ones."""
    steps: int
    best_step: int
    """0: the original weights were best."""
    stopped: str
    held_out_before: float
    held_out_after: float
    """Of the best weights; as before if these are the original ones."""
    advantage: float
    """By how many standard errors (blocks of 16 x 16 pixels) the squared error fell."""
    residual_before: float
    residual_after: float
    recoding_before: float
    recoding_after: float
    """Relative error of finding the original's video again from a new coding."""
    skipped: int
    """Steps without a finite gradient."""
    seconds: float
    history: list[tuple[int, float | None]]
    """Step and error on the pixels that decide when to stop."""
    psnr_before: float | None = None
    psnr_after: float | None = None
    """Where the truth is known, which is never used otherwise: of the same windows, from all measurements."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: what is not finite is None."""
        facts: dict[str, Any] = finite(asdict(self))
        return facts


@dataclass
class _Entry:
    """A batch of crops, what each is scored by, and its equilibrium as of late."""

    y: Tensor
    phi: Snapshot
    score: Callable[[Tensor], Tensor]
    start: Tensor
    state: States
    life: int = 0


def adapt(
    model: Equilibrium,
    scene: Scene,
    *,
    steps: int = STEPS,
    minutes: float | None = None,
    rate: float = RATE,
    seed: int = 0,
    device: str | torch.device = "cpu",
    report: Listener | None = None,
) -> tuple[Equilibrium, Facts]:
    """A copy of the model with the weights that predict the scene's held-out pixels best, and how it came to them.

    These are the original weights if nothing better was found. `report` is told every step and every check.

    >>> adapted, facts = adapt(unsnap.load("de-gap"), unsnap.load_scene("capture.mat"))  # doctest: +SKIP
    """
    run = _Run(model, scene, rate, seed, torch.device(device))
    began, tell = time.monotonic(), report or (lambda facts: None)
    stopped, step = "all steps were done", 0
    while step < steps and stopped == "all steps were done":
        step += 1
        loss = run.step()
        used = (time.monotonic() - began) / (60 * minutes) if minutes else 0.0
        tell({"step": step, "progress": max(step / steps, used), "loss": loss})
        if step % _EVERY == 0 or step == steps or used >= 1:
            tell({"step": step, "held_out": run.check(step), "before": run.history[0][1]})
        if run.failures == _HOPELESS:
            stopped = f"{_HOPELESS} steps in a row had no finite gradient"
        elif used >= 1:
            stopped = "the time was over"
        elif step - run.best_step >= _PATIENCE * _EVERY:
            stopped = "the held-out error fell no more"
    facts = run.verdict(step, stopped, time.monotonic() - began)
    run.model.backward = model.backward
    return run.model, facts


class _Run:
    """The copy that learns, the crops it learns from, and the best weights so far."""

    def __init__(self, model: Equilibrium, scene: Scene, rate: float, seed: int, device: torch.device) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.capture = hold_out(scene, self.generator).to(device)
        self.views = self.capture.views()
        self.model = copy.deepcopy(model).to(device).eval()
        self.model.backward = jfb()
        self.parameters = _parameters(self.model)
        self.optimizer = torch.optim.Adam(self.parameters, lr=rate)
        self.scale = (self.capture.used * self.capture.y).square().mean().sqrt()
        self.entries: list[_Entry] = []
        self.skipped = self.failures = self.best_step = 0
        self.limit = min(model.max_iter, _LONGEST)
        try:
            self.start = self.model.started(*self.views.hidden.visible)
            self.before, self.full = self._judged(), self._full()
            self.recoding = self._recoding()
        except ValueError as error:
            raise InputError(f"the model cannot reconstruct this: {error}") from error
        self.history: list[tuple[int, float | None]] = []
        self.best, self.weights = math.inf, dict[str, Tensor]()
        self.check(0)
        if not self.weights:
            raise InputError("the model returns NaN or infinite values for this capture; choose another model")

    def step(self) -> float:
        """One gradient step on a batch of crops; NaN if it had to be skipped."""
        self.optimizer.zero_grad(set_to_none=True)
        try:
            loss = self._gradient()
        except ValueError:  # the solver refuses a map that is not finite
            loss = math.nan
        if math.isfinite(loss):
            self.failures = 0
            self.optimizer.step()
        else:
            self.entries.clear()
            self.skipped, self.failures = self.skipped + 1, self.failures + 1
        return loss

    def _gradient(self) -> float:
        """The loss of a batch, whose gradient the parameters hold then; not finite if either is not."""
        entry = self._entry()
        solution = self.model(entry.y, entry.phi, state=entry.state, start=entry.start, **_FOLLOW)
        entry.state, entry.life = tuple(part.detach() for part in solution.state), entry.life - 1
        loss = entry.score(solution.x)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        return float(loss.detach()) + 0 * float(norm)

    def check(self, step: int) -> float:
        """The error on the pixels that decide when to stop; the best weights are kept."""
        try:
            y, phi = self.views.hidden.visible
            x = self._solve(y, phi, state=self.before.state, start=self.start, **_LOOK).x
            error = self.views.relative(x, self.views.stop)
        except ValueError:
            error = math.nan
        self.history.append((step, error if math.isfinite(error) else None))
        if error < self.best:
            self.best, self.best_step = error, step
            self.weights = copy.deepcopy(self.model.state_dict())
        return error

    def verdict(self, step: int, stopped: str, seconds: float) -> Facts:
        """Return to the best weights and judge them, on pixels that no decision was made with."""
        self.model.load_state_dict(self.weights)
        after, full, recoding, lost = self.before, self.full, self.recoding, False
        try:
            if self.best_step:
                after, full, recoding = self._judged(), self._full(), self._recoding()
        except ValueError:  # at rest near the old equilibrium, but not finite from the start that everyone else uses
            lost = True
        errors = [self.views.relative(s.x, self.views.judge) for s in (self.before, after)]
        residuals = [float(s.final.max()) for s in (self.before, after)]
        advantage = self.views.advantage(self.before.x, after.x)
        unsettled = lost or residuals[1] > max(self.model.tol, 1.5 * residuals[0])
        forgetful = not recoding <= _FORGOTTEN * self.recoding
        known = [
            None if self.views.truth is None else float(psnr(x, self.views.truth).mean()) for x in (self.full, full)
        ]
        return Facts(
            helped=advantage >= SURE and not unsettled and not forgetful,
            unsettled=unsettled,
            forgetful=forgetful,
            steps=step,
            best_step=self.best_step,
            stopped=stopped,
            held_out_before=errors[0],
            held_out_after=errors[1],
            advantage=advantage,
            residual_before=residuals[0],
            residual_after=residuals[1],
            recoding_before=self.recoding,
            recoding_after=recoding,
            skipped=self.skipped,
            seconds=seconds,
            history=self.history,
            psnr_before=known[0],
            psnr_after=known[1],
        )

    def _entry(self) -> _Entry:
        """Crops from the pool, renewed if their time is over."""
        if len(self.entries) < _CROPS:
            self.entries.append(self._fresh())
            return self.entries[-1]
        slot = int(torch.randint(_CROPS, (), generator=self.generator))
        if self.entries[slot].life <= 0:
            self.entries[slot] = self._fresh()
        return self.entries[slot]

    def _fresh(self) -> _Entry:
        crops, asked = self.capture.crops(_BATCH, _CROP, _HIDE, self.generator)
        entry = self._solved(*crops.visible, lambda x: crops.loss(x, asked, self.scale))
        if float(torch.rand((), generator=self.generator)) < _RECODED:
            entry = self._recoded(entry.state[0])
        entry.life = 1 + int(torch.randint(2 * _LIFE - 1, (), generator=self.generator))
        return entry

    def _recoded(self, x: Tensor) -> _Entry:
        """The estimate as a truth behind masks of the same capture: mirrored in space or time, at other places."""
        masks = self.capture.crops(len(x), _CROP, 0.0, self.generator)[0].masks
        truth = x.flip([axis for axis in (-3, -2, -1) if float(torch.rand((), generator=self.generator)) < 0.5])
        phi, size = Snapshot(masks), truth.square().mean().sqrt()
        y = phi.A(truth)
        return self._solved(y, phi, lambda x: rmse(x, truth) / size)

    def _solved(self, y: Tensor, phi: Snapshot, score: Callable[[Tensor], Tensor]) -> _Entry:
        start = self.model.started(y, phi)
        return _Entry(y, phi, score, start, self._solve(y, phi, start=start, **_RENEW).state)

    def _judged(self) -> FixedPoint:
        """The model as it will be used, but for the pixels put aside."""
        return self._solve(*self.views.hidden.visible, start=self.start, max_iter=self.limit)

    def _full(self) -> Tensor:
        return self._solve(self.views.y, Snapshot(self.views.masks), max_iter=self.limit).x

    def _recoding(self) -> float:
        """Error of finding the original's video again, turned by half a turn and coded anew, with nothing hidden."""
        phi, truth = Snapshot(self.views.masks), self.full.flip(-2, -1)
        x = self._solve(phi.A(truth), phi, max_iter=self.limit).x
        return float((x - truth).norm() / truth.norm())

    @torch.no_grad()
    def _solve(self, y: Tensor, phi: Snapshot, **options: Any) -> FixedPoint:
        solution: FixedPoint = self.model(y, phi, **options)
        return solution


def rmse(x: Tensor, truth: Tensor) -> Tensor:
    """Mean over samples of the root mean square error."""
    return ((x - truth).square().mean((-3, -2, -1)) + 1e-8).sqrt().mean()


def _parameters(model: Equilibrium) -> list[torch.nn.Parameter]:
    network = model.network
    found = [p for p in network.parameters() if p.requires_grad] if isinstance(network, torch.nn.Module) else []
    if not found:
        raise InputError(f"the model's network {type(network).__name__} has no weights to adapt; choose another model")
    return found
