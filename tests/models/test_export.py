"""Exported files compute what torch computes, at every size that they call free."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from unsnap.algorithms import ADMM, GAP, AcceleratedGAP, Recurrent
from unsnap.errors import InputError
from unsnap.masks import bernoulli
from unsnap.models import Equilibrium, Unfolded
from unsnap.models.export import export
from unsnap.networks import CNN, Certified, FrameRNN, ShiftStage, ShiftUNet
from unsnap.operators import Snapshot
from unsnap.operators.whole import Whole


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """Not at the top of this file: they take longer to import than all other tests, and every process collects it."""
    for name in ("onnxruntime", "onnxscript"):
        pytest.importorskip(name)


def run(path: Path, **given: Tensor) -> list[Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    return [torch.from_numpy(value) for value in session.run(None, {k: v.numpy() for k, v in given.items()})]


def test_repeating_the_exported_step_is_the_models_iteration_at_any_size(tmp_path: Path) -> None:
    model = Equilibrium(ADMM(), CNN(layers=2, channels=3), 0.05)
    made = export(model, tmp_path / "step.onnx", side=16, frames=4)
    assert made.inputs == ("y", "masks", "x", "state_1")
    assert made.free == ("batch", "frames", "height and width in steps of 8")
    phi = Snapshot(torch.stack([bernoulli(6, 24, 40) for _ in range(3)]))
    y = phi.A(torch.rand(3, 6, 24, 40))
    f, state = model.bind(y, phi), model.iteration.start(phi.A_dagger(y))
    found = list(state)
    for _ in range(3):
        found = run(tmp_path / "step.onnx", y=y, masks=phi.masks, x=found[0], state_1=found[1])
        with torch.no_grad():
            state = f(state)
    torch.testing.assert_close(tuple(found), state, rtol=1e-5, atol=1e-5)


def test_all_stages_of_an_unfolded_model_and_a_state_of_two_videos(tmp_path: Path) -> None:
    unfolded = Unfolded(ADMM(), [CNN(layers=2, channels=3)] * 2, [0.1, 0.1])
    made = export(unfolded, tmp_path / "net.onnx", side=16, frames=3)
    assert made.inputs == ("y", "masks", "start")
    assert made.free == ("batch", "frames", "height and width in steps of 8")
    assert made.fixed == ()


def test_what_is_fixed_is_said(tmp_path: Path) -> None:
    """A network that goes from frame to frame is unrolled."""
    model = Equilibrium(Recurrent(), FrameRNN((4, 4, 4)))
    made = export(model, tmp_path / "net.onnx", side=16, frames=3)
    assert (made.free, made.fixed) == (("batch", "height and width in steps of 8"), ("frames 3",))


def test_the_noise_that_stages_are_told_is_an_input(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = ShiftStage((4, 4, 4))
    nn.init.normal_(network.context.weight, std=0.1)
    model = Unfolded(AcceleratedGAP(), network, [0.1, 0.1])
    made = export(model, tmp_path / "net.onnx", side=16, frames=3)
    assert made.inputs == ("y", "masks", "noise", "start")
    assert made.free[0] == "batch"
    masks = torch.stack([bernoulli(3, 24, 32) for _ in range(3)])
    y, start = Snapshot(masks).A(torch.rand(3, 3, 24, 32)), torch.rand(3, 3, 24, 32)
    law = torch.tensor([[0.0, 0.0, 0.0], [1e-2, 1e-3, 1e-1], [0.0, 0.0, 0.0]])  # one of three is not clean
    (video,) = run(tmp_path / "net.onnx", y=y, masks=masks, noise=law, start=start)
    with torch.no_grad():
        told = model(y, Snapshot(masks).part_of(Whole({"noise": [law]})), start=start).x
        clean = model(y, Snapshot(masks).part_of(Whole({"noise": [0 * law]})), start=start).x
    torch.testing.assert_close(video, told, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(video[0], clean[0], rtol=1e-5, atol=1e-5)
    assert float((video[1] - clean[1]).abs().max()) > 1e-3


def test_a_network_with_a_proof(tmp_path: Path) -> None:
    """What it makes of its weights alone is a constant of the file."""
    model = Equilibrium(GAP(), Certified(1, 4, 4, contraction=None, temporal=True, activation="clip"), 0.05)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    made = export(model, tmp_path / "net.onnx", part="network", side=16, frames=3)
    assert made.difference < 1e-5


class Sorted(nn.Module):
    """Takes a decision by the values of its input, which no graph can."""

    settings: dict[str, int] = {}  # noqa: RUF012

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        return x if float(x.sum()) > 0 else -x


def test_what_cannot_be_exported_is_one_sentence_and_no_file(tmp_path: Path) -> None:
    for model, part in ((Equilibrium(GAP(), Sorted()), "step"), (Equilibrium(GAP(), ShiftUNet((4, 4, 4))), "network")):
        with pytest.raises(InputError, match="export"):
            export(model, tmp_path / "no.onnx", part=part, side=16, frames=3)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_what_computes_something_else_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Program:
        def save(self, path: str, external_data: bool) -> None:
            Path(path).write_bytes(b"other")

    for name, answer in (("_traced", Program()), ("_session", None), ("_difference", 2e-5)):
        monkeypatch.setattr(f"unsnap.models.export.{name}", lambda *given, answer=answer: answer)
    with pytest.raises(InputError, match=r"differ by 2\.0e-05, so it was not written"):
        export(Equilibrium(GAP(), CNN(2, 4)), tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []
