"""Published checkpoints: recognised, folded, reproduced by hand-written twins; everything else is refused kindly."""

from __future__ import annotations

import itertools
import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, pad, pixel_shuffle, pixel_unshuffle

from laws import close, normal, seeded, uniform
from unsnap.errors import InputError
from unsnap.metrics import psnr
from unsnap.networks import Birnat, EfficientSCI, FullUNet, StageUNet, STFormer, build
from unsnap.networks.foreign import Checkpoint, read_checkpoint
from unsnap.simulate import render

WEIGHTS = Path(__file__).parents[2] / "../shared/data/weights"
published = pytest.mark.skipif(not WEIGHTS.is_dir(), reason="the published weights are not here")
State = dict[str, Tensor]
IPOL = "module.intermediate_dncnn.itermediate_dncnn."


def plain_state(prefix: str, sizes: list[int], bias: bool) -> State:
    state: State = {}
    for k, (a, b) in enumerate(itertools.pairwise(sizes)):
        state[f"{prefix}{2 * k}.weight"] = normal(b, a, 3, 3, seed=k).float() / (3 * a**0.5)
        if bias:
            state[f"{prefix}{2 * k}.bias"] = 0.1 * normal(b, seed=50 + k).float()
    return state


def sequential(sizes: list[int], norm: bool, bias: bool = False) -> nn.Sequential:
    """The classic nn.Sequential: convolution, ReLU, then convolution, BatchNorm, ReLU, ..., convolution."""
    parts: list[nn.Module] = []
    for k, (a, b) in enumerate(itertools.pairwise(sizes)):
        parts.append(nn.Conv2d(a, b, 3, padding=1, bias=bias))
        if norm and 0 < k < len(sizes) - 2:
            parts.append(nn.BatchNorm2d(b))
        if k < len(sizes) - 2:
            parts.append(nn.ReLU())
    return nn.Sequential(*parts).eval()


def normed_state(prefix: str, sizes: list[int]) -> State:
    torch.manual_seed(3)
    net = sequential(sizes, norm=True)
    for module in net:
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(normal(module.num_features).float())
            module.running_var.copy_(0.1 + uniform(module.num_features).float())
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return {prefix + key: value.detach().clone() for key, value in net.state_dict().items()}


# Naive forward passes, written from the publications' own code.


def naive_cnn(state: State, x: Tensor, sigma: float) -> Tensor:
    z = x.unsqueeze(1)
    for k in (0, 2, 4, 6):
        z = conv2d(z.relu() if k else z, state[f"nonlinear_op.dncnn.{k}.weight"], padding=1)
    return x - z.squeeze(1)


def stripped(state: State, prefix: str) -> State:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def through(state: State, prefix: str, sizes: list[int], norm: bool, z: Tensor) -> Tensor:
    own = stripped(state, prefix)
    net = sequential(sizes, norm, bias="0.bias" in own)
    net.load_state_dict(own, strict=False)
    return net.to(z.dtype)(z)


def naive_dncnn(state: State, x: Tensor, sigma: float) -> Tensor:
    classic = "dncnn.0.weight" in state
    layers = sum(v.ndim == 4 for v in state.values())
    sizes = [1, *[next(iter(state.values())).shape[0]] * (layers - 1), 1]
    z = through(state, "dncnn." if classic else "model.", sizes, classic, x.unsqueeze(1))
    return x - z.squeeze(1)


def naive_ffdnet(state: State, x: Tensor, sigma: float) -> Tensor:
    ipol = any(k.startswith(IPOL) for k in state)
    layers = sum(v.ndim == 4 for v in state.values())
    sizes = [5, *[next(iter(state.values())).shape[0]] * (layers - 1), 4]
    phases = torch.stack([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], 1)
    level = torch.full_like(phases[:, :1], sigma)
    inputs = torch.cat([level, phases] if ipol else [phases, level], 1)
    out = through(state, IPOL if ipol else "model.", sizes, ipol, inputs)
    assert torch.equal(pixel_unshuffle(x.unsqueeze(1), 2), phases)
    image = pixel_shuffle(out, 2).squeeze(1)
    return x - image if ipol else image


