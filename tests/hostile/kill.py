"""kill -9 at many moments of `train` and `reconstruct`, and what the next command makes of it.

    python tests/hostile/kill.py --moments 200

Half of the moments are random, the others lie provably inside a write (`pause.py`). After each: whatever stands under
its own name is whole, old or new; the next command ends as if nothing had happened (a run bit for bit), and leaves
nothing stray. Then signals that ask for an end, inside a write: the exit code is the signal's, and nothing stays.
Prints a table, and leaves with 1 if anything was otherwise.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unsnap.cli import main
from unsnap.cli.app import app  # noqa: F401 (loaded once, for all processes that are forked)
from unsnap.io import save_scene, save_video
from unsnap.masks import bernoulli
from unsnap.simulate import render, simulate
from unsnap.training import Config, trainer, validate
from unsnap.training.checkpoint import load_checkpoint

PLUGIN = Path(__file__).with_name("pause.py")
# Imported when first used; here they are, once for all processes that are forked.
LATE = ("torch._dynamo", "typer._adapters", "scipy.io", "numba", "av", "tifffile", "PIL.Image", "unsnap.kernels.tv")
RUN = ("checkpoint.pt", "best.safetensors", "last.safetensors", "log.jsonl", "config.json")
ENDED = "ended before"
VIDEOS = ("v.npz", "v.mp4", "v.tif", "frames/")


def start(
    arguments: list[str], pause: str | None = None, *, begin: Callable[[], object] = lambda: None, said: str = ""
) -> int:
    """A process that runs `unsnap ARGUMENTS`; said: the file that gets its stderr."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        begin()
        if said:
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
        if pause is not None:
            os.environ["PAUSE"] = pause
            arguments = [*arguments, "--plugin", str(PLUGIN)]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        sys.argv = ["unsnap", *arguments]
        main()
        code = 0
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        os._exit(code)


def finish(arguments: list[str]) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(start(arguments), 0)[1])


def killed(arguments: list[str], moment: float | str) -> bool:
    """Run and kill it after so many seconds, or at a place; False: it had ended before."""
    mark = Path("mark")
    mark.unlink(missing_ok=True)
    if isinstance(moment, str):
        pid = start(arguments, f"{moment} {mark.resolve()}")
        while not mark.exists() and os.waitpid(pid, os.WNOHANG) == (0, 0):
            time.sleep(0.002)
        if not mark.exists():
            return False
    else:
        pid = start(arguments)
        time.sleep(moment)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def content(path: Path) -> dict[str, bytes]:
    """Everything of the names that we give, by name."""
    files = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path] if path.exists() else []
    return {p.name: p.read_bytes() for p in files if not p.name.startswith(".")}


