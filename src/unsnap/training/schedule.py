"""How a run changes as it goes on: all of it depends on the fraction that is done, so any length has every stage."""

from __future__ import annotations

import math

from unsnap.fixed_point import implicit, jfb, neumann, phantom
from unsnap.fixed_point.backward import Backward
from unsnap.training.config import Config


def progress(config: Config, step: int, seconds: float) -> float:
    """The fraction of the run that is done after so many steps and seconds of training."""
    by_steps = step / config.steps if config.steps else 0.0
    return max(by_steps, seconds / (60 * config.minutes) if config.minutes else 0.0)


def gaussian_share(config: Config, done: float) -> float:
    """The probability that a step removes Gaussian noise: 1 at first, then falling to `gaussian_share`."""
    start, end, share = config.gaussian, config.blend, config.gaussian_share
    if done < start:
        return 1.0
    return share + (1 - share) * max(0.0, (end - done) / (end - start)) if end > start else share


def learning_rate(config: Config, step: int, done: float) -> float:
    """Warm-up, of a tenth of the run at the most, then half a cosine down to `rate_end`."""
    end = config.rate_end
    cosine = end + (1 - end) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return config.rate * min(1.0, max(step / max(1, config.warmup), 10 * done)) * cosine


def gradient(config: Config) -> Backward:
    """How the last stage differentiates at the equilibrium; the exact gradient is not solved to the last digit."""
    modes: dict[str, Backward] = {
        "implicit": implicit(tol=0.01, max_iter=12),
        "neumann": neumann(config.unroll),
        "phantom": phantom(config.unroll),
        "jfb": jfb(),
    }
    return modes[config.gradient]