# FastDVDnet, by its state dict: temp1 and temp2 with the parts inc, downc0, downc1, upc2, upc1 and outc.


def fastdvdnet_state(colours: int, bias: bool, seed: int = 0) -> State:
    """Random weights under the authors' names, with BatchNorms that do something."""
    generator, state = seeded(seed), {}

    def add(conv: str, norm: str | None, outputs: int, inputs: int) -> None:
        state[f"{conv}.weight"] = torch.randn(outputs, inputs, 3, 3, generator=generator) * (2 / (9 * inputs)) ** 0.5
        if bias:
            state[f"{conv}.bias"] = 0.1 * torch.randn(outputs, generator=generator)
        if norm is not None:
            state[f"{norm}.weight"] = 0.5 + torch.rand(outputs, generator=generator)
            state[f"{norm}.bias"] = 0.1 * torch.randn(outputs, generator=generator)
            state[f"{norm}.running_mean"] = 0.1 * torch.randn(outputs, generator=generator)
            state[f"{norm}.running_var"] = 0.5 + torch.rand(outputs, generator=generator)
            state[f"{norm}.num_batches_tracked"] = torch.tensor(7)

    for block in ("temp1", "temp2"):
        add(f"{block}.inc.convblock.0", f"{block}.inc.convblock.1", 90, colours + 1)
        add(f"{block}.inc.convblock.3", f"{block}.inc.convblock.4", 32, 90)
        for part, inputs in (("downc0", 32), ("downc1", 64)):
            at, width = f"{block}.{part}.convblock", 2 * inputs
            add(f"{at}.0", f"{at}.1", width, inputs)
            add(f"{at}.3.convblock.0", f"{at}.3.convblock.1", width, width)
            add(f"{at}.3.convblock.3", f"{at}.3.convblock.4", width, width)
        for part, inputs in (("upc2", 128), ("upc1", 64)):
            at = f"{block}.{part}.convblock"
            add(f"{at}.0.convblock.0", f"{at}.0.convblock.1", inputs, inputs)
            add(f"{at}.0.convblock.3", f"{at}.0.convblock.4", inputs, inputs)
            add(f"{at}.1", None, 2 * inputs, inputs)
        add(f"{block}.outc.convblock.0", f"{block}.outc.convblock.1", 32, 32)
        add(f"{block}.outc.convblock.3", None, colours, 32)
    return state


