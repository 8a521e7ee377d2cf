"""One file, one model: what is saved is what is loaded, and every other file is refused in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from laws import seeded
from unsnap import methods
from unsnap.algorithms import ADMM, GAP, GD, PGD, AcceleratedGAP, Iteration, Recurrent
from unsnap.errors import InputError
from unsnap.fixed_point import anderson, broyden, picard, unroll
from unsnap.masks import bernoulli
from unsnap.models import (
    STARTS,
    Adjoint,
    Annealed,
    Equilibrium,
    LeastSquares,
    LowRank,
    TotalVariation,
    Unfolded,
    load,
    save,
)  # fmt: skip
from unsnap.models.file import AnyModel, build, describe, described, description, revived
from unsnap.models.format_1 import from_format_1
from unsnap.networks import NETWORKS
from unsnap.networks import build as network
from unsnap.operators import CodedOperator, Multishot, Snapshot
from unsnap.priors.gmm import GMM, Mixture
from unsnap.run import reconstruct

SETTINGS: dict[str, dict[str, Any]] = {
    "cnn": {"layers": 2, "channels": 4},
    "dncnn": {"layers": 3, "channels": 4},
    "ffdnet": {"layers": 3, "channels": 4, "layout": "ipol"},
    "certified": {"blocks": 1, "channels": 4, "hidden": 4, "temporal": True, "contraction": 0.9, "bound": "row_sums"},
    "gradient_step": {"channels": 2, "kernel": 3, "convex": False},
    "rnn": {"channels": 2},
    "frame_rnn": {"channels": [4, 4, 4], "blocks": [1, 1, 1], "damping": 0.25},
    "shift": {"channels": [4, 4, 4], "blocks": [1, 1, 1], "context": True},
    "unet": {"channels": [4, 4, 4], "blocks": [1, 1, 1], "context": True},
}
PHI = Snapshot(bernoulli(3, 16, 16, generator=seeded()))
Y = PHI.A(torch.rand(2, 3, 16, 16, generator=seeded(1)))
OTHER_STARTS = [LeastSquares(), Adjoint(), TotalVariation(0.05, 7), LowRank(patch=8, iterations=3, tv_iterations=9)]


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    net = network(name, SETTINGS[name])
    for parameter in net.parameters():
        parameter.data.mul_(0.5)
    if name == "frame_rnn":  # begins with a last layer of zeros
        nn.init.normal_(net.get_parameter("leave.weight"), std=0.05)
    return net


def equilibrium(name: str = "certified", **changes: Any) -> Equilibrium:
    iteration = Recurrent() if name.endswith("rnn") else GAP()
    return Equilibrium(iteration, made(name), changes.pop("sigma", 0.1), **{"max_iter": 5, **changes})


def mixture() -> GMM:
    """Numbers that 16 bits hold."""
    parts = [torch.rand(shape, generator=seeded(k)) for k, shape in enumerate([(2, 3, 4, 4), (2, 3, 4, 4, 2)])]
    means, factors = ((64 * part).round() / 64 for part in parts)
    own = Mixture(torch.tensor([0.25, 0.75]), means, factors, torch.tensor([0.01, 0.02]))
    return GMM(own, stride=2, noise=0.02, updates=1, strength=10.0, about={"source": "here"})


MODELS: dict[str, Callable[[], AnyModel]] = {
    **{f"equilibrium of {name}": lambda name=name: equilibrium(name) for name in SETTINGS},
    **{f"from {type(s).__name__}": lambda s=s: equilibrium("rnn", start=s, max_iter=2) for s in OTHER_STARTS},
    "unrolled": lambda: equilibrium("rnn", backward=unroll(2), max_iter=9),
    "learned sigma": lambda: equilibrium("ffdnet", sigma=nn.Parameter(torch.tensor(0.37))),
    "own weights": lambda: Unfolded(ADMM(0.3), [made("ffdnet"), made("shift")], [0.3, 0.1], start=Adjoint()),
    "shared weights": lambda: Unfolded(PGD(0.9), made("ffdnet"), [0.3, 0.1, 0.05], learn_sigmas=True),
    "mixture": mixture,
}
each = pytest.mark.parametrize("name", MODELS)


def weights_of(model: AnyModel) -> dict[str, Tensor]:
    return vars(model.mixture) if isinstance(model, GMM) else model.state_dict()


def video(model: AnyModel, y: Tensor = Y, phi: CodedOperator = PHI) -> Tensor:
    with torch.no_grad():
        return model(y, phi).x


@each
def test_what_is_saved_is_what_is_loaded(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    path = save(tmp_path / "model.safetensors", model)
    loaded = load(path)
    assert type(loaded) is type(model)
    assert describe(loaded) == describe(model) == description(path)
    assert not getattr(loaded, "training", False)
    assert weights_of(loaded).keys() == weights_of(model).keys()
    assert all(torch.equal(weights_of(loaded)[key], value) for key, value in weights_of(model).items())
    if isinstance(model, nn.Module):
        model.eval()
        assert not torch.equal(video(build(description(path))), video(model)), "the weights decide something"
    assert torch.equal(video(loaded), video(model))


_ALONE = """
import sys
import numpy as np
import torch
torch.set_num_threads(1)
from unsnap.models import load
from unsnap.operators import Snapshot
y, masks = (torch.from_numpy(np.load(path)) for path in sys.argv[1:3])
for path in sys.argv[3:]:
    with torch.no_grad():
        np.save(path + ".npy", load(path)(y, Snapshot(masks)).x.numpy())
