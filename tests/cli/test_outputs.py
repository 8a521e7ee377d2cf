"""The rule for outputs, in every command: nothing that exists is replaced unasked, an input or a device never."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from disk import largest_file
from networks.test_published_weights import IPOL, normed_state
from unsnap.algorithms import GAP
from unsnap.calibration import Camera
from unsnap.cli import calibrate, demo, work
from unsnap.io import save_video, sha256
from unsnap.io.lock import file_lock, folder_lock
from unsnap.models import Equilibrium, save
from unsnap.models import export as exporting
from unsnap.networks import CNN
from unsnap.training import Config
from unsnap.training.checkpoint import load_checkpoint

FAST = ["--iterations", 2, "--tol", 1]
FEW = ["--set", "settings.components=2", "--set", "settings.patches=50", "--set", "settings.rank=2"]
SET = ["settings.layers=2", "settings.channels=4", "batch=2", "crop=16", "frames=[4]", "pool=2", "start=least_squares"]
TRAIN = ["train", "CLIPS", "--network", "cnn", *[word for change in SET for word in ("--set", change)]]

# command -> the output that it is told to write (a folder if it ends in /)
COMMANDS: dict[str, tuple[list[object], str]] = {
    "reconstruct": (["reconstruct", "scene.mat", "-m", "gap-tv", *FAST, "-o"], "video.npz"),
    "reconstruct frames": (["reconstruct", "scene.mat", "-m", "gap-tv", *FAST, "-o"], "frames/"),
    "simulate": (["simulate", "--size", "16x16", "-T", 2, "-o"], "new.mat"),
    "import": (["import", "ffdnet.pth", "-o"], "model.safetensors"),
    "certify": (["certify", "m.safetensors", "--crop", 16, "--iterations", 2, "-o"], "plot.png"),
    "adapt": (["adapt", "scene.mat", "--model", "m.safetensors", "--steps", 1, "-o"], "adapted.safetensors"),
    "calibrate": (["calibrate", "scene.mat", "-o"], "camera.npz"),
    "export": (["export", "m.safetensors", "--part", "network", "-T", 2, "-o"], "net.onnx"),
    "compare": (["compare", "scene.mat", "--methods", "gap-tv", *FAST, "-o"], "compared/"),
    "bench": (["bench", "scene.mat", "--methods", "gap-tv", *FAST, "-o"], "measured/"),
    "demo": (["demo", "-o"], "demo/"),
    "train": ([*TRAIN, "--steps", 1, "-o"], "run/checkpoint.pt"),
    "train pack": (["train", "--resume", "begun", "--pack"], "small.pt"),
    "train gmm": (["train", "CLIPS", "--model", "gmm", "--steps", 1, *FEW, "-o"], "mixture/best.safetensors"),
}
INSIDE = {"frames/": "frame_0001.png", "compared/": "report.html", "measured/": "results.csv", "demo/": "scene.mat"}


@pytest.fixture(scope="module")
def traced_once() -> Callable[..., object]:
    """torch's exporter, asked once: the graph of m.safetensors is always the same."""
    graphs, real = [], exporting._traced

    def traced(*given: object) -> object:
        graphs.append(graphs[0] if graphs else real(*given))
        return graphs[0]

    return traced


@pytest.fixture
def here(
    unsnap: Callable, scene: Path, clips: Path, traced_once: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., object]:
    """A folder with all that the commands need; runs one of them, by default with its own output."""
    from unsnap.training import adapt

    monkeypatch.setattr(adapt, "counts", lambda *gains: True)  # anything helps, so that it is written
    monkeypatch.setattr(adapt, "_FORGOTTEN", 100.0)
    monkeypatch.setattr(calibrate, "calibrate", lambda scene, **told: Camera(shift=(1.0, 0.0), changed=True))  # at once
    monkeypatch.setattr(exporting, "_traced", traced_once)
    monkeypatch.setattr(demo, "_SIZE", 32)
    monkeypatch.setattr(demo, "_METHODS", ("gap-tv",))
    torch.manual_seed(0)
    save("m.safetensors", Equilibrium(GAP(), CNN(2, 4), tol=0.5, max_iter=3))
    (tmp_path / "begun").mkdir()
    torch.save({"unsnap_checkpoint": 1, "optimizer": {"state": {}}, "config": ""}, "begun/checkpoint.pt")
    torch.save(normed_state(IPOL, [5, 4, 4, 4]), "ffdnet.pth")

    def run(name: str, *options: object, output: str | None = None) -> object:
        arguments, own = COMMANDS[name]
        where = output or (str(Path(own).parent) if own.startswith(("run/", "mixture/")) else own)
        return unsnap(*[clips if a == "CLIPS" else a for a in arguments], where, *options)

    return run


