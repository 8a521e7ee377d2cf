"""A network, or one whole step of a model, as an ONNX file: what other programs and devices run.

The file is checked with onnxruntime against torch before it is kept, at the size it was traced with and at others, so
that the axes it calls free are free. Needs the extra `export`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unsnap.algorithms.iterate import Solution
from unsnap.algorithms.iteration import States
from unsnap.errors import InputError, printable
from unsnap.io.atomic import atomic_file
from unsnap.masks import bernoulli
from unsnap.models.base import Model
from unsnap.models.equilibrium import Equilibrium, EquilibriumMap
from unsnap.networks import Capture
from unsnap.networks.capture import told
from unsnap.networks.rowsums import trusting
from unsnap.operators import Snapshot
from unsnap.operators.whole import Whole

Part = Literal["network", "step"]
TOLERANCE = 1e-5
"""Largest difference between onnxruntime and torch, over the largest value."""
_FREE = {"batch": (1, 0, 0), "frames": (0, 1, 0), "height and width in steps of 8": (0, 0, 1)}


@dataclass(frozen=True)
class Exported:
    """inputs, outputs: names in the file; free: axes of any length; fixed: the others, and what they are fixed to;
    difference: the largest from torch's, relative to the largest value."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    free: tuple[str, ...]
    fixed: tuple[str, ...]
    difference: float


class _Denoiser(nn.Module):
    """(x, sigma) -> D(x)."""

    inputs, outputs = ("x", "sigma"), ("clean",)

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        clean: Tensor = self.network(x, sigma)
        return clean