assert "unsnap.methods" not in sys.modules
assert "unsnap.zoo" not in sys.modules
"""


def test_a_file_needs_no_list_of_methods_to_give_the_same_video(tmp_path: Path) -> None:
    """In a process that has never heard of methods: whatever happens to that list, these models stay what they are."""
    models = {name: make() for name, make in MODELS.items()}
    paths = [save(tmp_path / f"{k}.safetensors", model) for k, model in enumerate(models.values())]
    arrays = [tmp_path / "y.npy", tmp_path / "masks.npy"]
    for path, tensor in zip(arrays, (Y, PHI.masks), strict=True):
        np.save(path, tensor.numpy())
    done = subprocess.run([sys.executable, "-c", _ALONE, *arrays, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for (name, model), path in zip(models.items(), paths, strict=True):
        if isinstance(model, nn.Module):
            model.eval()
        assert torch.equal(torch.from_numpy(np.load(f"{path}.npy")), video(model)), name


def test_learned_sigmas_survive_as_weights(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for learned in (True, False):
        level = torch.tensor(0.37)
        one = load(save(path, equilibrium("ffdnet", sigma=nn.Parameter(level) if learned else level)))
        assert float(torch.as_tensor(one.sigma).detach()) == float(level)
        assert isinstance(one.sigma, nn.Parameter) == learned
        several = load(save(path, Unfolded(GAP(), made("ffdnet"), [0.3, 0.1], learn_sigmas=learned)))
        assert several.sigmas.requires_grad == learned
        assert several.sigmas.tolist() == torch.tensor([0.3, 0.1]).tolist()


def test_a_sigma_that_training_made_negative_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    assert load(save(path, equilibrium(sigma=nn.Parameter(torch.tensor(-0.5))))).sigma.item() == -0.5
    assert load(save(path, Unfolded(GAP(), made("cnn"), [-0.5], learn_sigmas=True))).sigmas.tolist() == [-0.5]


@pytest.mark.parametrize("solver", [picard(0.5), anderson(3, 0.8, 1e-6, 0.9, torch.float16), broyden(4)], ids=str)
@pytest.mark.parametrize("iteration", [GAP(), AcceleratedGAP(), PGD(0.7), GD(0.6), ADMM(0.4), Recurrent()], ids=str)
def test_every_setting_survives(solver: Any, iteration: Iteration, tmp_path: Path) -> None:
    start = TotalVariation(0.07, 5, 0.3, True, 3)
    model = Equilibrium(
        iteration,
        made("rnn" if iteration.whole else "cnn"),
        0.25,
        start=start,
        solver=solver,
        tol=3e-3,
        max_iter=17,
        about={"epoch": 7},
    )
    again = load(save(tmp_path / "m.safetensors", model))
    for name in ("iteration", "sigma", "start", "solver", "tol", "max_iter", "about"):
        assert getattr(again, name) == getattr(model, name), name


def test_weights_of_another_precision_are_taken(tmp_path: Path) -> None:
    again = load(save(tmp_path / "m.safetensors", equilibrium("cnn").half()))
    assert {p.dtype for p in again.parameters()} == {torch.float32}
    whole = equilibrium("cnn").half().float()
    assert all(torch.equal(p, q) for p, q in zip(again.parameters(), whole.parameters(), strict=True))


# ---------------------------------------------------------------------- what cannot be saved


class Mine(nn.Module):
    def __init__(self, channels: int = 2, scale: Any = 1) -> None:
        super().__init__()
        self.conv, self.settings = nn.Conv2d(1, channels, 1), {"channels": channels, "scale": scale}

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        return x + self.conv.weight.mean()


def having(settings: Any) -> Mine:
    net = Mine(3)
    net.settings = settings
    return net


@dataclass(frozen=True)
class Nearer(LowRank):
    """A start of one's own that nobody knows the name of."""


def namesake() -> Any:
    """Another start under a class name that is ours."""
    kind = type("Adjoint", (), {"__call__": lambda self, y, phi: 0 * phi.A_adjoint(y)})
    return dataclass(frozen=True)(kind)()


