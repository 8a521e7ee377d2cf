"""Every hand-written piece against what a library or plain torch offers for the same task: time, and agreement.

python benchmarks/hand_written.py [--json PATH]

A ratio of 2 means that ours takes half the processor time. One thread; about a minute and a half.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import scipy.io
import torch
from scipy.ndimage import map_coordinates
from torch import Tensor, nn
from torch.nn.functional import pixel_unshuffle

import plain_twins as plain
from common import finish, show, snapshot
from unsnap.fixed_point import vectors as states
from unsnap.io.mat5 import read_v5
from unsnap.kernels import data, omp, patches, winograd
from unsnap.kernels.eigen import leading
from unsnap.kernels.lanes import product
from unsnap.kernels.resample import STEPS, resample
from unsnap.networks import CNN, FFDNet, ShiftUNet, scales
from unsnap.networks.frames import layers_of, per_frame, plain_stack
from unsnap.networks.spacetime import SpaceTimeConv
from unsnap.priors.dictionary import Dictionary
from unsnap.priors.tv import TV
from unsnap.priors.wnnm import WNNM
from unsnap.training.optimizer import Muon

Row, Work, Value = dict[str, Any], Callable[[], Any], Callable[[Any], Tensor]
Y, MASKS, TRUTH = snapshot()
NOISY = TRUTH + 0.1 * torch.randn(TRUTH.shape, generator=torch.Generator().manual_seed(0))


def row(piece: str, against: str, ours: Work, theirs: Work, repeats: int = 5, of: Value = torch.as_tensor) -> Row:
    """Both timed, and how far `of` their first results are apart, relative to the norm."""
    a, b = (of(work()) for work in (ours, theirs))
    gap = float((a - b).norm() / b.norm())
    turns = [(seconds(ours), seconds(theirs)) for _ in range(repeats)]  # in turn: others load the machine now and then
    fast, slow = (min(times) for times in zip(*turns, strict=True))
    return {"piece": piece, "against": against, "ours ms": 1e3 * fast, "ratio": slow / fast, "difference": gap}


def seconds(work: Work) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def data_rows() -> Iterator[Row]:
    gain = 1 / MASKS.square().sum(0).clamp(min=1)
    x, y, m, g = (t.numpy() for t in (NOISY[None], Y[None], MASKS[None], gain[None]))
    yield row("data.forward", "torch", lambda: data.forward(x, m)[0], lambda: plain.forward(NOISY, MASKS), 50)
    yield row(
        "data.step", "torch", lambda: data.step(x, y, m, g)[0], lambda: plain.data_step(NOISY, Y, MASKS, gain), 50
    )
    t = TRUTH[None].numpy()
    yield row("data.change", "torch", lambda: data.change(x, t)[0], lambda: plain.change(NOISY, TRUTH), 50)


def tv_rows() -> Iterator[Row]:
    for prior in (TV(iterations=4), TV(iterations=4, temporal=0.5)):
        name = "tv.denoise, 3-D" if prior.temporal else "tv.denoise, 2-D"
        yield row(name, "torch", lambda p=prior: p(NOISY, 0.1), lambda p=prior: p._denoise_torch(NOISY, 0.1), 10)


def state_rows() -> Iterator[Row]:
    """The passes of one Anderson step with five remembered states."""
    columns = torch.randn(5, 1, TRUTH.numel(), generator=torch.Generator().manual_seed(1))
    z, g = NOISY.reshape(1, -1), TRUTH.reshape(1, -1)
    factor, weights = torch.ones(1), torch.full((1, 5), 0.1)
    history = torch.zeros(2, *z.shape)

    def passes() -> Tensor:
        states.remember_differences((z, g), (g, z), 0.5, history[0], history[1])
        sums = torch.cat([*states.products(columns, z, g)], 1)
        point = states.combine(z, g, factor, columns, weights)
        rest, *norms = states.residual(z, g)
        return torch.cat([history.flatten(), point.flatten(), rest.flatten(), *norms, sums.flatten()])

    def without_kernels() -> Tensor:
        usable, states.usable = states.usable, lambda *tensors: False
        try:
            return passes()
        finally:
            states.usable = usable

    yield row("vectors, Anderson step", "torch", passes, without_kernels, 10)


def pursuit_rows() -> Iterator[Row]:
    prior = Dictionary()
    video = NOISY[:, :96, :96]
    index = prior._index(*video.shape)
    rest = video.flatten()[index]
    rest = rest - rest.mean(1, keepdim=True)
    atoms = torch.from_numpy(prior.cosines(prior.frames)).float()
    target = (1.15 * 0.1) ** 2 * rest.shape[1]

    def ours() -> np.ndarray[Any, Any]:
        return omp.decode(*omp.code(rest.numpy(), atoms.numpy(), target, prior.most), atoms.numpy())

    yield row(
        "omp.code, 96×96×8", "torch, batched solves", ours, lambda: plain.pursuit(rest, atoms, target, prior.most), 5
    )


def resampling_rows() -> Iterator[Row]:
    """Cubic B-splines at places moved and turned: the one kernel that the library knows too."""
    pictures = np.ascontiguousarray(TRUTH.numpy())
    rows, columns = np.mgrid[4.0 : pictures.shape[1] - 5, 4.0 : pictures.shape[2] - 5]
    rows, columns = rows + 0.01 * columns - 1.3, columns - 0.01 * rows + 1.7
    away = np.abs(np.arange(-2 * STEPS, 2 * STEPS + 1) / STEPS)
    table = np.where(away < 1, 2 / 3 - away**2 + away**3 / 2, (2 - away) ** 3 / 6).astype(np.float32)

    def theirs() -> np.ndarray[Any, Any]:
        return np.stack(
            [map_coordinates(p, [rows, columns], order=3, prefilter=False, mode="reflect") for p in pictures]
        )

    yield row("resample, 256×256×8", "scipy, splines", lambda: resample(pictures, rows, columns, table), theirs, 5)


def patch_rows() -> Iterator[Row]:
    prior = WNNM()
    video = NOISY[:, :66, :66].contiguous()
    keys = patches.references(video.shape, prior.patch, prior.stride)
    sizes = (prior.patch, prior.group, prior.radius)
    inside = (torch.arange(prior.patch)[:, None] * video.shape[-1] + torch.arange(prior.patch)).flatten()

    def distances(found: Any) -> Tensor:
        if isinstance(found, Tensor):
            return found.permute(0, 2, 3, 1).reshape(len(keys), -1)
        first, second = (
            video.flatten()[torch.from_numpy(k).long()[..., None] + inside] for k in (found, keys[:, None])
        )
        return (first - second).square().sum(-1).sort(1).values

    yield row(
        "patches.match, 66×66×8",
        "torch, all shifts",
        lambda: patches.match(video.numpy(), keys, *sizes),
        lambda: plain.match(video, *sizes, prior.stride),
        2,
        of=distances,
    )
    groups = prior.match(video)
    least = torch.full((len(groups),), 8 * (2 * prior.group) ** 0.5 * 0.1**2)
    yield row(
        "patches.shrink, 66×66×8",
        "torch, eigh",
        lambda: patches.shrink(video.numpy(), groups.numpy(), prior.patch, least.numpy()),
        lambda: plain.shrink(video, groups, prior.patch, least),
        5,
    )


def eigen_rows() -> Iterator[Row]:
    """Gram matrices of groups as WNNM makes them, at the noise for which it chooses their size."""
    for sigma in (0.05, 0.12, 0.2, 0.3):
        prior = WNNM.published(sigma)
        noisy = TRUTH + sigma * torch.randn(TRUTH.shape, generator=torch.Generator().manual_seed(2))
        groups = prior.match(noisy[:2, :64, :64])[:256]
        inside = (torch.arange(prior.patch)[:, None] * 64 + torch.arange(prior.patch)).flatten()
        y = noisy[:2, :64, :64].flatten()[groups.long()[:, :, None] + inside]
        y = y - y.mean(1, keepdim=True)
        gram = y.mT @ y
        trace = gram.diagonal(dim1=1, dim2=2).sum(1)
        gram = gram / trace[:, None, None]
        least = 8 * (2 * groups.shape[1]) ** 0.5 * sigma**2 / trace
        yield from _eigen_rows(gram, least, prior.patch**2)


def _eigen_rows(gram: Tensor, least: Tensor, m: int) -> Iterator[Row]:
    lanes = np.ascontiguousarray(gram.numpy().reshape(-1, patches.LANES, m, m).transpose(0, 2, 3, 1))
    limits = least.numpy().reshape(-1, patches.LANES)
    values, vectors = np.empty((m, patches.LANES), np.float32), np.empty((m, m, patches.LANES), np.float32)

    def ours() -> tuple[Any, Any]:
        found = [
            (leading(some.copy(), limit, values, vectors), values.copy())
            for some, limit in zip(lanes, limits, strict=True)
        ]
        counts, all_values = (np.concatenate(part, -1) for part in zip(*found, strict=True))
        return np.where(np.arange(m)[:, None] < counts, all_values, 0).T, None

    def above(found: tuple[Any, Any]) -> Tensor:
        """The sum of the eigenvalues above the threshold."""
        w = torch.as_tensor(found[0])
        return torch.where(w > least[:, None], w, 0).sum(1)

    array = gram.numpy()
    for name, work in (("torch", lambda: torch.linalg.eigh(gram)), ("numpy", lambda: np.linalg.eigh(array))):
        yield row(f"eigen.leading, {m} rows", f"{name}.linalg.eigh", ours, work, 5, of=above)


@numba.njit
def _products(a: Any, b: Any, out: Any, rows: int, depth: int, width: int) -> None:
    """As in `winograd._wide`: panels of 16 columns, six rows at a time."""
    for p in range(36):
        for j in range(width // 16):
            panel = (p * (width // 16) + j) * depth * 16
            for i in range(0, rows, 6):
                place = (p * rows + i) * width + 16 * j
                product(a, (p * rows + i) * depth, depth, b, panel, depth, out, place, width)


def product_rows() -> Iterator[Row]:
    """The 36 products of a block of tiles in a layer of 64 channels."""
    random = np.random.default_rng(0)
    a, b = (random.random((36, n, 64), dtype=np.float32) for n in (winograd.BLOCK, 64))
    panels = b.reshape(36, 64, 4, 16).transpose(0, 2, 1, 3).copy()
    mine, theirs = np.zeros_like(a), np.zeros_like(a)

    def ours() -> Tensor:
        _products(a.reshape(-1), panels.reshape(-1), mine.reshape(-1), winograd.BLOCK, 64, 64)
        return torch.from_numpy(mine)

    for name, work in (
        ("numba loops", lambda: plain.products_by_loops(a, b, theirs)),
        ("numba, BLAS", lambda: plain.products_by_blas(a, b, theirs)),
        ("numpy.matmul", lambda: np.matmul(a, b, out=theirs)),
    ):
        yield row(
            "vector.product",
            name,
            ours,
            work,
            200,
            of=lambda out: torch.from_numpy(theirs) if out is None else torch.as_tensor(out),
        )


def convolution_rows() -> Iterator[Row]:
    phases = torch.cat([pixel_unshuffle(NOISY[:, None], 2), torch.full((8, 1, 128, 128), 0.1)], 1)
    for name, net, images in (("CNN, 4 layers", CNN(), NOISY[:, None]), ("FFDNet, 15 layers", FFDNet(), phases)):
        layers = [(w.detach(), None if b is None else b.detach()) for w, b in layers_of(net.convs)]
        last = torch.channels_last
        turned = [(w.contiguous(memory_format=last), b) for w, b in layers]
        for kind, stack, x in (
            ("contiguous", layers, images),
            ("channels_last", turned, images.contiguous(memory_format=last)),
        ):
            yield row(
                f"winograd, {name}",
                f"torch conv2d, {kind}",
                lambda s=layers, z=images: winograd.conv_stack(s, z),
                lambda s=stack, z=x: per_frame(lambda part: plain_stack(s, part), z),
                3,
            )

    for channels, side in ((24, 128), (48, 64)):
        u = torch.rand(8, channels, side, side).contiguous(memory_format=torch.channels_last)
        block = scales.Block(channels).requires_grad_(False).to(memory_format=torch.channels_last)
        yield row(
            f"residual block, {channels} features",
            "torch, channels_last",
            lambda b=block, z=u: b(z, 8),
            lambda b=block, z=u: b.plain(z, 8),
            5,
        )

    conv, u = SpaceTimeConv(16, 16, 3).requires_grad_(False), torch.rand(8, 16, 128, 128)
    yield row(
        "convolution in space-time, 16 features",
        "torch conv3d",
        lambda: conv(u, 8),
        lambda: nn.Conv3d.forward(conv, u.transpose(0, 1)[None])[0].transpose(0, 1),
        3,
    )


def optimizer_rows() -> Iterator[Row]:
    """One step on the flagship's parameters; torch's takes matrices only, so its side gets flattened copies."""
    if not hasattr(torch.optim, "Muon"):
        return
    torch.manual_seed(0)
    mine = [nn.Parameter(p.detach().clone()) for p in ShiftUNet().parameters()]
    wide = [p.ndim >= 2 for p in mine]
    theirs = [nn.Parameter((p.flatten(1) if w else p).detach().clone()) for p, w in zip(mine, wide, strict=True)]
    for a, b in zip(mine, theirs, strict=True):
        a.grad = torch.randn(a.shape)
        b.grad = a.grad.reshape(b.shape).clone()
    before = [p.detach().clone() for p in mine]
    ours = Muon(mine, lr=1e-3, weight_decay=0.01)
    matrices, vectors = ([p for p, w in zip(theirs, wide, strict=True) if w is kind] for kind in (True, False))
    torchs = (
        torch.optim.Muon(matrices, lr=1e-3, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(vectors, lr=1e-3, weight_decay=0.01),
    )

    def moved(parameters: list[nn.Parameter]) -> Tensor:
        pairs = zip(parameters, before, strict=True)
        return torch.cat([(p.detach().reshape(b.shape) - b).flatten() for p, b in pairs])

    def step() -> list[nn.Parameter]:
        ours.step()
        return mine

    def torch_step() -> list[nn.Parameter]:
        for optimizer in torchs:
            optimizer.step()
        return theirs

    yield row("optimizer.Muon, one step", "torch.optim.Muon + AdamW", step, torch_step, 10, of=moved)


def mat_rows() -> Iterator[Row]:
    """A file as the field publishes them: snapshots as doubles, masks and video as bytes, compressed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scene.mat"
        arrays = {"meas": Y[..., None].repeat(1, 1, 4).double().numpy(), "mask": MASKS.permute(1, 2, 0).numpy()}
        arrays["orig"] = (TRUTH.permute(1, 2, 0).repeat(1, 1, 4) * 255).to(torch.uint8).numpy()
        scipy.io.savemat(path, arrays, do_compression=True)
        yield row(
            "mat5.read_v5",
            "scipy.io.loadmat",
            lambda: dict(read_v5(path)),
            lambda: scipy.io.loadmat(path),
            10,
            of=lambda found: torch.cat([torch.as_tensor(found[name]).double().flatten() for name in sorted(arrays)]),
        )


def crash() -> str:
    """What becomes of a process in which scipy reads a file with the undefined type 8."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.mat"
        scipy.io.savemat(path, {"a": np.eye(3)})
        content = bytearray(path.read_bytes())
        content[176] = 8
        path.write_bytes(content)
        run = subprocess.run(
            [sys.executable, "-c", f"import scipy.io; scipy.io.loadmat({str(path)!r})"], capture_output=True
        )
    return f"killed by signal {-run.returncode}" if run.returncode < 0 else f"left with code {run.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = (
        data_rows,
        tv_rows,
        state_rows,
        pursuit_rows,
        resampling_rows,
        patch_rows,
        eigen_rows,
        product_rows,
        convolution_rows,
        optimizer_rows,
        mat_rows,
    )
    with torch.no_grad():
        rows = [each for part in parts for each in part()]
    show("Hand-written pieces, 256×256×8 where not said otherwise, one thread", rows)
    print(f"scipy {scipy.__version__} reading a file with the undefined type 8: {crash()}")
    finish(arguments.json, rows)


if __name__ == "__main__":
    main()