class _Told(nn.Module):
    """A part of a model that is told the camera; `noise` is an input only if a network asks for it."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    noisy = False

    def forward(self, y: Tensor, masks: Tensor, *others: Tensor) -> States:
        phi = Snapshot(masks)
        if not self.noisy:
            return self.of(y, phi, *others)
        # How noisy a snapshot is no graph can find out: a, b and c of `noise_map` are given.
        return self.of(y, phi.part_of(Whole({"noise": [others[0]]})), *others[1:])

    @abstractmethod
    def of(self, y: Tensor, phi: Snapshot, *videos: Tensor) -> States: ...

    @torch.no_grad()
    def add_noise(self) -> None:
        """Name it as an input if anybody asks for it."""
        (y, masks, *videos), asked = _example(self.inputs, 1, 2, 16), Whole()
        self.of(y, Snapshot(masks).part_of(asked), *videos)
        if "noise" in asked.found:
            self.noisy, self.inputs = True, ("y", "masks", "noise", *self.inputs[2:])


class _Step(_Told):
    """(y, masks, start, state…) -> next state of an equilibrium; `start` only if the network is told it."""

    def __init__(self, model: Equilibrium) -> None:
        super().__init__()
        self.model = model
        parts = len(model.iteration.start(torch.zeros(1, 1, 1, 1)))
        self.told = told(model.network)
        state = ["x", *(f"state_{k}" for k in range(1, parts))]
        self.inputs = ("y", "masks", *(["start"] if self.told else []), *state)
        self.outputs = tuple(f"next_{name}" for name in state)

    def of(self, y: Tensor, phi: Snapshot, *videos: Tensor) -> States:
        start, *state = videos if self.told else (videos[0], *videos)
        capture = Capture(y, phi, start)
        return EquilibriumMap.of(self.model.iteration, self.model.network, self.model.sigma, capture)(tuple(state))


class _Stages(_Told):
    """(y, masks, start) -> video of an unfolded model, all stages."""

    inputs, outputs = ("y", "masks", "start"), ("video",)

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def of(self, y: Tensor, phi: Snapshot, *videos: Tensor) -> States:
        solution: Solution = self.model(y, phi, start=videos[0])
        return (solution.x,)


def export(
    model: Model, path: str | Path, *, part: Part = "step", frames: int = 8, side: int = 32, overwrite: bool = True
) -> Exported:
    """Write `part` of the model to `path` (.onnx), traced with two videos (frames, side, side).

    network: the denoiser, from (x, sigma). step: one iteration of an equilibrium, or all stages of an unfolded model,
    from the snapshots, the masks (of each) and the video to go on from. Where a network is told how noisy a snapshot
    is, `noise` (batch, 3) is an input: the variance is the largest of a, b·ȳ and c·ȳ² (`noise_map`); 0 for none.
    """
    graph = _graph(model, part)
    given = _example(graph.inputs, 2, frames, side)
    program = _traced(graph, given)
    with atomic_file(path, overwrite=overwrite) as temporary:
        program.save(str(temporary), external_data=False)
        session = _session(temporary)
        difference = _difference(session, graph, given)
        if not difference <= TOLERANCE:
            raise InputError(f"{path}: onnxruntime and torch differ by {difference:.1e}, so it was not written")
        others = {name: (2 + n, frames + t, side + 8 * s) for name, (n, t, s) in _FREE.items()}
        free = [
            name for name, size in others.items()
            if _difference(session, graph, _example(graph.inputs, *size)) <= TOLERANCE
        ]  # fmt: skip
    traced = zip(_FREE, (2, frames, side), strict=True)
    fixed = tuple(f"{name.partition(' in ')[0]} {size}" for name, size in traced if name not in free)
    return Exported(graph.inputs, graph.outputs, tuple(free), fixed, difference)


def _graph(model: Model, part: Part) -> _Denoiser | _Told:
    if part == "step":
        graph = (_Step(model) if isinstance(model, Equilibrium) else _Stages(model)).eval()
        graph.add_noise()
        return graph
    networks = [model.network] if isinstance(model, Equilibrium) else list(getattr(model, "networks", ()))
    network = networks[0]
    if len(networks) > 1 or not isinstance(network, nn.Module) or told(network) or model.iteration.whole:
        raise InputError(
            "the network alone cannot be exported, as it is told of the snapshot or there are several; "
            "export the whole step (--part step)"
        )
    return _Denoiser(network).eval()


def _example(names: tuple[str, ...], videos: int, frames: int, side: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    masks = torch.stack([bernoulli(frames, side, side, generator=generator) for _ in range(videos)])
    video, *others = torch.rand(1 + len(names), *masks.shape, generator=generator)
    known = {"y": Snapshot(masks).A(video), "masks": masks, "sigma": torch.tensor(0.1)}
    known["noise"] = 1e-3 * torch.rand(videos, 3, generator=generator)
    # Each its own tensor: the exporter takes one that is given twice for one input.
    return tuple(known.get(name, other.clone()) for name, other in zip(names, others, strict=True))


def _traced(graph: _Denoiser | _Told, given: tuple[Tensor, ...]) -> Any:
    """torch's own exporter, which tells its progress and deprecations to people who write exporters."""
    axes = tuple(dict.fromkeys(range(value.ndim), torch.export.Dim.AUTO) for value in given)
    shapes: Any = axes if not isinstance(graph, _Told) else (*axes[:2], axes[2:])  # *others are one argument there
    try:
        with _silence(), torch.no_grad():
            graph(*given)  # what depends on the weights alone is remembered, and then a constant of the program
            with trusting():
                return torch.onnx.export(
                    graph, given, dynamo=True, dynamic_shapes=shapes, verbose=False, input_names=list(graph.inputs),
                    output_names=list(graph.outputs),
                )  # fmt: skip
    except ImportError as error:
        raise InputError(f"exporting needs {error.name}; install unsnap[export]") from error
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"torch cannot export this ({_reason(error)}); try the other part (--part)") from error


def _reason(error: BaseException) -> str:
    """The first line that says why, without the exporter's advice to those who write exporters."""
    while error.__cause__ is not None:
        error = error.__cause__
    return printable(str(error).partition("\n")[0])[:200]


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    nowhere = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(before)


def _session(path: Path) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError("checking an exported file needs onnxruntime; install unsnap[export]") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # a size that does not fit is an answer here
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common class
        raise InputError(f"onnxruntime cannot run this ({_reason(error)}); try the other part (--part)") from error


def _difference(session: Any, graph: nn.Module, given: tuple[Tensor, ...]) -> float:
    """Of onnxruntime's outputs from torch's, relative to the largest value; inf if it cannot run."""
    with torch.no_grad():
        expected = graph(*given)
    expected = expected if isinstance(expected, tuple) else (expected,)
    names = [value.name for value in session.get_inputs()]
    try:
        found = session.run(None, {name: value.numpy() for name, value in zip(names, given, strict=True)})
    except Exception:  # noqa: BLE001  # onnxruntime's errors have no common class
        return math.inf
    if any(f.shape != tuple(e.shape) for f, e in zip(found, expected, strict=True)):
        return math.inf
    pairs = zip(found, expected, strict=True)
    return max(float((torch.from_numpy(f) - e).abs().max() / e.abs().max()) for f, e in pairs)