HOPELESS: dict[str, tuple[Callable[[], Any], str]] = {
    "function": (lambda: equilibrium_of(lambda x, sigma: x), r"@unsnap\.networks\.NETWORKS\.named"),
    "module": (lambda: equilibrium_of(nn.Identity()), "Identity is not a registered network"),
    "stage": (lambda: Unfolded(GAP(), [made("cnn"), nn.Identity()], [0.2, 0.1]), "Identity is not a registered"),
    "settings of other weights": (lambda: equilibrium_of(having({"channels": 2})), "has other weights than this one"),
    "settings of another name": (lambda: equilibrium_of(having({"depth": 3})), "no setting 'depth'.*set it to the"),
    "settings missing": (lambda: equilibrium_of(having({})), "other weights.*set it to the constructor's arguments"),
    "settings of no kind": (lambda: equilibrium_of(having(None)), "cannot be built again from its attribute"),
    "start": (lambda: equilibrium("cnn", start=lambda y, phi: phi.A_adjoint(y)), "registered value: least_squares"),
    "start of another class": (lambda: equilibrium("cnn", start=Nearer()), "registered value: least_squares"),
    "solver": (lambda: equilibrium("cnn", solver=Mapped()), "registered value: anderson"),
    "sigmas": (lambda: equilibrium("cnn", sigma=torch.tensor([0.1, 0.2])), r"sigma of shape \(2,\) cannot be saved"),
    "another model": (lambda: made("cnn"), "CNN is no kind of model"),
}
UNSAVED: dict[str, tuple[Callable[[], Any], str]] = {
    "start of our name": (lambda: equilibrium("cnn", start=namesake()), "registered value: least_squares"),
    "about": (lambda: equilibrium("cnn", about={"when": object()}), "about"),
    "settings": (lambda: equilibrium_of(having({"channels": 3, "scale": object()})), "settings"),
    "tolerance": (lambda: equilibrium("cnn", tol=float("inf")), "tol must be"),
    "iterations": (lambda: equilibrium("cnn", max_iter=5.0), "max_iter must be.*; make it with other values"),
    "weights": (lambda: broken(equilibrium("cnn")), "NaN or Inf"),
    "one module twice": (lambda: Unfolded(GAP(), [made("cnn")] * 2, [0.2, 0.1]), "share"),
    "mixture": (lambda: GMM(mixture().mixture, about={"when": object()}), "about"),
}


def equilibrium_of(net: Any) -> Equilibrium:
    return Equilibrium(GAP(), net)


class Mapped:
    """A solver that nobody knows."""

    def start(self) -> Any:
        return picard().start()


def broken(model: Equilibrium) -> Equilibrium:
    next(model.parameters()).data.fill_(torch.nan)
    return model


def not_saved(model: Any, message: str, folder: Path) -> None:
    """In one sentence, and the file that was there stays."""
    path = save(folder / "m.safetensors", equilibrium("cnn"))
    before = path.read_bytes()
    with pytest.raises(InputError, match=message) as caught:
        save(path, model)
    assert ";" in str(caught.value)
    assert path.read_bytes() == before
    assert [p.name for p in folder.iterdir()] == ["m.safetensors"]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "mine", Mine)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("case", HOPELESS)
def test_what_nobody_could_load_is_refused_when_it_is_saved(case: str, tmp_path: Path) -> None:
    not_saved(HOPELESS[case][0](), HOPELESS[case][1], tmp_path)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("case", UNSAVED)
def test_so_is_what_json_or_load_would_refuse(case: str, tmp_path: Path) -> None:
    not_saved(UNSAVED[case][0](), UNSAVED[case][1], tmp_path)


def test_a_network_of_ones_own_is_saved_once_it_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, model = tmp_path / "m.safetensors", equilibrium_of(Mine(3))
    with pytest.raises(InputError, match="not a registered network"):
        save(path, model)
    monkeypatch.setitem(NETWORKS, "mine", Mine)
    monkeypatch.setitem(STARTS, "nearer", Nearer)
    model.start = Nearer(iterations=2)
    again = load(save(path, model))
    assert again.start == Nearer(iterations=2)
    assert torch.equal(again.network.conv.weight, model.network.conv.weight)
    monkeypatch.delitem(NETWORKS, "mine")
    refused(path, "network 'mine' is not known.*--plugin")


def test_the_name_of_the_file_must_say_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"m\.pth must end in \.safetensors"):
        save(tmp_path / "m.pth", equilibrium("cnn"))
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------- hostile files

