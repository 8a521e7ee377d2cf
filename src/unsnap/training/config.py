"""Everything that decides a training run, saved beside its weights."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Literal

from unsnap.algorithms import ITERATIONS
from unsnap.errors import InputError, short
from unsnap.fields import TINY, Count, Positive, Seed, Share, Size, Within, check, parsed
from unsnap.models import STARTS, Model
from unsnap.models.file import build

VERSION = 2


@dataclass(frozen=True)
class Config:
    """One training run. Fractions are of the whole run, whose length is `steps` or `minutes`, whichever ends first."""

    kind: Literal["equilibrium", "unfolded"] = "equilibrium"
    """equilibrium, or unfolded: `stages` iterations that are all recorded."""
    network: str = "shift"
    settings: dict[str, Any] = field(default_factory=dict)
    iteration: str = "gap"
    """What is repeated: gap, agap, pgd, gd, admm or recurrent."""
    strength: Positive | None = None
    """The iteration's number (alpha, rho), if it has one and it is not the usual one."""
    sigma: Size = 0.0
    """What the network is told; the last stage of an unfolded model, whose first is told `sigma_first`."""
    sigma_first: Size = 0.0
    stages: Annotated[int, Within(1, 1000)] = 5
    """Of an unfolded model."""
    shared: bool = False
    """All stages of an unfolded model have the same weights."""
    start: str = "low_rank"
    """Where the iteration begins: annealed, low_rank, total_variation, least_squares or adjoint."""
    start_settings: dict[str, Any] = field(default_factory=dict)
    """Numbers of the start that are not the usual ones."""
    other_starts: Share = 0.0
    """Share of training samples that begin elsewhere (see `beginnings.py`), which must not matter to an equilibrium."""
    init: str | None = None
    """Model file, or name in the zoo, whose weights the network begins with; what it lacks begins at random."""
    clips: str | None = None
    """Folder of training videos; None renders them."""
    validation: str | None = None
    """Folder of validation videos; None holds out one clip in ten."""
    dataset: str | None = None
    """Name in `DATASETS` (a plug-in's) of what videos are drawn from; None: the clips."""
    loss: str = "log_rmse"
    """Name in `LOSSES`."""
    cache: Annotated[float, Within(0, 1e6)] = 0.0
    """Gigabytes for samples that are used again under 16 symmetries (`reuse.py`), so that a start is paid for once."""
    masks: str | None = None
    """Capture whose masks, in windows, every sample and every validation clip gets; None draws random cameras."""
    seed: Seed = 0
    steps: Annotated[int, Within(1, 10**12)] | None = None
    minutes: Annotated[float, Within(TINY, 1e9)] | None = None
    # samples
    batch: Annotated[int, Within(1, 4096)] = 8
    crop: Annotated[int, Within(1, 4096)] = 64
    frames: Annotated[tuple[Annotated[int, Within(1, 1024)], ...], Within(1, 1000)] = (8, 8, 8, 8, 8, 8, 4, 6, 12, 16)
    """Frames per snapshot, drawn with equal probability."""
    noise: Annotated[float, Within(0, 1e3)] = 0.06
    """Largest noise of the sensor, in units of one white frame; half of the samples have none."""
    # stages
    gaussian: Share = 0.0
    """Fraction of the run that only removes Gaussian noise; 1 trains a denoiser for plug-and-play."""
    blend: Share = 0.0
    """By this fraction the share of Gaussian steps has fallen to its end value."""
    gaussian_share: Share = 0.0
    """Share of Gaussian steps from then on."""
    sigma_max: Share = 60 / 255
    implicit: Share = 0.1
    """Last fraction of the run, with gradients at the equilibrium."""
    implicit_share: Share = 1.0
    """Share of the steps of that part which have them; the others unroll, so that the way there is not forgotten."""
    gradient: Literal["implicit", "neumann", "phantom", "jfb"] = "implicit"
    """Which of them: exact; `unroll` terms or steps of the two series; or the last application of the map alone."""
    penalty: Size = 0.0
    """Weight of the Jacobian penalty in that stage."""
    slowness: Size = 0.0
    """Weight, in that stage, of how slowly the residual decays: the Jacobian along what is left to solve."""
    pool: Annotated[int, Within(1, 10**5)] = 24
    """Batches of partly iterated states."""
    age: Count = 12
    """Iterations, those of solves counted, after which the oldest states are renewed."""
    unroll: Annotated[int, Within(1, 1000)] = 2
    """Iterations that one step differentiates through."""
    # optimiser
    rate: Annotated[float, Within(TINY, 1e3)] = 2e-3
    rate_end: Share = 0.02
    """What is left of the rate at the end; 1 never lets it fall, and leaves it to `ema` to calm the weights."""
    warmup: Annotated[int, Within(0, 10**9)] = 200
    decay: Annotated[float, Within(0, 1e3)] = 1e-3
    """Weight decay."""
    ema: Share = 0.999
    clip: Positive = 1.0
    """Largest norm of a gradient."""
    # looking
    checkpoint_every: Annotated[int, Within(1, 10**9)] = 200
    validate_every: Annotated[int, Within(1, 10**9)] = 500

    def __post_init__(self) -> None:
        check("", Config, vars(self))
        object.__setattr__(self, "frames", tuple(self.frames))
        self.description()
        if self.steps is None and self.minutes is None:
            raise InputError("a run needs an end: give steps or minutes")

    def description(self) -> dict[str, Any]:
        """The model that this run trains, as its file describes it."""
        make = ITERATIONS.find(self.iteration)
        numbers: list[str] = [f.name for f in fields(make)] if is_dataclass(make) else []
        if self.strength is not None and not numbers:
            raise InputError(f"the iteration {self.iteration!r} has no number that `strength` could be; leave it out")
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
            values = parsed(text, source)
            version = values.pop("version")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise InputError(f"{source} is not a training config written by unsnap; start a new run") from error
        unknown = sorted(set(values) - {f.name for f in fields(Config)})
        if version != VERSION or unknown:
            found = f"version {short(version)}" + (f" with {short(unknown[0])}" if unknown else "")
            raise InputError(f"{source} is of another unsnap ({found}, this one writes {VERSION}); start a new run")
        try:
            return Config(**values)
        except (TypeError, ValueError) as error:
            if "--plugin" in str(error):  # says itself what helps
                raise InputError(f"{source}: {error}") from error
            raise InputError(f"{source} has settings that cannot be used ({error}); start a new run") from error
