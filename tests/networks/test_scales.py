"""The blocks of our U-nets: the fast ones are the definition, whatever the sizes, the frames and the threads."""

from __future__ import annotations

import pytest
import torch

from laws import close, normal
from unsnap.kernels import winograd
from unsnap.networks.frames import layers_of
from unsnap.networks.scales import Block


def block(channels: int) -> Block:
    torch.manual_seed(channels)
    return Block(channels).requires_grad_(False)


def fast(b: Block, u: torch.Tensor, frames: int) -> torch.Tensor:
    return winograd.residual_block(layers_of((b.first, b.second)), u, frames)


@pytest.mark.parametrize("channels", [1, 7, 16, 24, 40, 72])
@pytest.mark.parametrize(("videos", "frames", "height", "width"), [(1, 8, 12, 10), (2, 3, 5, 7), (3, 1, 1, 9)])
def test_fast_blocks_are_the_definition(channels: int, videos: int, frames: int, height: int, width: int) -> None:
    b, u = block(channels), normal(videos * frames, channels, height, width, dtype=torch.float32)
    close(fast(b, u, frames), b.double().plain(u.double(), frames), 2e-6)


def test_a_block_uses_what_is_fast_only_where_nobody_needs_gradients() -> None:
    b, u = Block(8), normal(4, 8, 6, 6, dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(b(u, 4), fast(b, u, 4))
        assert torch.equal(b.double()(u.double(), 4), b.plain(u.double(), 4))
    out = b.float()(u, 4)
    assert torch.equal(out, b.plain(u, 4))
    (slope,) = torch.autograd.grad(out.sum(), b.second.bias)
    close(slope, torch.full_like(slope, 4 * 36))


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_and_strips_leave_every_pixel_alone(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "STRIP", 1)  # as for an image too large for one piece: 128 rows at a time
    b, u = block(24), normal(4, 24, 310, 20, dtype=torch.float32)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        out = fast(b, u, 2)
    finally:
        torch.set_num_threads(before)
    close(out, b.double().plain(u.double(), 2), 2e-6)


def test_videos_do_not_leak_into_each_other() -> None:
    """Frames see their neighbours of the same video only, and a video of NaN leaves no trace in the buffers."""
    b, u = block(24), normal(6, 24, 9, 12, dtype=torch.float32)
    u[2:4] = torch.nan
    out = fast(b, u, 2)
    assert torch.equal(out[:2], fast(b, u[:2], 2))
    assert torch.equal(out[4:], fast(b, u[4:], 2))
    assert bool(out[2:4].isnan().all())


def test_any_order_in_memory_is_read_correctly() -> None:
    b, u = block(16), normal(2, 16, 8, 6, dtype=torch.float32)
    turned = u.contiguous(memory_format=torch.channels_last)
    assert torch.equal(fast(b, u, 2), fast(b, turned, 2))
