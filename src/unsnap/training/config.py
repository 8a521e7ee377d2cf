"""Everything that decides a training run, saved beside its weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from unsnap.algorithms import ITERATIONS
from unsnap.errors import InputError
from unsnap.models import STARTS, Model
from unsnap.models.file import build

VERSION = 2


@dataclass(frozen=True)
class Config:
    """One training run. Fractions are of the whole run, whose length is `steps` or `minutes`, whichever ends first."""

    kind: str = "equilibrium"
    """equilibrium, or unfolded: `stages` iterations that are all recorded."""
    network: str = "shift"
    settings: dict[str, Any] = field(default_factory=dict)
    iteration: str = "gap"
    """What is repeated: gap, pgd, gd, admm or recurrent."""
    strength: float | None = None
    """The iteration's number (alpha, rho), if it has one and it is not the usual one."""
    sigma: float = 0.0
    """What the network is told; the last stage of an unfolded model, whose first is told `sigma_first`."""
    sigma_first: float = 0.0
    stages: int = 5
    """Of an unfolded model."""
    shared: bool = False
    """All stages of an unfolded model have the same weights."""
    start: str = "low_rank"
    """Where the iteration begins: low_rank, total_variation, least_squares or adjoint."""
    start_settings: dict[str, Any] = field(default_factory=dict)
    """Numbers of the start that are not the usual ones."""
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
    gaussian_share: float = 0.0
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
        self.description()
        if not self.frames or min(self.frames) < 1:
            raise InputError(f"frames must hold whole numbers of at least 1, got {self.frames}")
        for name in ("batch", "crop", "pool", "age", "unroll", "stages", "checkpoint_every", "validate_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("gaussian", "blend", "gaussian_share", "implicit", "ema", "sigma_max"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        for name in ("rate", "clip"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be more than 0, got {getattr(self, name)}")
        if any(end is not None and not end > 0 for end in (self.steps, self.minutes)):
            raise InputError(f"steps and minutes must be more than 0, got {self.steps} and {self.minutes}")
        if self.steps is None and self.minutes is None:
            raise InputError("a run needs an end: give steps or minutes")

    def description(self) -> dict[str, Any]:
        """The model that this run trains, as its file describes it."""
        make = ITERATIONS.find(self.iteration)
        numbers: list[str] = [f.name for f in fields(make)] if is_dataclass(make) else []
        if self.strength is not None and not numbers:
            raise InputError(f"the iteration {self.iteration!r} has no number that `strength` could be; leave it out")
        if self.shared and self.kind == "equilibrium":
            raise InputError("an equilibrium has one network; `shared` is for kind=unfolded")
        number = {} if self.strength is None or not numbers else {numbers[0]: self.strength}
        network = {"name": self.network, "settings": self.settings}
        value = STARTS.find(self.start)(**self.start_settings)
        common = {
            "kind": self.kind,
            "iteration": {"name": self.iteration, **asdict(make(**number))},  # type: ignore[call-overload]
            "start": {"name": self.start, **asdict(value)},
        }
        if self.kind == "equilibrium":
            solver = {"name": "anderson"}
            return {**common, "network": network, "sigma": self.sigma, "solver": solver, "tol": 1e-4, "max_iter": 100}
        if self.kind != "unfolded":
            raise InputError(f"kind must be equilibrium or unfolded, got {self.kind!r}")
        first, last = self.sigma_first or self.sigma, self.sigma
        sigmas = [first + (last - first) * k / max(1, self.stages - 1) for k in range(self.stages)]
        return {**common, "networks": [network] * (1 if self.shared else self.stages), "sigmas": sigmas}

    def model(self) -> Model:
        """The model with fresh weights; refuses settings that the network does not take."""
        model = build(self.description())
        if not isinstance(model, Model):
            raise InputError(f"a {self.kind} is not trained by gradient steps")
        return model

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
