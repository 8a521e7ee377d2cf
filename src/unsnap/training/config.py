"""Everything that decides a training run, saved beside its weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from unsnap.errors import InputError
from unsnap.model_file import Recipe
from unsnap.networks import build

VERSION = 1


@dataclass(frozen=True)
class Config:
    """One training run. Fractions are of the whole run, whose length is `steps` or `minutes`, whichever ends first."""

    network: str = "shift"
    settings: dict[str, Any] = field(default_factory=dict)
    step: str = "gap"
    strength: float = 1.0
    sigma: float = 0.0
    """What the network is told inside the equilibrium."""
    start: str = "guess"
    """Where the iteration begins: guess, total_variation, least_squares or adjoint."""
    init: str | None = None
    """Model file, or name in the zoo, whose weights the network begins with; what it lacks begins at random."""
    clips: str | None = None
    """Folder of training videos; None renders them."""
    validation: str | None = None
    """Folder of validation videos; None holds out one clip in ten."""
    seed: int = 0
    steps: int | None = None
    minutes: float | None = None
    # samples
    batch: int = 2
    crop: int = 64
    frames: tuple[int, ...] = (8, 8, 8, 8, 8, 8, 4, 6, 12, 16)
    """Frames per snapshot, drawn with equal probability."""
    noise: float = 0.06
    """Largest noise of the sensor, in units of one white frame; half of the samples have none."""
    # stages
    gaussian: float = 0.0
    """Fraction of the run that only removes Gaussian noise; 1 trains a denoiser for plug-and-play."""
    blend: float = 0.0
    """By this fraction the share of Gaussian steps has fallen to its end value."""
    rest: float = 0.0
    """Share of Gaussian steps from then on."""
    sigma_max: float = 60 / 255
    implicit: float = 0.1
    """Last fraction of the run, with implicit gradients at the equilibrium."""
    penalty: float = 0.0
    """Weight of the Jacobian penalty in that stage."""
    pool: int = 24
    """Batches of partly iterated states."""
    age: int = 12
    """Iterations after which the oldest states are renewed."""
    unroll: int = 2
    """Iterations that one step differentiates through."""
    # optimiser
    rate: float = 2e-3
    warmup: int = 200
    decay: float = 1e-3
    """Weight decay."""
    ema: float = 0.999
    clip: float = 1.0
    """Largest norm of a gradient."""
    # looking
    checkpoint_every: int = 200
    validate_every: int = 500

    def __post_init__(self) -> None:
        object.__setattr__(self, "frames", tuple(self.frames))
        self.recipe()
        if not self.frames or min(self.frames) < 1:
            raise InputError(f"frames must hold whole numbers of at least 1, got {self.frames}")
        for name in ("batch", "crop", "pool", "age", "unroll", "checkpoint_every", "validate_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("gaussian", "blend", "rest", "implicit", "ema", "sigma_max"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        for name in ("rate", "clip"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be more than 0, got {getattr(self, name)}")
        if any(end is not None and not end > 0 for end in (self.steps, self.minutes)):
            raise InputError(f"steps and minutes must be more than 0, got {self.steps} and {self.minutes}")
        if self.steps is None and self.minutes is None:
            raise InputError("a run needs an end: give steps or minutes")

    def recipe(self, **about: Any) -> Recipe:
        """The recipe of the model that this run trains."""
        return Recipe(
            self.network,
            self.settings,
            step=self.step,
            strength=self.strength,
            sigma=self.sigma,
            start=self.start,
            about=about,
        )

    def check(self) -> None:
        """Refuse settings that the network does not take."""
        build(self.network, self.settings)

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **asdict(self)}, indent=2) + "\n"

    @staticmethod
    def from_json(text: str, source: str = "config") -> Config:
        """The config in a run directory; one of another version of unsnap is refused by name."""
        try:
            values = json.loads(text)
            version = values.pop("version")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise InputError(f"{source} is not a training config written by unsnap; start a new run") from error
        unknown = sorted(set(values) - {f.name for f in fields(Config)})
        if version != VERSION or unknown:
            found = f"version {version}" + (f" with {unknown[0]!r}" if unknown else "")
            raise InputError(f"{source} is of another unsnap ({found}, this one writes {VERSION}); start a new run")
        try:
            return Config(**values)
        except (TypeError, ValueError) as error:
            raise InputError(f"{source} has settings that cannot be used ({error}); start a new run") from error