def everything() -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}


def occupied(output: str) -> Path:
    path = Path(output) / INSIDE[output] if output.endswith("/") else Path(output)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"cannot be made again")
    return path


@pytest.mark.parametrize("name", COMMANDS)
def test_what_exists_is_kept_unless_forced(here: Callable, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = occupied(COMMANDS[name][1])
    before = everything()
    refused = here(name)
    assert refused.code == 2, refused.out + refused.err
    assert refused.err.startswith("Error: ")
    assert refused.err.count("\n") == 1
    assert "--force" in refused.err
    assert everything() == before

    with largest_file(400):  # every write fails, as on a full disk
        failed = here(name, "--force", "-q")
    assert failed.code == 2, failed.out + failed.err
    assert "cannot be written" in failed.err
    assert failed.err.count("\n") == 1
    assert everything() == before

    done = here(name, "--force")
    assert done.code in (0, 3), done.out + done.err
    assert not path.exists() or path.read_bytes() != before[path]
    assert not list(Path().rglob(".unsnap*"))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_disk_fills_up_at_any_write(here: Callable, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that a command writes is once the one that does not fit (all commands: UNSNAP_EVERY_WRITE=1)."""
    if name not in ("bench", "train", "reconstruct frames") and not os.environ.get("UNSNAP_EVERY_WRITE"):
        pytest.skip("takes long")
    own, sizes, real = Path(COMMANDS[name][1]), set(), os.fsync

    def fsync(file: int) -> None:
        info = os.fstat(file)
        if stat.S_ISREG(info.st_mode):
            sizes.add(info.st_size)
        real(file)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        assert here(name, "-q").code in (0, 3)
    assert sizes
    for size in sorted(sizes):
        shutil.rmtree(own.parts[0]) if Path(own.parts[0]).is_dir() else own.unlink(missing_ok=True)
        before = {} if name == "train" else everything() | {occupied(COMMANDS[name][1]): b"cannot be made again"}
        with largest_file(8 * size // 10):  # tables and pictures of times vary a little
            failed = here(name, "--force", "-q")
        assert failed.code == 2, (size, failed.out + failed.err)
        assert failed.err.count("\n") == 1
        assert "cannot be written" in failed.err
        assert not list(Path().rglob(".unsnap*"))
        assert everything().items() >= before.items()
        if name != "train":
            assert everything() == before
        elif Path("run/checkpoint.pt").exists():
            assert load_checkpoint(Path("run/checkpoint.pt"))["step"] == 1


FORCED: dict[str, tuple[str, str, str]] = {
    "the scene": ("reconstruct", "scene.mat", "scene.mat"),
    "a link to the scene": ("reconstruct", "scene.mat", "link.mat"),
    "another name of the scene": ("reconstruct", "scene.mat", "hard.mat"),
    "the source": ("import", "ffdnet.pth", "hard.safetensors"),
    "the model": ("adapt", "m.safetensors", "m.safetensors"),
    "the model by another name": ("certify", "m.safetensors", "hard.png"),
    "the checkpoint": ("train pack", "begun/checkpoint.pt", "hard.pt"),
    "the folder that holds the scene": ("compare", "scene.mat", "compared/"),
    "the folder that holds one of the scenes": ("bench", "scene.mat", "measured/"),
}


@pytest.mark.parametrize("case", FORCED)
def test_an_input_is_never_replaced(here: Callable, case: str) -> None:
    name, source, output = FORCED[case]
    if output.startswith("link"):
        Path(output).symlink_to(source)
    elif output.startswith("hard"):
        os.link(source, output)
    elif output.endswith("/"):
        os.link(source, occupied(output).with_name("results.json"))
    before = everything()
    refused = here(name, "--force", output=output)
    assert refused.code == 2
    assert "an input of this command" in refused.err
    assert everything() == before


def test_masks_videos_members_and_configs_are_inputs(
    unsnap: Callable, here: Callable, scene: Path, clips: Path
) -> None:
    shutil.copy(scene, "masks.mat")
    save_video("clip.mat", torch.rand(4, 16, 16))
    save_video("pictures/", torch.rand(4, 16, 16))
    Path("run").mkdir()
    Path("run/config.json").write_text(Config(steps=1).to_json())
    shutil.copy("m.safetensors", "run/best.safetensors")
    before = everything()
    for command in (
        ["reconstruct", scene, "--masks", "masks.mat", "-o", "masks.mat"],
        ["reconstruct", scene, "-m", "gap-tv", "--masks", "pictures", "-o", "pictures"],
        ["simulate", "clip.mat", "-T", 4, "-o", "clip.mat"],
        ["simulate", "pictures", "-T", 4, "-o", "pictures/frame_0001.npz"],
        ["certify", "m.safetensors", "pictures", "-o", "pictures/frame_0001.png"],
        ["train", "--config", "run/config.json", "-o", "run"],
        ["train", clips, "--init", "run/best.safetensors", "--steps", 1, "-o", "run"],
    ):
        os.link("pictures/frame_0001.png", "pictures/frame_0001.npz")
        refused = unsnap(*command, "--force")
        Path("pictures/frame_0001.npz").unlink()
        assert refused.code == 2, command
        assert "an input of this command" in refused.err, refused.err
        assert everything() == before


@pytest.mark.parametrize("name", [name for name, (_, output) in COMMANDS.items() if output[-1] != "/"])
def test_what_is_no_file_is_never_replaced(here: Callable, name: str) -> None:
    output = Path(COMMANDS[name][1])
    output.parent.mkdir(exist_ok=True)
    os.mkfifo(output)
    refused = here(name, "--force")
    assert refused.code == 2
    assert "device, FIFO or socket" in refused.err
    assert stat.S_ISFIFO(output.lstat().st_mode)


@pytest.mark.parametrize("name", ["reconstruct frames", "compare", "bench", "demo"])
def test_a_foreign_file_in_a_folder_is_never_lost(here: Callable, name: str) -> None:
    occupied(COMMANDS[name][1]).with_name("thesis.tex").write_text("mine")
    before = everything()
    refused = here(name, "--force")
    assert refused.code == 2
    assert "holds thesis.tex" in refused.err
    assert everything() == before


@pytest.mark.parametrize("name", ["reconstruct", "reconstruct frames"])
def test_what_appears_during_the_work_is_kept(here: Callable, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, written = work.run_with_bar, []

    def slow(*args: object) -> object:
        written.append(occupied(COMMANDS[name][1]))
        return usual(*args)

    monkeypatch.setattr(work, "run_with_bar", slow)
    refused = here(name)
    assert refused.code == 2
    assert "exists" in refused.err
    assert written[0].read_bytes() == b"cannot be made again"
    assert not list(Path().rglob(".unsnap*"))


def test_a_method_may_be_called_like_its_output(here: Callable) -> None:
    for options in ((), ("--force",)):
        assert here("bench", *options, output="gap-tv").code == 0


def test_the_name_for_what_did_not_converge_obeys_too(here: Callable) -> None:
    Path("video-unconverged.npz").write_bytes(b"earlier")
    assert "video-unconverged.npz exists" in here("reconstruct").err
    assert not Path("video.npz").exists()


def test_two_scenes_of_one_name_keep_their_own_digest(unsnap: Callable, scene: Path, arrays: dict) -> None:
    Path("a").mkdir()
    np.savez("a/scene.npz", mask=arrays["mask"].transpose(2, 0, 1), meas=arrays["meas"].transpose(2, 0, 1))
    run = unsnap("bench", "scene.mat", "a/scene.npz", "--methods", "gap-tv", *FAST, "-o", "out", "--json")
    stored = json.loads(Path("out/results.json").read_text())["scenes"]
    assert stored == {"scene.mat": sha256("scene.mat"), "a/scene.npz": sha256("a/scene.npz")}
    assert [row["input_sha256"] for row in run.json()] == list(stored.values())


def test_what_was_measured_is_told_even_if_the_rest_fails(here: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    with largest_file(400):
        failed = here("bench", "--json", "-q")
    assert failed.code == 2
    assert [row["method"] for row in failed.json()] == ["gap-tv"]
    assert not Path("measured").exists()


@pytest.mark.parametrize("name", ["train", "train gmm", "adapt"])
def test_a_second_one_is_refused_while_the_first_lives_and_takes_over_from_the_dead(here: Callable, name: str) -> None:
    target = Path(COMMANDS[name][1])
    lock = file_lock(target) if name == "adapt" else folder_lock(target.parent)
    lock.parent.mkdir(exist_ok=True)
    words = {"pid": 4711, "began": "1", "host": "elsewhere", "since": "yesterday"}
    with lock.open("w") as held:
        json.dump(words, held)
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        before = everything()
        refused = here(name)
        assert refused.code == 2
        assert "in use by process 4711 on elsewhere (since yesterday)" in refused.err
        assert refused.err.count("\n") == 1
        assert everything() == before
    done = here(name)
    assert done.code == 0, done.err
    assert "was left by process 4711 on elsewhere" in done.err
    assert target.exists()
    assert not lock.exists()