# name -> (changes to the description in the metadata, words of the sentence)
DESCRIPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "oracle"}, "kind must be one of equilibrium, unfolded, mixture, got 'oracle'"),
    "kind of no name": ({"kind": ["mixture"]}, "kind must be one of"),
    "network": ({"network": {"name": "resnet", "settings": {}}}, "network 'resnet' is not known; did you mean"),
    "network of no name": ({"network": ["cnn"]}, "cannot be used"),
    "setting": ({"network": {"name": "cnn", "settings": {"depth": 3}}}, "no setting 'depth'"),
    "setting's value": (
        {"network": {"name": "certified", "settings": {"blocks": 0}}},
        "must be a whole number from 1 to 500",
    ),
    "settings": ({"network": {"name": "cnn", "settings": None}}, "cannot be used"),
    "memory": ({"network": {"name": "cnn", "settings": {"layers": 2, "channels": 10**12}}}, "cannot be used"),
    "iteration": ({"iteration": {"name": "sgd"}}, "iteration 'sgd' is not known; did you mean gd"),
    "iteration's number": ({"iteration": {"name": "pgd", "alpha": 0}}, "alpha must be a number above 0, got 0"),
    "iteration of no number": ({"iteration": {"name": "pgd", "alpha": "much"}}, "alpha must be a number above 0"),
    "iteration's other number": ({"iteration": {"name": "gap", "alpha": 1}}, "alpha"),
    "start": ({"start": {"name": "anywhere"}}, "start 'anywhere' is not known; did you mean"),
    "start of format 1": ({"start": "guess"}, "cannot be used"),
    "start's number": ({"start": {"name": "low_rank", "depth": 3}}, "depth"),
    "solver": ({"solver": {"name": "newton"}}, "one of anderson, broyden, picard, got 'newton'"),
    "solver of no name": ({"solver": {}}, "one of anderson, broyden, picard, got None"),
    "solver's option": ({"solver": {"name": "picard", "memory": 3}}, "memory"),
    "solver's value": ({"solver": {"name": "picard", "damping": -7}}, "damping"),
    "solver's type": ({"solver": {"name": "anderson", "history": "int8"}}, "floating-point dtype"),
    "solver's module": ({"solver": {"name": "anderson", "history": "nn"}}, "cannot be used"),
    "sigma": ({"sigma": [0.2, 0.1]}, r"sigma must be a number of at least 0, got \[0.2, 0.1\]"),
    "learned sigma": ({"learned_sigma": True}, "sigma"),
    "tolerance": ({"tol": -1}, "tol must be a number from 0 to 1, got -1"),
    "iterations": ({"max_iter": 0}, "max_iter must be a whole number from 1 to 1000000, got 0"),
    "about": ({"about": "me"}, "about must be a dictionary"),
    "more": ({"colour": "blue"}, "colour"),
}
UNCHECKED: dict[str, tuple[dict[str, Any], str]] = {
    "patch": ({"start": {"name": "low_rank", "patch": "ten"}}, "patch"),
    "no patch": ({"start": {"name": "low_rank", "patch": 0}}, "patch"),
    "iterations": ({"start": {"name": "total_variation", "iterations": -1}}, "iterations"),
    "weight": ({"start": {"name": "total_variation", "weight": None}}, "weight"),
    "history": ({"solver": {"name": "anderson", "history": "float77"}}, "float77"),
    "half a point": ({"solver": {"name": "anderson", "memory": 2.5}}, "memory"),
    "step": ({"iteration": {"name": "pgd", "alpha": float("inf")}}, "alpha"),
    "whole": ({"iteration": {"name": "recurrent"}}, "whole iteration"),
}
MIXTURES: dict[str, tuple[dict[str, Any], str]] = {
    "stride": ({"stride": 0}, "stride"),
    "noise": ({"noise": -1}, "noise"),
    "updates": ({"updates": "many"}, "updates"),
    "about": ({"about": "me"}, "about"),
}


def written(
    folder: Path, facts: Any, weights: dict[str, Tensor] | None = None, metadata: dict[str, str] | None = None
) -> Path:
    """A file with this description and (by default) the weights of an equilibrium of cnn."""
    file = folder / "bad.safetensors"
    text = facts if isinstance(facts, str) else json.dumps(facts)
    weights = equilibrium("cnn").state_dict() if weights is None else weights
    save_file(weights, file, {"unsnap_model": "2", "model": text} if metadata is None else metadata)
    return file


def refused(path: Path, message: str = "") -> str:
    with pytest.raises(InputError, match=message) as caught:
        load(path)
    sentence = str(caught.value)
    assert path.name in sentence
    assert "\n" not in sentence
    assert ";" in sentence or "must" in sentence  # the remedy
    with pytest.raises(InputError, match=path.name):
        methods.get(str(path))
    return sentence


@pytest.mark.parametrize("case", DESCRIPTIONS)
def test_descriptions_nobody_can_build(case: str, tmp_path: Path) -> None:
    changes, message = DESCRIPTIONS[case]
    refused(written(tmp_path, {**describe(equilibrium("cnn")), **changes}), message)


@pytest.mark.parametrize("case", UNCHECKED)
def test_numbers_that_make_no_sense(case: str, tmp_path: Path) -> None:
    changes, message = UNCHECKED[case]
    refused(written(tmp_path, {**describe(equilibrium("cnn")), **changes}), message)


@pytest.mark.parametrize("case", MIXTURES)
def test_mixtures_that_make_no_sense(case: str, tmp_path: Path) -> None:
    changes, message = MIXTURES[case]
    refused(written(tmp_path, {**describe(mixture()), **changes}, vars(mixture().mixture)), message)


