"""The published recipes are the generic algorithms with published schedules; weights are found or asked for."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from laws import close, seeded
from networks.test_published_weights import bias_free_states, fastdvdnet_state, normed_state, plain_state
from unsnap import masks, simulate
from unsnap.algorithms import GAP, admm, gap
from unsnap.algorithms.schedules import staged
from unsnap.errors import InputError
from unsnap.methods import METHODS, get, published
from unsnap.methods.plug_and_play import FASTDVDNET, FFDNET, nearest
from unsnap.models import Equilibrium, TotalVariation, save
from unsnap.networks import MFoE, build
from unsnap.networks.foreign import read_checkpoint
from unsnap.operators import Snapshot

VIDEO = simulate.render(5, 24, 20, seed=1)
PHI = Snapshot(masks.gray(5, 24, 20, generator=seeded()))
Y = PHI.A(VIDEO)
IPOL = "module.intermediate_dncnn.itermediate_dncnn."


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """$UNSNAP_WEIGHTS with small networks in the authors' layouts; the other folders are empty."""
    elsewhere(tmp_path, monkeypatch)
    folder = tmp_path / "weights"
    folder.mkdir()
    monkeypatch.setenv(published.VARIABLE, str(folder))
    # Few layers: what fifteen random ones say depends on sigma no more than on rounding.
    torch.save(normed_state(IPOL, [5, 8, 4]), folder / "ffdnet_net_gray.pth")
    torch.save(fastdvdnet_state(1, bias=False), folder / "model_gray.pth")
    for level in (15, 25, 50):
        state = plain_state("model.", [1, *[4] * 4, 1], bias=True)
        torch.save({key: level / 2000 * value for key, value in state.items()}, folder / f"dncnn_{level}.pth")
    return folder


def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home and working directory, no variable."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(published, "data_folder", lambda: tmp_path / "home")
    monkeypatch.delenv(published.VARIABLE, raising=False)


def network(path: Path) -> nn.Module:
    read = read_checkpoint(path)
    net = build(read.name, read.settings)
    net.load_state_dict(read.state_dicts[0])
    return net.eval()


def same(name: str, expected: Tensor, iterations: int | None = None) -> None:
    close(METHODS[name](Y, PHI, iterations=iterations).x, expected, 1e-6)


@torch.no_grad()
def test_recipes_are_the_generic_algorithms_with_the_published_schedules(shelf: Path) -> None:
    ffdnet = network(shelf / "ffdnet_net_gray.pth")
    schedule = [s for s in (50 / 255, 25 / 255, 12 / 255, 6 / 255) for _ in range(3)]
    same("pnp-ffdnet", gap(Y, PHI, ffdnet, schedule, early=False, accelerate=True).x, iterations=12)
    rho = 0.01 * PHI.squared_norm() / 8
    same("admm-ffdnet", admm(Y, PHI, ffdnet, schedule, rho=rho, early=False).x, iterations=12)
    fast = network(shelf / "model_gray.pth")
    schedule = [100 / 255, 50 / 255, 25 / 255, 12 / 255]
    same("pnp-fastdvdnet", gap(Y, PHI, fast, schedule, early=False).x, iterations=4)
    bank = {level: network(shelf / f"dncnn_{level}.pth") for level in (50, 25, 15)}
    schedule = [s for s in (50 / 255, 25 / 255, 15 / 255, 15 / 255) for _ in range(3)]
    trained = lambda x, sigma: bank[round(255 * sigma)](x)  # noqa: E731
    same("pnp-dncnn", gap(Y, PHI, trained, schedule, early=False).x, iterations=12)
    for level in (15, 50):
        (shelf / f"dncnn_{level}.pth").unlink()
    same("pnp-dncnn", gap(Y, PHI, lambda x, sigma: bank[25](x), schedule, early=False).x, iterations=12)
    published = {"pnp-ffdnet": 40, "admm-ffdnet": 40, "pnp-fastdvdnet": 80, "pnp-dncnn": 40}
    assert {name: METHODS[name].iterations for name in published} == published