def strays(folder: Path) -> list[str]:
    return [str(p) for p in folder.rglob(".unsnap-*")]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return bool(torch.equal(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a if k not in ("elapsed", "worked", "reached"))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def logged(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's log, without the time they took."""
    lines = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return [{**line, "minutes": 0, "cpu_hours": 0} for line in lines]


class Training:
    """A run of a few steps with several checkpoints and validations."""

    def __init__(self) -> None:
        Path("clips").mkdir()
        for seed in range(2):
            frames = (render(8, 24, 24, seed=seed) * 255).byte().numpy()
            np.savez(Path("clips") / f"{seed}.npz", frames=frames)
        settings = {"layers": 2, "channels": 4}
        config = Config(
            network="cnn", settings=settings, clips="clips", start="least_squares", steps=6, batch=2, crop=16,
            frames=(4,), gaussian=0.1, blend=0.4, gaussian_share=0.0, pool=2, age=3, warmup=2, checkpoint_every=2,
            validate_every=3,
        )  # fmt: skip
        Path("config.json").write_text(config.to_json())
        self.new = ["train", "--config", "config.json", "-q", "-o"]
        began = time.monotonic()
        assert finish([*self.new, "whole"]) == 0
        self.seconds = time.monotonic() - began
        self.whole, self.log = load_checkpoint(Path("whole/checkpoint.pt")), logged(Path("whole"))

    def places(self) -> list[str]:
        inside = [f"{place} .pt {nth}" for place in ("write", "sync", "place", "placed") for nth in (1, 2, 4)]
        return [*inside, "write .safetensors 2", "sync .safetensors 3", "place .jsonl 1", "sync .json 1"]

    def moment(self, moment: float | str) -> tuple[str, list[str]]:
        """What was there after the kill, and what is wrong."""
        shutil.rmtree("run", ignore_errors=True)
        if not killed([*self.new, "run"], moment):
            return ENDED, []
        run, wrong = Path("run"), []
        left = len([name for name in strays(run) if "lock" not in name])
        begun = (run / "checkpoint.pt").exists()
        again = ["train", "--resume", "run", "-q"] if begun else [*self.new, "run", "--force"]
        state = load_checkpoint(run / "checkpoint.pt") if begun else {"step": 0}
        at_end = state["step"] == self.whole["step"]  # then it is compared as it is, and a further step sweeps
        code = finish([*again, "--steps", "1"] if at_end else again)
        if code != 0:
            wrong.append(f"the next command left with {code}")
        if not at_end:
            state = load_checkpoint(run / "checkpoint.pt")
            if logged(run) != self.log:
                wrong.append("another log")
        if not same({**state, "config": ""}, {**self.whole, "config": ""}):
            wrong.append("not bit-identical")
        if strays(run) or set(content(run)) != set(RUN):
            wrong.append(f"stray: {sorted(p.name for p in run.iterdir())}")
        return f"{'checkpoint' if begun else 'no checkpoint'}, {'a' if left else 'no'} leftover", wrong


class Reconstruction:
    """A video over an older one, as a file and as a folder of frames."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        masks = bernoulli(4, 64, 64, generator=generator)
        save_scene("scene.mat", simulate(render(8, 64, 64, seed=0), masks, generator=generator))
        Path("out").mkdir()
        Path("reference").mkdir()
        self.old: dict[str, dict[str, bytes]] = {}
        self.new: dict[str, dict[str, bytes]] = {}
        for name in VIDEOS:
            save_video(f"out/{name}", torch.rand(3, 64, 64, generator=generator))
            self.old[name] = content(Path("out") / name)
            began = time.monotonic()
            assert finish(self.command(f"reference/{name}")) == 0
            self.seconds = time.monotonic() - began
            self.new[name] = content(Path("reference") / name)

    @staticmethod
    def command(output: str) -> list[str]:
        return ["reconstruct", "scene.mat", "-m", "gap-tv", "--tol", "1", "-q", "--force", "-o", output]

    def places(self) -> list[str]:
        files = [f"{place} {Path(name).suffix} 1" for name in VIDEOS[:3] for place in ("sync", "place", "placed")]
        # The third: the folder itself, after the old one was set aside.
        return [*files, "write .png 3", "sync .png 8", "place  1", "placed  1"]

    def moment(self, moment: float | str) -> tuple[str, list[str]]:
        end = moment.split(" ")[1] if isinstance(moment, str) else random.choice(VIDEOS)
        name = next(
            (n for n in VIDEOS if (isinstance(moment, float) and n == end) or (n.endswith(end) and end)), "frames/"
        )
        target, wrong = Path("out") / name, []
        shutil.rmtree("out")
        Path("out").mkdir()
        (target if name.endswith("/") else target.parent).mkdir(exist_ok=True)
        for file, data in self.old[name].items():
            (target / file if name.endswith("/") else target).write_bytes(data)
        if not killed(self.command(f"out/{name}"), moment):
            return ENDED, []
        left, now = len(strays(Path("out"))), content(target)
        aside = bool(list(Path("out").glob(".unsnap-*-old")))
        state = "old" if now == self.old[name] else "new" if now == self.new[name] else "set aside" if aside else "HALF"
        if state == "HALF":
            wrong.append(f"{name} is neither the old nor the new one")
        if state == "set aside":
            save_video("out/other.npy", torch.rand(1, 4, 4))
            if content(target) != self.old[name]:
                wrong.append("what was set aside did not come back")
            Path("out/other.npy").unlink()
        code = finish(self.command(f"out/{name}"))
        if code != 0 or content(target) != self.new[name]:
            wrong.append(f"the next command left with {code} or another video")
        if [p.name for p in Path("out").iterdir()] != [name.rstrip("/")]:
            wrong.append(f"stray: {sorted(p.name for p in Path('out').iterdir())}")
        return f"{state} {'folder' if name.endswith('/') else 'file'}, {'a' if left else 'no'} leftover", wrong


def _heed() -> None:
    """As in a terminal; the parent may ignore Ctrl-C, as background jobs do."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


SIGNALS: dict[str, tuple[list[int], Callable[[], object], int]] = {
    "Ctrl-C": ([signal.SIGINT], _heed, 130),
    "a closing terminal, which sends two": (
        [signal.SIGHUP, signal.SIGHUP], lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL), 129
    ),
    "nohup, then an end": (
        [signal.SIGHUP, signal.SIGTERM], lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN), 143
    ),
}  # fmt: skip