def test_a_mixture_of_complex_numbers(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    weights = {**vars(mixture().mixture), "means": mixture().mixture.means.to(torch.complex64)}
    refused(written(tmp_path, describe(mixture()), weights), "not a real number")
    assert not recwarn.list


@pytest.mark.parametrize(
    "changes",
    [{"sigmas": []}, {"sigmas": "ab"}, {"sigmas": None}, {"sigmas": [-1, 2]}, {"networks": []}, {"networks": {}}],
    ids=str,
)
def test_stages_that_make_no_sense(changes: dict[str, Any], tmp_path: Path) -> None:
    model = Unfolded(GAP(), made("cnn"), [0.2, 0.1])
    refused(written(tmp_path, {**describe(model), **changes}, model.state_dict()), "cannot be used")


@pytest.mark.parametrize("key", ["kind", "iteration", "network", "sigma", "start", "solver", "tol", "max_iter"])
def test_descriptions_with_a_gap(key: str, tmp_path: Path) -> None:
    facts = describe(equilibrium("cnn"))
    del facts[key]
    refused(written(tmp_path, facts), f"cannot be used.*{key}")


@pytest.mark.parametrize("text", ["", "not json", "null", "[1, 2]", "{}", '"text"', "{", '[["kind", "mixture"]]'])
def test_descriptions_of_no_shape(text: str, tmp_path: Path) -> None:
    refused(written(tmp_path, text), r"cannot be used|do not fit")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"kind": ' * 9_000 + "1" + "}" * 9_000], ids=["open", "closed"])
def test_descriptions_without_a_bottom(text: str, tmp_path: Path) -> None:
    refused(written(tmp_path, text), "cannot be used")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"format": "pt"}, r"not an unsnap model of format 1 or 2 \(format found: none\)"),
        ({"unsnap_model": "3", "model": "{}"}, "format found: 3"),
        ({"unsnap_model": "2"}, "settings that cannot be used"),
        ({"unsnap_model": "2", "recipe": "{}"}, "settings that cannot be used"),
        ({"unsnap_model": "1"}, "settings that cannot be used"),
        ({"unsnap_model": "1", "recipe": "[1, 2]"}, "settings that cannot be used"),
        ({"unsnap_model": "1", "recipe": "{}"}, "settings that cannot be used"),
        ({"unsnap_mixture": "1", "about": "[1]"}, "about must be a dictionary"),
        ({"unsnap_mixture": "7"}, "not an unsnap model"),
    ],
    ids=str,
)
def test_metadata_of_others(metadata: dict[str, str], message: str, tmp_path: Path) -> None:
    refused(written(tmp_path, "", metadata=metadata), message)


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    facts, good = describe(equilibrium()), equilibrium().state_dict()
    key = "network.space.0.weight"
    wrong = {
        "size mismatch": {**good, key: good[key][:, :2].contiguous()},
        f"Missing key.*{key}": {k: v for k, v in good.items() if k != key},
        "Unexpected key.*extra": {**good, "extra": torch.ones(2)},
        f"{key} holds NaN or Inf": {**good, key: good[key] * torch.nan},
    }
    for message, weights in wrong.items():
        assert "again" in refused(written(tmp_path, facts, weights), message)


def test_weights_of_a_type_nobody_reckons_in(tmp_path: Path) -> None:
    tiny = {key: value.to(torch.float8_e4m3fn) for key, value in equilibrium("cnn").state_dict().items()}
    refused(written(tmp_path, describe(equilibrium("cnn")), tiny), "float8")