@torch.no_grad()
def test_a_blind_denoiser_is_told_sigma_by_noise(shelf: Path) -> None:
    torch.save(bias_free_states()["unet"], shelf / "unet_bf_0-100.tensors.pt")
    blind, draws = network(shelf / "unet_bf_0-100.tensors.pt"), torch.Generator().manual_seed(0)
    noisy = lambda x, sigma: blind(x + sigma * torch.randn(x.shape, generator=draws), sigma)  # noqa: E731
    same("pnp-biasfree", gap(Y, PHI, noisy, [50 / 255, 25 / 255, 12 / 255, 6 / 255], early=False).x, iterations=4)
    first, again = (METHODS["pnp-biasfree"](Y, PHI, iterations=2).x for _ in range(2))
    assert torch.equal(first, again)
    both = METHODS["pnp-biasfree"](torch.stack([Y, 2 * Y]), PHI, iterations=2).x
    close(both[0], first, 1e-5)


@torch.no_grad()
def test_the_energy_of_mfoe_falls_from_total_variation_to_the_end(shelf: Path) -> None:
    torch.manual_seed(0)
    torch.save({"state_dict": MFoE(3, 2, (2, 3)).state_dict()}, shelf / "mfoe.pth")
    energy, values = network(shelf / "mfoe.pth"), []
    found = METHODS["pgd-mfoe"](
        Y, PHI, iterations=6, callback=lambda k, x, change: values.append(float(energy.value(x, 5 / 255)))
    )
    before = float(energy.value(PHI.project(TotalVariation()(Y, PHI), Y), 5 / 255))
    assert len(values) == 6
    assert all(new <= old * (1 + 1e-6) for old, new in pairwise([before, *values]))
    close(PHI.A(found.x), Y, 1e-5)


def test_levels_share_the_iterations() -> None:
    assert staged([50, 25, 12, 6], 40) == [s / 255 for s in (50, 25, 12, 6) for _ in range(10)]
    assert staged([255, 51], 1) == [1.0]


def test_the_nearest_level_is_taken() -> None:
    chosen = nearest({level: lambda x, sigma, level=level: x + level for level in (50, 25, 15)})
    found = [float(chosen(torch.zeros(1), sigma / 255)) for sigma in (60, 50, 37, 21, 19, 1)]
    assert found == [50, 50, 25, 25, 15, 15]


def test_a_model_file_serves_as_well_as_the_authors_file(shelf: Path) -> None:
    expected = METHODS["pnp-ffdnet"](Y, PHI, iterations=4).x
    read = read_checkpoint(shelf / "ffdnet_net_gray.pth")
    ours = build(read.name, read.settings)
    ours.load_state_dict(read.state_dicts[0])
    save(shelf / "ffdnet_net_gray.safetensors", Equilibrium(GAP(), ours))
    (shelf / "ffdnet_net_gray.pth").unlink()
    assert FFDNET.find().suffix == ".safetensors"
    close(METHODS["pnp-ffdnet"](Y, PHI, iterations=4).x, expected, 1e-7)


def test_folders_and_names_have_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere(tmp_path, monkeypatch)
    (tmp_path / "own").mkdir()
    content = normed_state(IPOL, [5, 4, 4, 4])
    for folder, name in (("work", "ffdnet_net_gray.pth"), ("home", "ffdnet_gray.pth"), ("home", "net_gray.pth")):
        torch.save(content, tmp_path / folder / name)
    assert FFDNET.find() == tmp_path / "home" / "net_gray.pth"
    monkeypatch.setenv(published.VARIABLE, str(tmp_path / "own"))
    torch.save(content, tmp_path / "own" / "ffdnet_gray.pth")
    assert FFDNET.find() == tmp_path / "own" / "ffdnet_gray.pth"


