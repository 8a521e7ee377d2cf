"""The training loop: draw, learn, average, validate, checkpoint. Plain torch, one process or many."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unsnap.errors import InputError
from unsnap.fields import finite
from unsnap.fixed_point import unroll
from unsnap.io import write_text
from unsnap.io.lock import folder_lock, locked
from unsnap.models import Batch, Equilibrium, Learning, Model, save
from unsnap.models.base import Loss
from unsnap.networks import CNN
from unsnap.training import checkpoint, log, schedule
from unsnap.training.beginnings import elsewhere
from unsnap.training.coding import camera_masks, code
from unsnap.training.config import Config
from unsnap.training.initial import begin
from unsnap.training.optimizer import Muon, check_memory
from unsnap.training.pool import Pool
from unsnap.training.preparation import check_config, claim_folder
from unsnap.training.reuse import Cache
from unsnap.training.sources import LOSSES, material
from unsnap.training.validate import coded_views, gives_videos, validate, validate_denoiser
from unsnap.training.world import join

Listener = Callable[[dict[str, Any]], None]
VALIDATION_SIZE = 96
FILES = (checkpoint.NAME, "best.safetensors", "last.safetensors", log.NAME, "config.json")
"""What a run writes into its directory."""
HOPELESS = 100
"""Batches in a row without a finite gradient after which a run gives up."""


class Trainer:
    """A run directory and everything that happens in it; `state` is a checkpoint's, to go on from.

    inputs: files that must not be overwritten. force: replace another run in the directory.

    >>> trainer = Trainer(Config(steps=100), "run")  # doctest: +SKIP
    >>> trainer.run()                                # doctest: +SKIP
    """

    def __init__(
        self,
        config: Config,
        folder: str | Path,
        *,
        device: str | torch.device = "cpu",
        report: Listener | None = None,
        tensorboard: bool = False,
        state: dict[str, Any] | None = None,
        inputs: Iterable[Path | None] = (),
        force: bool = False,
    ) -> None:
        self.config, self.folder, self.world = config, Path(folder), join(device)
        self.report: Listener = report or (lambda facts: None)
        check_config(config, self.world)
        source = config.init if state is None else state.get("source")
        own = self.folder / checkpoint.NAME
        self.goes_on = state is not None and source is not None and Path(source).resolve() == own.resolve()
        if not self.goes_on:
            claim_folder(self.folder, FILES, (*inputs, source), force)
        self.clips, held_out = material(config, VALIDATION_SIZE, self._reading)
        self.unused = {**getattr(self.clips, "skipped", {}), **held_out.skipped}
        """Videos that could not be used, and why."""
        self.shortened: list[str] = getattr(self.clips, "shortened", [])
        """Videos whose first frames alone are used."""
        self.camera = None if config.masks is None else camera_masks(config.masks, config.crop)
        self.views = coded_views(held_out, VALIDATION_SIZE, camera=self.camera).to(self.world.device)
        self.generator = torch.Generator().manual_seed(config.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.model = config.model()
        if state is None:
            begin(self.model, config.init)
        self.model.to(self.world.device).train()
        self.mean = copy.deepcopy(self.model).eval()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = Muon(self.parameters, lr=config.rate, weight_decay=config.decay)
        self.pool = Pool(config.pool, config.age, self._renew)
        self.cache, self.score = Cache(1e9 * config.cache, self._sample), LOSSES.find(config.loss)
        self.step, self.elapsed, self.skipped, self.best, self.reached = 0, 0.0, 0, -math.inf, 0.0
        self.stopping, self._failures, self.worked = False, 0, 0.0
        if state is not None:
            self._restore(state)
        board = log.board(self.folder, self.step) if tensorboard and self.world.first else None
        self.log = log.Log(self.folder, self.step if self.goes_on else -1, board)

    def run(self) -> Path:
        """Train to the end of the run, or until `stop`; returns the model file with the best validation score.

        Only one process at a time can: the directory is locked.
        """
        with locked(folder_lock(self.folder), self.folder) if self.world.first else nullcontext():
            return self._run()

    def _run(self) -> Path:
        if self.world.first:
            self._replace()
            write_text(self.folder / "config.json", self.config.to_json())
        while (progress := self.world.agree(math.inf if self.stopping else self.progress)) < 1:
            clock, worked = time.monotonic(), time.process_time()
            loss = self.one_step(progress)
            self.elapsed += time.monotonic() - clock  # looking and saving do not count
            self.worked += time.process_time() - worked
            self.log.loss(self.step, loss, self.optimizer.param_groups[0]["lr"], self.skipped)
            self.report({"step": self.step, "progress": self.progress, "loss": loss, "skipped": self.skipped})
            due = self.step % self.config.validate_every == 0
            if due:
                self.validate()
            if due or self.step % self.config.checkpoint_every == 0:
                self.save()
        if progress < math.inf and not self.validated:
            self.validate()
        self.save()
        self.log.close()
        return self.folder / "best.safetensors"

    @property
    def validated(self) -> bool:
        """Were the weights of this step scored?"""
        return bool(self.log.lines) and self.log.lines[-1]["step"] == self.step

    def _replace(self) -> None:
        """Put a checkpoint of ours in the place of another run's, then remove the rest of it: they never mix."""
        other = [] if self.goes_on else [self.folder / name for name in FILES if (self.folder / name).exists()]
        if other:
            self.save()
        for path in other:
            if path.name != checkpoint.NAME:
                path.unlink()

    def _reading(self, done: int, total: int) -> None:
        self.report({"reading": done, "videos": total})

    def stop(self) -> None:
        """End the run after this step, with a checkpoint."""
        self.stopping = True

    @property
    def progress(self) -> float:
        """The fraction of the run that is done."""
        return schedule.progress(self.config, self.step, self.elapsed)

    def one_step(self, progress: float) -> float:
        """One gradient step; a batch whose loss or gradient is not finite is skipped and counted."""
        self.step += 1
        for group in self.optimizer.param_groups:
            group["lr"] = schedule.learning_rate(self.config, self.step, progress)
        self.optimizer.zero_grad(set_to_none=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a backward solve cut short on purpose says so every time
            loss, keep = self._loss(progress)
            if bool(torch.isfinite(loss)):
                loss.backward()  # type: ignore[no-untyped-call]
        value = float(self.world.average(self.parameters, loss.detach()))
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters, self.config.clip))
        sound = math.isfinite(value) and math.isfinite(norm)
        keep(sound)
        if not sound:
            self._skip()
            return math.nan
        self._failures = 0
        self.optimizer.step()
        for part in self.model.modules():
            if isinstance(part, CNN):
                part.refine()  # the estimate of spectral norms follows the weights
        self._average()
        return value

    def _skip(self) -> None:
        self.skipped += 1
        self._failures += 1
        if self._failures == HOPELESS:
            raise InputError(
                f"{self.folder}: {HOPELESS} batches in a row had no finite gradient at step {self.step}; resume from "
                f"the last checkpoint with a lower rate than {self.config.rate:g} (--set rate=...)"
            )

    def _loss(self, progress: float) -> tuple[Tensor, Callable[[bool], None]]:
        """The loss of this step, and what to do with the states it made once the step is known to be sound or not."""
        stage = max(progress, self.reached)  # a run that was made longer does not go back to an earlier one
        if float(torch.rand((), generator=self.generator)) < schedule.gaussian_share(self.config, stage):
            return self._gaussian(), lambda sound: None
        entry = self.pool.take(self.generator)
        batch = entry.batch.select(self.world.rows(len(entry.batch.y)))
        found = self._learned(batch, self._learning(stage, entry.batch.truth.shape))
        gathered = tuple(self.world.gather(part) for part in found.state)
        older = int(self.world.gather(torch.tensor([found.iterations], device=self.world.device)).max())

        def keep(sound: bool) -> None:
            entry.batch, entry.age = replace(entry.batch, state=gathered), entry.age + older
            if not sound:
                entry.life = 0

        return found.value, keep

    def _learning(self, stage: float, shape: torch.Size) -> Learning:
        """How to differentiate now: through some iterations, and in the last part of the run at the equilibrium."""
        share, often = self.config.implicit, self.config.implicit_share
        if not share or stage < 1 - share or (often < 1 and float(torch.rand((), generator=self.generator)) >= often):
            return Learning(backward=unroll(self.config.unroll), score=self.score)
        late = (stage - 1 + share) / share
        probe = torch.randn(shape, generator=self.generator)  # of all rows: processes agree
        mode, rows = schedule.gradient(self.config), self.world.rows(shape[0])
        # The pool keeps the states, so that a solve that is cut short goes on when its turn comes again.
        weights = {"penalty": self.config.penalty, "slowness": self.config.slowness}
        return Learning(mode, 10 ** (-3 - late), 15, probe=probe[rows], score=self.score, **weights)

    def _learned(self, batch: Batch, learning: Learning) -> Loss:
        try:
            return self.model.loss(batch, learning)
        except ValueError:  # the solver refuses a start, or a map, that is not finite: a batch to skip like any other
            return Loss(torch.full((), math.nan, device=self.world.device), batch.state or (), 0)

    def _gaussian(self) -> Tensor:
        truth = self.clips.draw(self.config.batch, self._frames(), self.config.crop, self.generator)
        sigma = self.config.sigma_max * torch.rand(len(truth), generator=self.generator).square()  # mostly weak
        noisy = truth + sigma[:, None, None, None] * torch.randn(truth.shape, generator=self.generator)
        rows, device = self.world.rows(len(truth)), self.world.device
        cleaned = self._denoiser(self.model)(noisy[rows].to(device), sigma[rows].to(device))
        return self.score(cleaned, truth[rows].to(device))

    @staticmethod
    def _denoiser(model: Model) -> nn.Module:
        if not isinstance(model, Equilibrium) or not isinstance(model.network, nn.Module):
            raise InputError("only the network of an equilibrium is trained as a denoiser: set gaussian and blend to 0")
        return model.network

    def _renew(self) -> Batch:
        if self.config.cache > 0:
            batch = self.cache.take(self.generator)
            batch = replace(batch, state=None if batch.start is None else self.model.iteration.start(batch.start))
        else:
            batch = self._sample()
        return elsewhere(batch, self.model.iteration, self.config.other_starts, self.generator)

    def _sample(self) -> Batch:
        truth = self.clips.draw(self.config.batch, self._frames(), self.config.crop, self.generator)
        coded = code(truth, self.config.noise, self.generator, self.camera)
        return coded.to(self.world.device).started(self.model)

    def _frames(self) -> int:
        lengths = self.config.frames if self.camera is None else (len(self.camera),)
        return lengths[int(torch.randint(len(lengths), (), generator=self.generator))]

    @torch.no_grad()
    def _average(self) -> None:
        """The running mean of the weights, which is what is validated and shipped."""
        share = 1 - min(self.config.ema, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(list(self.mean.parameters()), list(self.model.parameters()), share)
        for mean, new in zip(self.mean.buffers(), self.model.buffers(), strict=True):
            mean.copy_(new)

    def validate(self) -> None:
        """Score the averaged weights; keep them as a model file, and as the best if they are."""
        if not self.world.first:
            return
        if self.config.gaussian >= 1:
            scores = finite(validate_denoiser(self._denoiser(self.mean), self.views))
        else:
            scores = finite(validate(self.mean, self.views))
        score = -math.inf if scores["psnr_fixed"] is None else scores["psnr_fixed"]
        times = {"minutes": round(self.elapsed / 60, 2), "cpu_hours": round(self.worked / 3600, 5)}
        facts = {"step": self.step, **times, "skipped": self.skipped, **scores}
        self.mean.about = {**facts, "seed": self.config.seed}
        save(self.folder / "last.safetensors", self.mean)
        if score > self.best:
            self.best = score
            save(self.folder / "best.safetensors", self.mean)
        self.log.validation(facts, self.mean, self.views)
        self.report({"validation": facts, "step": self.step})

    def state(self) -> dict[str, Any]:
        """All that the rest of the run depends on."""
        return {
            "config": self.config.to_json(),
            "step": self.step,
            "elapsed": self.elapsed,
            "worked": self.worked,
            "skipped": self.skipped,
            "best": self.best,
            "reached": self.reached,
            "generator": self.generator.get_state(),
            "weights": self.model.state_dict(),
            "mean": self.mean.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "pool": self.pool.dump(),
        }

    def save(self) -> None:
        if self.world.first:
            checkpoint.save_checkpoint(self.folder / checkpoint.NAME, self.state())

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            self.model.load_state_dict(state["weights"])
            self.mean.load_state_dict(state["mean"])
            kinds = self.optimizer.param_groups[0].keys()
            self.optimizer.load_state_dict(state["optimizer"])
            if self.optimizer.param_groups[0].keys() != kinds:
                raise ValueError("its optimiser is another one")
            check_memory(self.optimizer)
            for group in self.optimizer.param_groups:
                group["weight_decay"] = self.config.decay  # which may have been changed
            self.pool.restore(state["pool"], self.world.device)
            self.generator.set_state(state["generator"])
            self.step, self.elapsed = int(state["step"]), float(state["elapsed"])
            self.skipped, self.best = int(state["skipped"]), float(state["best"])
            self.reached, self.worked = float(state.get("reached", 0.0)), float(state.get("worked", 0.0))
        except (ArithmeticError, RuntimeError, ValueError, TypeError, AttributeError, LookupError) as error:
            reason = " ".join(f"{type(error).__name__} {error}".split())[:160]
            raise InputError(
                f"{state.get('source', 'the checkpoint')} holds another architecture than {self.config.network!r} with "
                f"these settings, or is damaged ({reason}); start a new run"
            ) from error
        if not all(gives_videos(model, self.views) for model in (self.model, self.mean)):
            raise InputError(f"{state.get('source', 'the checkpoint')} gives no video; go on from an earlier one")
        if not self.goes_on or not (self.folder / "best.safetensors").is_file():  # the first one here is its best
            self.best = -math.inf