def test_damaged_files(tmp_path: Path) -> None:
    path = save(tmp_path / "model.safetensors", equilibrium("cnn"))
    whole = path.read_bytes()
    for cut in (0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        refused(path, "not a readable safetensors file")
    for junk in (b"hello\n" * 99, b"PK\x03\x04" + bytes(200), b"\xff" * 64):
        path.write_bytes(junk)
        refused(path, "not a readable safetensors file")
    path.write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")  # a file of nothing
    refused(path, "not an unsnap model")
    refused(tmp_path / "absent.safetensors", "absent.safetensors does not exist")
    (tmp_path / "folder.safetensors").mkdir()
    refused(tmp_path / "folder.safetensors", "is not a file")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_one_may_not_read(tmp_path: Path) -> None:
    path = save(tmp_path / "model.safetensors", equilibrium("cnn"))
    path.chmod(0)
    refused(path, "not a readable safetensors file")


# ---------------------------------------------------------------------- format 1, as unsnap 0.1 wrote it


def old_file(folder: Path, name: str, **changes: Any) -> Path:
    """All that `asdict(Recipe(...))` was, and the network's own weights."""
    recipe = {
        "network": name, "settings": SETTINGS[name], "step": "gap", "strength": 1.0, "sigma": 0.1,
        "solver": {"name": "anderson"}, "start": "least_squares", "tol": 1e-3, "max_iter": 5, "about": {"epoch": 7},
    } | changes  # fmt: skip
    net = made(name)
    if "context" in recipe["settings"]:
        net = network(name, changes.get("settings", SETTINGS[name]))
        recipe["settings"] = {("look" if k == "context" else k): v for k, v in recipe["settings"].items()}
    weights = {k.replace("context.", "look."): v for k, v in net.state_dict().items()}
    path = folder / "old.safetensors"
    save_file(
        {k: v.contiguous() for k, v in weights.items()}, path, {"unsnap_model": "1", "recipe": json.dumps(recipe)}
    )
    return path


@pytest.mark.parametrize(
    ("step", "iteration"),
    [("gap", GAP()), ("pgd", PGD(0.7)), ("gd", GD(0.7)), ("admm", ADMM(0.7)), ("rnn", Recurrent())],
)
def test_old_steps(step: str, iteration: Iteration, tmp_path: Path) -> None:
    model = load(old_file(tmp_path, "rnn" if step == "rnn" else "cnn", step=step, strength=0.7))
    assert model.iteration == iteration
    assert (model.sigma, model.tol, model.max_iter, model.about) == (0.1, 1e-3, 5, {"epoch": 7})


WNNM = LowRank(10, 16, 8, 7, 60 / 255, 8 / 255, 16, 8, 0.2, 100, 4.0, 0.6, 30 / 255, 16, unseen="black")
"""What the method gap-wnnm was on the day the format was closed."""


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("least_squares", LeastSquares()),
        ("adjoint", Adjoint()),
        ("total_variation", TotalVariation(0.1, 40, 0.2, False, 4, unseen="black")),
        ("guess", WNNM),
    ],
)
def test_old_starts_are_frozen(name: str, start: Any, tmp_path: Path) -> None:
    """Every number of theirs is said, so that no default of a later day changes them."""
    path = old_file(tmp_path, "cnn", start=name)
    assert load(path).start == start
    assert {"name", *(f.name for f in fields(start))} == set(description(path)["start"])


@pytest.mark.parametrize("start", [TotalVariation(), LowRank(), Annealed()], ids=lambda start: type(start).__name__)
def test_a_file_that_does_not_say_what_the_unseen_is_has_it_black(start: Any) -> None:
    """As it was while files did not say it; what is saved now does."""
    facts = described(start, STARTS)
    assert facts.pop("unseen") == "filled"
    assert revived(facts, STARTS) == replace(start, unseen="black")


@pytest.mark.parametrize(
    ("name", "settings", "start"),
    [
        ("shift", {}, WNNM),
        ("shift", {"context": False}, LeastSquares()),
        ("unet", {}, WNNM),
        ("unet", {"context": False}, LeastSquares()),
        ("rnn", {}, WNNM),
        ("certified", {}, WNNM),
        ("certified", {"contraction": None}, LeastSquares()),
        ("cnn", {}, LeastSquares()),
    ],
)
def test_networks_that_guessed_for_themselves_are_given_the_guess(
    name: str, settings: dict[str, Any], start: Any, tmp_path: Path
) -> None:
    step = "rnn" if name == "rnn" else "gap"
    assert load(old_file(tmp_path, name, settings=SETTINGS[name] | settings, step=step)).start == start


@pytest.mark.parametrize(
    ("old", "solver"),
    [
        ({"name": "anderson"}, anderson(6, 1.0, 1e-8)),
        ({"name": "anderson", "memory": 5, "safeguard": 0.9}, anderson(6, 1.0, 1e-8, 0.9)),
        ({"name": "anderson", "memory": 2, "history": None}, anderson(3, 1.0, 1e-8)),
        ({"name": "broyden", "memory": 4}, broyden(4)),
        ({"name": "picard", "damping": 0.5}, picard(0.5)),
    ],
    ids=str,
)
def test_old_solvers(old: dict[str, Any], solver: Any, tmp_path: Path) -> None:
    """Anderson's memory counted differences of points then, and counts points now."""
    assert load(old_file(tmp_path, "cnn", solver=old)).solver == solver


@pytest.mark.parametrize("name", ["shift", "unet", "rnn", "certified", "cnn"])
def test_old_weights_give_the_video_of_todays_model(name: str, tmp_path: Path) -> None:
    """And saved again, in today's format, still do."""
    path = old_file(tmp_path, name, start="guess", step="rnn" if name == "rnn" else "gap")
    old = load(path)
    today = Equilibrium(Recurrent() if name == "rnn" else GAP(), made(name), 0.1, start=WNNM, tol=1e-3, max_iter=5)
    net = old.network
    assert today.network.state_dict().keys() == net.state_dict().keys()
    today.network.load_state_dict(net.state_dict())
    expected = video(old)
    assert torch.equal(video(today.eval()), expected)
    again = load(save(tmp_path / "new.safetensors", old))
    assert describe(again) == describe(old)
    assert torch.equal(video(again), expected)
    if name in ("shift", "unet"):
        from safetensors.torch import load_file

        assert torch.equal(load_file(path)["look.weight"], net.context.weight)