def naive_block(state: State, block: str, frames: list[Tensor], level: Tensor) -> Tensor:
    def conv(z: Tensor, at: str, norm: str | None = None, **how: int) -> Tensor:
        z = conv2d(z, state[f"{block}.{at}.weight"], state.get(f"{block}.{at}.bias"), padding=1, **how)
        if norm is None:
            return z
        parts = (state[f"{block}.{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return batch_norm(z, *parts, training=False).relu()

    def pair(z: Tensor, at: str) -> Tensor:
        z = conv(z, f"{at}.convblock.0", f"{at}.convblock.1")
        return conv(z, f"{at}.convblock.3", f"{at}.convblock.4")

    def down(z: Tensor, part: str) -> Tensor:
        return pair(conv(z, f"{part}.convblock.0", f"{part}.convblock.1", stride=2), f"{part}.convblock.3")

    def up(z: Tensor, part: str) -> Tensor:
        return pixel_shuffle(conv(pair(z, f"{part}.convblock.0"), f"{part}.convblock.1"), 2)

    inputs = torch.cat([part for frame in frames for part in (frame, level)], 1)
    x0 = conv(inputs, "inc.convblock.0", "inc.convblock.1", groups=3)
    x0 = conv(x0, "inc.convblock.3", "inc.convblock.4")
    x1 = down(x0, "downc0")
    x2 = up(down(x1, "downc1"), "upc2")
    x1 = up(x1 + x2, "upc1")
    return frames[1] - conv(conv(x0 + x1, "outc.convblock.0", "outc.convblock.1"), "outc.convblock.3")


def naive_fastdvdnet(state: State, x: Tensor, sigma: float) -> Tensor:
    """Five frames for each one, as the authors do it; x (T, H, W)."""
    frames, height, width = x.shape
    colours = state["temp1.outc.convblock.3.weight"].shape[0]
    video = pad(x[None], (0, -width % 4, 0, -height % 4), mode="reflect")[0]
    level = torch.full_like(video[:1, None], sigma)
    out = []
    for t in range(frames):
        window = []
        for s in range(t - 2, t + 3):
            while frames > 1 and not 0 <= s < frames:
                s = -s if s < 0 else 2 * (frames - 1) - s
            window.append(video[s if frames > 1 else 0].expand(1, colours, -1, -1))
        middle = [naive_block(state, "temp1", window[k : k + 3], level) for k in range(3)]
        out.append(naive_block(state, "temp2", middle, level).mean((0, 1)))
    return torch.stack(out)[:, :height, :width]


def spectral(state: State) -> State:
    extra = {k + "_orig": 2 * v for k, v in state.items()} | {k + "_u": torch.ones(1, 2, 4, 4) for k in state}
    return state | extra


CNN_STATE = plain_state("nonlinear_op.dncnn.", [1, 8, 8, 8, 1], bias=False)
LAYOUTS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "cnn": (
        {"solver_state_dict": CNN_STATE, "epoch": 7, "optimizer_state_dict": {"step": 3}},
        naive_cnn,
        {"name": "cnn", "epoch": 7, "real_spectral_norm": False},
    ),
    "rsn": (
        {"solver_state_dict": spectral(CNN_STATE), "epoch": 1},
        naive_cnn,
        {"name": "cnn", "real_spectral_norm": True},
    ),
    "dncnn kair": (plain_state("model.", [1, *[8] * 16, 1], bias=True), naive_dncnn, {"name": "dncnn", "layers": 17}),
    "dncnn classic": (
        normed_state("dncnn.", [1, *[8] * 19, 1]), naive_dncnn,
        {"name": "dncnn", "layers": 20, "batch_norm_folded": True},
    ),
    "ffdnet kair": (
        plain_state("model.", [5, *[8] * 14, 4], bias=True), naive_ffdnet, {"name": "ffdnet", "layers": 15}
    ),
    "ffdnet ipol": (
        normed_state(IPOL, [5, *[8] * 14, 4]), naive_ffdnet, {"name": "ffdnet", "batch_norm_folded": True}
    ),
    "fastdvdnet grey": (
        fastdvdnet_state(1, bias=False), naive_fastdvdnet,
        {"name": "fastdvdnet", "layers": 32, "batch_norm_folded": True},
    ),
    "fastdvdnet colour": (
        {f"module.{k}": v for k, v in fastdvdnet_state(3, bias=True).items()},
        lambda state, x, sigma: naive_fastdvdnet(stripped(state, "module."), x, sigma),
        {"name": "fastdvdnet", "batch_norm_folded": True},
    ),
}  # fmt: skip


def network(read: Checkpoint) -> nn.Module:
    net = build(read.name, read.settings)
    net.load_state_dict(read.state_dicts[0])
    return net.eval()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_every_layout_are_reproduced(layout: str, tmp_path: Path) -> None:
    content, naive, expected = LAYOUTS[layout]
    torch.save(content, tmp_path / "w.pth")
    read = read_checkpoint(tmp_path / "w.pth")
    assert expected.items() <= (read.facts | {"name": read.name}).items()
    state = {k: v.double() for k, v in content.get("solver_state_dict", content).items()}
    x = uniform(3, 8, 6)
    with torch.no_grad():
        truth = naive(state, x, 0.2)
        close(network(read).double()(x, 0.2) - x, truth - x, 1e-6)
        close(network(read)(x.float(), 0.2) - x.float(), truth - x, 1e-4)


@pytest.mark.parametrize("size", [(1, 8, 8), (2, 9, 7), (4, 5, 6), (6, 6, 9), (3, 2, 3)])
def test_fastdvdnet_takes_any_number_of_frames_and_any_size(size: tuple[int, int, int], tmp_path: Path) -> None:
    state, x = fastdvdnet_state(1, bias=False, seed=1), uniform(*size)
    torch.save(state, tmp_path / "w.pth")
    net = network(read_checkpoint(tmp_path / "w.pth")).double()
    with torch.no_grad():
        found = net(torch.stack([x, x.flip(-1)]), torch.tensor([0.1, 0.3], dtype=torch.float64))
        assert found.shape == (2, *size)
        if min(size[1:]) > 3:  # the authors reflect at the lower and right edges, for which there must be enough
            exact = {k: v.double() for k, v in state.items()}
            close(found[0] - x, naive_fastdvdnet(exact, x, 0.1) - x, 1e-5)
        close(net(x.flip(-1), 0.3), found[1], 1e-12)


@published
@pytest.mark.parametrize(
    ("file", "naive"),
    [
        ("deqsci_cnn.ckpt", naive_cnn),
        ("deqsci_rsn_cnn.ckpt", naive_cnn),
        ("ffdnet_gray.pth", naive_ffdnet),
        ("ffdnet_net_gray.pth", naive_ffdnet),
    ],
)
def test_published_networks_are_reproduced(file: str, naive: Any) -> None:
    read = read_checkpoint(WEIGHTS / file)
    content = torch.load(WEIGHTS / file, map_location="cpu", weights_only=True)
    state = {k: v.double() for k, v in content.get("solver_state_dict", content).items()}
    x = render(2, 24, 16, seed=1).double()
    with torch.no_grad():
        truth = naive(state, x, 0.1)
        close(network(read).double()(x, 0.1) - x, truth - x, 1e-5)
        close(network(read)(x.float(), 0.1), truth, 1e-5)
    assert read.settings["channels"] == 64
    assert read.facts["layers"] == (15 if "ffdnet" in file else 4)


@published
@pytest.mark.parametrize("file", ["ffdnet_gray.pth", "ffdnet_net_gray.pth"])
@pytest.mark.parametrize("level", [25, 50])
def test_published_ffdnet_denoises(file: str, level: int) -> None:
    """More than 5 dB better, and best with the true sigma: so its units are [0, 1]."""
    net, truth, sigma = network(read_checkpoint(WEIGHTS / file)), render(1, 64, 64, seed=2), level / 255
    noisy = truth + sigma * torch.randn(truth.shape, generator=seeded(1))
    with torch.no_grad():
        gains = {s: float(psnr(net(noisy, s), truth).mean() - psnr(noisy, truth).mean()) for s in (sigma / 2, sigma)}
    assert gains[sigma] > 5
    assert gains[sigma] > gains[sigma / 2] + 2


class Executable:
    """A pickle of this would run code when opened."""

    def __reduce__(self) -> Any:
        return (Path, ("anything",))


def refused(content: Any, tmp_path: Path, message: str) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(InputError, match=r"w\.pth.*" + message):
        read_checkpoint(tmp_path / "w.pth")


def test_what_is_not_weights_is_refused(tmp_path: Path) -> None:
    refused({"a": Executable()}, tmp_path, "holds more than weights.*never does")
    refused([torch.ones(3)], tmp_path, "must hold a dictionary of weights, found list")
    refused({"epoch": 3, "note": "hello"}, tmp_path, "holds no weights: none of its 2 entries")
    with pytest.raises(InputError, match=r"absent\.pth does not exist"):
        read_checkpoint(tmp_path / "absent.pth")
    with pytest.raises(InputError, match="is not a file"):
        read_checkpoint(tmp_path)


def test_other_networks_are_refused_with_the_first_differences(tmp_path: Path) -> None:
    state = plain_state("model.", [5, 8, 8, 4], bias=True)
    renamed = {("model.9.weight" if k == "model.4.weight" else k): v for k, v in state.items()}
    refused(
        renamed, tmp_path, r"nearest layout is FFDNet \(KAIR layout\), but model.4.weight is missing; model.9.weight"
    )
    wide = state | {"model.2.weight": torch.zeros(8, 8, 5, 5)}
    refused(wide, tmp_path, r"model.2.weight is \(8, 8, 5, 5\) instead of \(8, 8, 3, 3\)")
    refused(
        {"features.0.weight": torch.ones(3, 3)},
        tmp_path,
        "not a checkpoint unsnap knows.*features.0.weight is not part of it",
    )
    video = fastdvdnet_state(1, bias=False)
    shorter = {k: v for k, v in video.items() if not k.startswith("temp2.outc")}
    refused(shorter, tmp_path, r"nearest layout is FastDVDnet.*but temp2.outc.convblock.0.weight is missing")
    with_more = state | {f"head.{k}.weight": torch.ones(2) for k in range(9)}
    refused(with_more, tmp_path, "; and 6 more$")
    bad = {**state, "model.2.weight": state["model.2.weight"] * torch.nan}
    refused(bad, tmp_path, "model.2.weight holds NaN or Inf")


@pytest.mark.parametrize("legacy", [False, True])
def test_damaged_files_are_refused(legacy: bool, tmp_path: Path) -> None:
    file = tmp_path / "w.pth"
    torch.save(LAYOUTS["cnn"][0], file, _use_new_zipfile_serialization=not legacy)
    read_checkpoint(file)
    whole = file.read_bytes()
    cuts = [0, 1, 2, 10, 100, 300, *range(500, len(whole), len(whole) // 25), len(whole) - 1]
    for cut in cuts:
        file.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"is empty|is damaged or not a PyTorch checkpoint"):
            read_checkpoint(file)
    for junk in (
        b"hello\n" * 50,
        pickle.dumps({"a": 1}, 4),
        bytes(range(256)),
        b"\x80\x02}q\x00X",
        b"PK\x03\x04" + bytes(99),
    ):
        file.write_bytes(junk)
        with pytest.raises(InputError, match=r"w\.pth"):
            read_checkpoint(file)


WHOLE = {
    "efficientsci": (EfficientSCI(8, 2, 2), ""),
    "stformer": (STFormer(4, 1, 5), ""),
    "birnat": (Birnat(3), ""),
    "full_unet": (FullUNet(3, 4), ""),
    "stage_unet": (StageUNet(3, 4), "unet"),
}


# Of names and shapes as the authors' code has them, compared by reading when each page was written: a name that is
# changed on both sides, ours and the reader's, would pass all other tests and no published file would be known.
NAMES = {
    "efficientsci": "cbbac47a394c4c28",
    "stformer": "b6f247edaeab1f36",
    "birnat": "cc3cb53adb93178e",
    "full_unet": "0c09e0e5cc5f356a",
    "stage_unet": "2e7d8e4c734a4458",
}


@pytest.mark.parametrize("name", WHOLE)
def test_names_and_shapes_are_the_published_ones(name: str) -> None:
    layout = sorted(f"{key} {tuple(value.shape)}" for key, value in WHOLE[name][0].state_dict().items())
    assert sha256("\n".join(layout).encode()).hexdigest()[:16] == NAMES[name]


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("wrapper", [None, "module."])
def test_published_reconstructions_are_known_by_their_keys(tmp_path: Path, name: str, wrapper: str | None) -> None:
    net, stage = WHOLE[name]
    count = 2 if stage else 1
    state = {
        f"{wrapper or ''}{stage}{k if stage else ''}{'.' if stage else ''}{key}": value + k
        for k in range(1, count + 1)
        for key, value in net.state_dict().items()
    }
    if name == "stformer":  # bookkeeping, and a layer that nothing uses
        state[f"{wrapper or ''}layers.0.blocks.0.attn.relative_position_index"] = torch.zeros(49, 49, dtype=torch.long)
        state[f"{wrapper or ''}layers.0.blocks.0.conv_cat.weight"] = torch.zeros(16, 32, 1, 1, 1)
    torch.save(state, tmp_path / "w.pth")
    read = read_checkpoint(tmp_path / "w.pth")
    assert (read.name, read.settings, len(read.state_dicts)) == (name, net.settings, count)
    for k, weights in enumerate(read.state_dicts, 1):
        assert weights.keys() == net.state_dict().keys()
        assert all(torch.equal(weights[key], value + k) for key, value in net.state_dict().items())
    del state[next(key for key in state if key.endswith("bias"))]
    torch.save(state, tmp_path / "cut.pth")
    with pytest.raises(InputError, match="is missing"):
        read_checkpoint(tmp_path / "cut.pth")


def bias_free_states() -> dict[str, State]:
    """A U-net, and a DnCNN of four layers, as their authors' files name them."""
    sizes = [(32, 1, 5), (32, 32, 3), (64, 32, 3), *[(64, 64, 3)] * 3, (64, 64, 4), (32, 96, 3), (1, 32, 5)]
    unet = {
        f"model.0.conv{k}.weight": 0.05 * normal(a, b, n, n, seed=k).float() for k, (a, b, n) in enumerate(sizes, 1)
    }
    stack = {
        "model.0.first_layer.weight": normal(6, 1, 3, 3).float(),
        "model.0.last_layer.weight": normal(1, 6, 3, 3).float(),
    }
    for k in range(2):
        stack[f"model.0.hidden_layer_list.{k}.weight"] = normal(6, 6, 3, 3, seed=k).float()
        for part in ("weight", "bias", "running_mean"):
            stack[f"model.0.bn_layer_list.{k}.{part}"] = normal(6, seed=5 + k).float()
        stack[f"model.0.bn_layer_list.{k}.running_var"] = 0.1 + uniform(6, seed=k).float()
    return {"unet": unet, "stack": stack}


@pytest.mark.parametrize("kind", ["unet", "stack"])
@torch.no_grad()
def test_bias_free_denoisers_scale_with_their_input(kind: str, tmp_path: Path) -> None:
    state = bias_free_states()[kind]
    torch.save(state, tmp_path / "bf.pt")
    found = read_checkpoint(tmp_path / "bf.pt")
    net = build(found.name, found.settings)
    net.load_state_dict(found.state_dicts[0])
    x = uniform(2, 9, 7).float()
    close(net(3 * x, 0.0), 3 * net(x, 0.0), 1e-5)
    if kind == "stack":
        z = conv2d(x.unsqueeze(1), state["model.0.first_layer.weight"], padding=1).relu()
        for k in range(2):
            norm = {p: state[f"model.0.bn_layer_list.{k}.{p}"].reshape(-1, 1, 1) for p in ("weight", "running_var")}
            z = conv2d(z, state[f"model.0.hidden_layer_list.{k}.weight"], padding=1) * norm["weight"]
            z = (z / (norm["running_var"].sqrt() + 1e-5)).relu()
        close(net(x, 0.0), x - conv2d(z, state["model.0.last_layer.weight"], padding=1).squeeze(1), 1e-5)


@published
@torch.no_grad()
def test_the_bias_free_u_net_denoises() -> None:
    found = read_checkpoint(WEIGHTS / "bias_free" / "unet_bf_0-55.tensors.pt")
    net, x = build(found.name, found.settings), render(1, 48, 48, seed=0)
    net.load_state_dict(found.state_dicts[0])
    noisy = x + 25 / 255 * torch.randn(x.shape, generator=seeded())
    assert float(psnr(net(noisy, 0.0), x).mean()) > float(psnr(noisy, x).mean()) + 4