def asked_to_end(name: str) -> list[str]:
    """What is wrong after signals inside the write of a video."""
    sent, begin, expected = SIGNALS[name]
    mark, said = Path("mark"), Path("said")
    mark.unlink(missing_ok=True)
    pid = start(Reconstruction.command("asked/video.npy"), f"sync .npy 1 {mark.resolve()}", begin=begin, said=str(said))
    while not mark.exists() and os.waitpid(pid, os.WNOHANG) == (0, 0):
        time.sleep(0.002)
    inside = bool(strays(Path("asked")))
    for number in sent:
        os.kill(pid, number)
        time.sleep(0.05)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    wrong = [] if inside else ["it was not inside a write"]
    wrong += [] if code == expected else [f"it left with {code}"]
    wrong += ["a traceback"] if "Traceback" in said.read_text() else []
    wrong += [f"stray: {sorted(map(str, Path('asked').rglob('*')))}"] if Path("asked").exists() else []
    mark.unlink()
    said.unlink()
    return wrong


def run(moments: int, seed: int) -> int:
    random.seed(seed)
    torch.set_num_threads(1)
    trainer.VALIDATION_SIZE, validate.DEPTHS = 16, (5,)  # what is looked at between the writes matters little
    for name in LATE:
        with suppress(ImportError):
            importlib.import_module(name)
    table: Counter[tuple[str, str, str, str]] = Counter()
    for scenario in (Training, Reconstruction):
        subject = scenario()
        places = subject.places()
        for k in range(moments // 2):
            found, moment = ENDED, places[k // 2 % len(places)] if k % 2 == 0 else 0.0
            while found == ENDED and isinstance(moment, float):  # a random moment too late is none
                moment = random.random() * subject.seconds
                found, wrong = subject.moment(moment)
            if isinstance(moment, str):
                found, wrong = subject.moment(moment)
            where = "random" if isinstance(moment, float) else " ".join(moment.split(" ")[:2])
            if isinstance(moment, str) and found == ENDED:
                wrong = [f"never came to {moment}"]
            table[scenario.__name__, where, found, "; ".join(wrong) or "as if nothing had happened"] += 1
            for sentence in wrong:
                print(f"{scenario.__name__} at {moment}: {sentence}", flush=True)
        print(f"{scenario.__name__}: one command takes {subject.seconds:.1f} s", flush=True)
    for name in SIGNALS:  # the scene of the last scenario is still there
        table["Reconstruction", "sync .npy", name, "; ".join(asked_to_end(name)) or "as if nothing had begun"] += 1
    for row, count in sorted(table.items()):
        print(f"{count:5d}  " + "  |  ".join(row))
    print(f"{sum(table.values())} moments in all")
    return int(any(not row[3].startswith("as if") for row in table))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.exit(run(given.moments, given.seed))