def test_a_file_that_changes_is_read_again(shelf: Path) -> None:
    first = METHODS["pnp-ffdnet"](Y, PHI, iterations=1).x
    torch.save(normed_state(IPOL, [5, 8, 8, 4]), shelf / "ffdnet_net_gray.pth")
    assert not torch.equal(METHODS["pnp-ffdnet"](Y, PHI, iterations=1).x, first)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pnp-ffdnet", ["ffdnet_net_gray.pth", "net_gray.pth", "liuyang12/PnP-SCI_python", "cszn/KAIR"]),
        ("admm-ffdnet", ["ffdnet_net_gray.pth"]),
        ("pnp-fastdvdnet", ["model_gray.pth", "m-tassano/fastdvdnet"]),
        ("pnp-dncnn", ["dncnn_50.pth", "cszn/KAIR"]),
        ("pnp-biasfree", ["unet_bf_0-100.tensors.pt", "bias_free_denoising"]),
        ("pgd-mfoe", ["MFoE_groupsize_4.pth", "StanislasDucotterd/MFoE"]),
    ],
)
def test_missing_weights_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: list[str]
) -> None:
    elsewhere(tmp_path, monkeypatch)
    sentence = METHODS[name].missing()
    assert sentence is not None
    with pytest.raises(InputError) as error:
        get(name)(Y, PHI)
    assert str(error.value) == sentence
    folders = ["$UNSNAP_WEIGHTS (not set)", str(tmp_path / "home"), str(tmp_path / "work")]
    assert all(word in sentence for word in [name, ".safetensors", *words, *folders])
    assert "\n" not in sentence
    monkeypatch.setenv(published.VARIABLE, "/nowhere/at/all")
    assert "$UNSNAP_WEIGHTS (/nowhere/at/all)" in (METHODS[name].missing() or "")


def test_wrong_weights_are_one_sentence(shelf: Path) -> None:
    torch.save(plain_state("model.", [1, 4, 4, 1], bias=True), shelf / "ffdnet_net_gray.pth")
    with pytest.raises(InputError, match=r"ffdnet_net_gray.pth holds the network dncnn, but pnp-ffdnet needs ffdnet"):
        METHODS["pnp-ffdnet"].check(8, 64, 64)
    renamed = {k.replace("outc", "tail"): v for k, v in fastdvdnet_state(1, bias=False).items()}
    torch.save(renamed, shelf / "model_gray.pth")
    with pytest.raises(InputError, match=r"FastDVDnet.* temp1.outc.convblock.0.weight is missing; .*more"):
        METHODS["pnp-fastdvdnet"].check(8, 64, 64)
    assert FASTDVDNET.find().name == "model_gray.pth"


def test_the_data_folder_follows_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/someone")
    monkeypatch.setenv("USERPROFILE", "/someone")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    expected = {
        "linux": "/someone/.local/share/unsnap",
        "darwin": "/someone/Library/Application Support/unsnap",
        "win32": "/someone/AppData/Local/unsnap",
    }
    for platform, folder in expected.items():
        monkeypatch.setattr(published.sys, "platform", platform)
        assert published.data_folder() == Path(folder)


def test_a_method_knows_its_year_and_whether_it_can_serve() -> None:
    assert (METHODS["pnp-ffdnet"].year, METHODS["gap-tv"].year, METHODS["pnp-dncnn"].year) == (2020, 2016, 2017)
    assert METHODS["guided-certified"].year is None
    assert METHODS["gap-tv"].missing() is None
    with pytest.raises(InputError, match="video of 8×30 pixels is too small for patches of 9×9"):
        METHODS["desci"].check(8, 8, 30)
    refusing = replace(METHODS["gap-tv"], check=METHODS["desci"].check)
    with pytest.raises(InputError, match="too small"):
        refusing(Y[:8], Snapshot(PHI.masks[:, :8]))