def test_a_short_old_recipe_had_defaults(tmp_path: Path) -> None:
    recipe = json.dumps({"network": "cnn", "settings": SETTINGS["cnn"]})
    model = load(written(tmp_path, "", made("cnn").state_dict(), {"unsnap_model": "1", "recipe": recipe}))
    assert (model.iteration, model.start, model.sigma) == (GAP(), LeastSquares(), 0.0)
    assert (model.solver, model.tol, model.max_iter, model.about) == (anderson(6), 1e-4, 100, {})


def test_old_mixtures(tmp_path: Path) -> None:
    own = mixture()
    tensors = {k: v.half() if k in ("means", "factors") else v for k, v in vars(own.mixture).items()}
    path = written(tmp_path, "", tensors, {"unsnap_mixture": "1", "about": json.dumps({"seed": 3})})
    old = load(path)
    assert isinstance(old, GMM)
    assert (old.stride, old.noise, old.updates, old.strength, old.about) == (3, 0.01, 0, 30.0, {"seed": 3})
    assert all(torch.equal(value, vars(own.mixture)[key]) for key, value in vars(old.mixture).items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "resnet"}, "network 'resnet' is not known"),
        ({"network": ["cnn"]}, "cannot be used"),
        ({"settings": {"depth": 3}}, "no setting 'depth'"),
        ({"settings": None}, "cannot be used"),
        ({"step": "sgd"}, "iteration 'sgd' is not known"),
        ({"step": ["gap"]}, "cannot be used"),
        ({"step": "pgd", "strength": 0}, "alpha must be a number above 0"),
        ({"step": "admm", "strength": "much"}, "rho must be a number above 0"),
        ({"start": "anywhere"}, "anywhere"),
        ({"start": {"name": "low_rank"}}, "cannot be used"),
        ({"solver": {"name": "newton"}}, "got 'newton'"),
        ({"solver": {}}, "got None"),
        ({"solver": None}, "cannot be used"),
        ({"solver": {"name": "anderson", "memory": "long"}}, "cannot be used"),
        ({"sigma": [0.2, 0.1]}, "sigma must be a number of at least 0"),
        ({"tol": -1}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"about": "me"}, "about must be a dictionary"),
    ],
    ids=str,
)
def test_hostile_old_recipes(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    good = {"network": "cnn", "settings": SETTINGS["cnn"]}
    metadata = {"unsnap_model": "1", "recipe": json.dumps(good | changes)}
    refused(written(tmp_path, "", made("cnn").state_dict(), metadata), message)


# ---------------------------------------------------------------------- a file as a method


def test_a_model_file_is_a_method(tmp_path: Path) -> None:
    path = save(tmp_path / "model.safetensors", equilibrium(max_iter=300, tol=1e-5, about={"source": "here"}))
    method = methods.get(str(path))
    assert (method.name, method.family, method.reference) == ("model", "equilibrium", "here")
    assert (method.iterations, method.tol, method.early) == (300, 1e-5, True)
    with torch.no_grad():
        expected = load(path)(Y, PHI)
    solution = reconstruct(Y, PHI.masks, path)
    assert bool(solution.converged.all())
    assert torch.equal(solution.x, expected.x)
    assert reconstruct(Y, PHI, path, tol=0.1).iterations < expected.iterations
    assert reconstruct(Y, PHI, path, iterations=2, tol=0.0).iterations == 2
    assert reconstruct(Y[0], PHI, path).x.shape == (3, 16, 16)


def test_an_unfolded_file_is_a_method_of_its_stages(tmp_path: Path) -> None:
    path = save(tmp_path / "stages.safetensors", MODELS["shared weights"]())
    method = methods.get(path)
    assert (method.name, method.family, method.iterations) == ("stages", "unfolded", 3)
    assert torch.equal(reconstruct(Y, PHI, path).x, video(load(path)))
    assert reconstruct(Y, PHI, path, iterations=2).iterations == 2
    with pytest.raises(InputError, match="3 stages, so 1 to 3 can be run, not 99"):
        reconstruct(Y, PHI, path, iterations=99)
    with pytest.raises(InputError, match="stages and no tolerance"):
        reconstruct(Y, PHI, path, tol=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_model_follows_the_snapshot_to_its_device(tmp_path: Path) -> None:
    method = methods.get(save(tmp_path / "model.safetensors", equilibrium(max_iter=300)))
    there = method(Y.cuda(), Snapshot(PHI.masks.cuda())).x
    assert there.device.type == "cuda"
    assert torch.allclose(there.cpu(), method(Y, PHI).x, atol=1e-3)


def test_a_model_of_snapshots_serves_several_shots(tmp_path: Path) -> None:
    """It does not need to be told: of the camera it asks only what every camera has."""
    two = Multishot(torch.stack([PHI.masks, 1 - PHI.masks]))
    model = equilibrium("shift", max_iter=300, tol=1e-6, start=TotalVariation())
    y = two.A(torch.rand(1, 3, 16, 16, generator=seeded(1)))
    solution = reconstruct(y, two, save(tmp_path / "model.safetensors", model))
    assert bool(solution.converged.all())


def test_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    huge = equilibrium("cnn")
    for parameter in huge.parameters():
        parameter.data = parameter.data.sign() * 1e38
    with pytest.raises(InputError, match=r"model cannot reconstruct this: .*NaN or infinite"):
        reconstruct(Y, PHI, save(tmp_path / "model.safetensors", huge))
    two = Multishot(torch.stack([PHI.masks, 1 - PHI.masks]))
    y, path = two.A(torch.rand(1, 3, 16, 16)), save(tmp_path / "mixture.safetensors", mixture())
    with pytest.raises(InputError, match="serves cameras of the kind Snapshot or RGB, not Multishot; use"):
        reconstruct(y, two, path)


def test_loading_changes_nobodys_random_numbers(tmp_path: Path) -> None:
    save(tmp_path / "m.safetensors", Equilibrium(GAP(), network("cnn", {"layers": 2, "channels": 3}), 0.05))
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    load(tmp_path / "m.safetensors")
    assert torch.equal(torch.rand(1), expected)


def test_unrolled_models_stay_so_and_take_no_nonsense(tmp_path: Path) -> None:
    path = save(tmp_path / "a.safetensors", MODELS["unrolled"]())
    loaded = load(path)
    assert isinstance(loaded, Equilibrium)
    assert loaded(Y, PHI).evaluations == 2
    with pytest.raises(ValueError, match="unroll"):
        build({**description(path), "unroll": 0})


class Whole(nn.Module):
    def forward(self, x: Tensor, y: Tensor, phi: CodedOperator) -> Tensor:
        return x


def test_a_whole_iteration_says_that_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "whole", Whole)
    facts = {**describe(equilibrium("rnn", max_iter=2)), "network": {"name": "whole", "settings": {}}}
    assert isinstance(build(facts), Equilibrium)
    with pytest.raises(InputError, match=r"'whole' is no denoiser.* iteration=recurrent"):
        build({**facts, "iteration": {"name": "gap"}})


def test_double_precision_of_a_part_is_that_of_all(tmp_path: Path) -> None:
    """Noise levels are made in single precision; as such they go with networks in double."""
    model, phi = Unfolded(GAP(), [made("cnn").double()], [0.1]), Snapshot(PHI.masks.double())
    loaded = load(save(tmp_path / "m.safetensors", model))
    assert torch.equal(video(loaded, Y.double(), phi), video(model, Y.double(), phi))
    with pytest.raises(InputError, match=r"weights of torch\.float64 .* do not go with a snapshot of torch\.float32"):
        model(Y, PHI)


def test_double_precision_comes_back(tmp_path: Path) -> None:
    model = equilibrium("ffdnet").double()
    loaded = load(save(tmp_path / "a.safetensors", model))
    phi = Snapshot(PHI.masks.double())
    assert torch.equal(video(loaded, Y.double(), phi), video(model, Y.double(), phi))


class Buffered(nn.Module):
    """One number of it is in double precision, whatever its weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {}
        self.mix = nn.Conv2d(1, 1, 1)
        self.register_buffer("scale", torch.tensor([1.0], dtype=torch.float64))

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        return self.mix(x.flatten(0, -3).unsqueeze(1)).reshape(x.shape) * float(self.scale)


def test_every_tensor_has_the_precision_that_it_was_saved_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "buffered", Buffered)
    model = Equilibrium(GAP(), Buffered(), 0.1, max_iter=2)
    loaded = load(save(tmp_path / "a.safetensors", model))
    assert {k: v.dtype for k, v in loaded.state_dict().items()} == {k: v.dtype for k, v in model.state_dict().items()}
    assert torch.equal(video(loaded), video(model))


@pytest.mark.parametrize(
    ("recipe", "start", "settings"),
    [
        ({"network": "shift"}, "low_rank", {}),  # which then computed that video itself
        ({"network": "shift", "settings": {"look": False}}, "least_squares", {"context": False}),
        ({"network": "unet", "settings": {"context": False}, "start": "adjoint"}, "adjoint", {"context": False}),
        ({"network": "rnn", "start": "adjoint"}, "low_rank", {}),
        ({"network": "certified"}, "low_rank", {"bound": "row_sums"}),  # there was no other bound
        (
            {"network": "certified", "settings": {"contraction": None}, "start": "total_variation"},
            "total_variation",
            {"contraction": None, "bound": "row_sums"},
        ),
    ],
)
def test_what_an_old_file_leaves_out_is_what_it_meant_then(
    recipe: dict[str, Any], start: str, settings: dict[str, Any]
) -> None:
    found = from_format_1({"unsnap_model": "1", "recipe": json.dumps(recipe)}, {})[0]
    assert (found["start"]["name"], found["network"]["settings"]) == (start, settings)
