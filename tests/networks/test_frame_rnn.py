"""DE-RNN's network: it sees x, y and Φ, both ways through time, and never the start."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from laws import close, right_gradients, uniform
from unsnap import Equilibrium
from unsnap.algorithms import Recurrent
from unsnap.networks import Birnat, Capture, FrameRNN
from unsnap.operators import Snapshot

PAPERS = Path(__file__).parents[3] / "shared/data/weights/deqsci_rnn/rnn1_model_best.tensors.pt"


def made(**settings: float) -> FrameRNN:
    torch.manual_seed(0)
    net = FrameRNN((3, 4, 5), **settings).double()
    torch.nn.init.normal_(net.leave.weight, std=0.1)
    return net


def capture(y: Tensor, masks: Tensor, seed: int = 9) -> Capture:
    phi = Snapshot(masks)
    return Capture(y, phi, uniform(len(y), *phi.video, seed=seed))


@torch.no_grad()
def test_any_size_any_batch_and_no_start() -> None:
    for frames in (1, 3):
        net, masks = made(), uniform(2, frames, 9, 7)
        x, y = uniform(2, frames, 9, 7, seed=1), uniform(2, 9, 7, seed=2)
        out = net(x, capture(y, masks))
        for n in range(2):
            close(net(x[n : n + 1], capture(y[n : n + 1], masks[n]))[0], out[n])
        assert torch.equal(net(x, capture(y, masks, seed=10)), out), "another start is the same map"
        close(net(x, capture(255 * y, 255 * masks)), out, 1e-10)


@torch.no_grad()
def test_every_frame_depends_on_every_other_and_on_the_capture() -> None:
    net, x, masks = made(), uniform(1, 4, 8, 8), uniform(4, 8, 8, seed=1)
    dark = capture(torch.zeros(1, 8, 8).double(), torch.zeros(4, 8, 8).double())
    for t in (0, 1, 3):
        changed = x.clone()
        changed[:, t] += 0.5
        assert bool(((net(changed, dark) - net(x, dark)).abs().amax((-2, -1)) > 1e-9).all())
    # Where x already explains y, nothing but the masks and the picture differ.
    ways = [net(x, capture(Snapshot(m).A(x), m)) for m in (masks, masks.flip(0))]
    assert float((ways[0] - ways[1]).norm()) > 1e-3


def test_gradients_are_right_and_reach_every_weight() -> None:
    net, seen = made(damping=0.3), capture(uniform(1, 4, 4, seed=2), uniform(2, 4, 4))
    right_gradients(net, lambda x: net(x, seen), uniform(1, 2, 4, 4, seed=1))


@torch.no_grad()
def test_untrained_it_is_the_projection_and_damping_changes_no_equilibrium() -> None:
    x, y, masks = uniform(1, 3, 8, 8), uniform(1, 8, 8, seed=1), uniform(3, 8, 8, seed=2)
    close(FrameRNN((3, 4, 5)).double()(x, capture(y, masks)), Snapshot(masks).project(x, y))
    phi = Snapshot(masks)
    calm, plain = (Equilibrium(Recurrent(), made(damping=d), max_iter=5)(y, phi) for d in (0.5, 0.0))
    step = made(damping=0.5).condition(capture(y, masks))
    close(step(x, 0.0), (x + made()(x, capture(y, masks))) / 2)
    assert calm.x.shape == plain.x.shape


def test_as_many_weights_per_direction_as_the_papers() -> None:
    net, birnat = FrameRNN(), Birnat()
    counts = [sum(p.numel() for p in part.parameters()) for part in (net.forward_rnn, net.backrnn, birnat.forward_rnn)]
    assert counts == [382_132, 382_132, 382_251]


@pytest.mark.skipif(not PAPERS.is_file(), reason="the paper's weights are not here")
def test_the_papers_recurrence_is_birnats() -> None:
    Birnat().forward_rnn.load_state_dict(torch.load(PAPERS, weights_only=True))
