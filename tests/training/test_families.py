"""Every family that can be trained: seconds on rendered clips improve it; it saves, loads, resumes, and is shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from runs import lasting, same
from test_processes import QUIET

from campaign.nursery import born, script
from unsnap.models import Unfolded, load
from unsnap.training import PRESETS, Config, Trainer, preset, resume, validate

SMALL: dict[str, Any] = {"channels": [8, 8, 8]}
# The certified ones change a least-squares video slowly if they are told of little noise.
FAMILIES: dict[str, dict[str, Any]] = {
    "de-gap": {"settings": SMALL},
    "de-gap-certified": {"settings": {"blocks": 1, "channels": 4, "hidden": 8}, "sigma": 0.2},
    "guided-gap": {"settings": SMALL},
    "guided-certified": {"settings": {"blocks": 1, "channels": 4, "hidden": 8}},
    "de-agap": {"settings": SMALL},
    "de-agap-certified": {"settings": {"blocks": 1, "channels": 4, "hidden": 8}, "sigma": 0.2},
    "de-admm": {"settings": SMALL},
    "de-rnn": {"settings": SMALL},
    "guided-rnn": {"settings": {"channels": 8}},
    "denoiser": {"settings": SMALL},
    "gap-net": {"settings": {"channels": 8}, "stages": 2},
    "admm-net": {"settings": {"channels": 8}, "stages": 2},
    "dun-3dunet": {"settings": SMALL, "stages": 2},
    "shift-net": {"settings": SMALL, "stages": 2},
    "unet": {"settings": {"channels": 8}},
    "frames-unet": {"settings": {**SMALL, "blocks": [1, 1, 1]}},
    "stformer": {"settings": {"width": 8, "layers": 1}},
    "efficientsci": {"settings": {"width": 8, "blocks": 1}},
    "birnat": {"settings": {"frames": 4}, "batch": 1},
}
# Those that improve slowly; others do in six steps.
STEPS = {"birnat": 2, "denoiser": 30, "de-gap-certified": 12, "guided-certified": 12, "de-agap-certified": 12}
LARGER = {"batch": 4, "frames": (8,)}


def config(name: str, clips: Path, steps: int | None = None) -> Config:
    pace = {"steps": steps or STEPS.get(name, 6), "warmup": 4, "rate": 4e-3, "ema": 0.8, "checkpoint_every": 10**6}
    size = {"batch": 2, "crop": 16, "frames": (4,), "pool": 4, "age": 8, "start": "least_squares", "noise": 0.0}
    size |= LARGER if STEPS.get(name, 0) > 6 else {}
    changes = {"implicit": 0.2, "unroll": 2} if PRESETS[name].get("implicit") != 0 else {}
    return preset(name, clips=str(clips), **{**pace, **size, **changes, **FAMILIES[name]})


def test_none_is_left_out() -> None:
    assert set(FAMILIES) == set(PRESETS)


@pytest.fixture(autouse=True)
def few_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "FRAMES", 4)


@pytest.mark.parametrize("name", PRESETS)
def test_a_few_steps_improve_it_and_it_goes_on(name: str, clips: Path, tmp_path: Path) -> None:
    run = Trainer(config(name, clips), tmp_path / "run")
    start = [p.detach().clone() for p in run.parameters]
    before = (
        validate.validate_denoiser(run.model.network, run.views) if name == "denoiser" else
        validate.validate(run.mean, run.views)
    )  # fmt: skip
    run.run()
    (after,) = run.log.lines
    # After so few steps de-agap, de-admm and de-rnn had not improved where they end; their first iterations had.
    score = "psnr_5" if "psnr_5" in after else "denoised_25" if name == "denoiser" else "psnr_fixed"
    assert after[score] > before[score] + 0.05, (before, after)
    assert run.skipped == 0
    still = [a.shape for a, b in zip(start, run.parameters, strict=True) if a.numel() > 1 and torch.equal(a, b)]
    unused = [p.shape for p in run.parameters if p.grad is None] if isinstance(run.model, Unfolded) else []
    # The last stage of dun-3dunet has features for nobody; test_trainer.py shares its stages. The first of shift-net
    # is passed nothing at its three scales.
    idle = [(8, 8, 1, 1)] * 3 if name == "shift-net" else []
    assert (still, unused) == (idle, idle) or name == "dun-3dunet"
    found = load(tmp_path / "run" / "last.safetensors")
    assert same(found.state_dict(), run.mean.state_dict())
    assert (found.iteration, found.start) == (run.model.iteration, run.model.start)
    again = resume(tmp_path / "run", more_steps=1)
    assert same(lasting(again.state()) | {"config": ""}, lasting(run.state()) | {"config": ""})
    again.one_step(0.9)
    assert again.step == run.step + 1


# What two processes exchange depends on the states that a model keeps and on the stage, not on its network: plain
# iterates, those of an accelerated and of a split iteration, of a recurrent network, of none (unfolded), noise alone.
SHARED = ("de-gap-certified", "de-agap", "de-admm", "de-rnn", "gap-net", "denoiser")

# Two processes as torchrun starts them (test_processes.py has torchrun itself), forked from one that has imported all.
TWO = """
import os, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]).parent)]
import torch
from torch.distributed import TCPStore
from test_families import SHARED, config
from unsnap.training import Trainer
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
os.environ |= {"WORLD_SIZE": "2", "RANK": "0"}
other = os.fork()
if not other:
    os.environ["RANK"] = "1"
for name in SHARED:
    run = Trainer(config(name, Path(sys.argv[2]), steps=2), Path(sys.argv[3]) / name)
    run.one_step(0.1), run.one_step(0.95)
    mine = torch.cat([p.detach().flatten() for p in run.parameters])
    mean = run.world.gather(mine[None]).mean(0)
    assert run.world.size == 2 and torch.equal(mean, mine), name
if other:
    assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 0
    print("together")
sys.stdout.flush()
os._exit(0)
"""


def test_two_processes_share_the_work(clips: Path, tmp_path: Path) -> None:
    words = (str(Path(__file__).parent), str(clips), str(tmp_path))
    done = born(script, TWO, *words, said=tmp_path / "said", environment=QUIET)
    assert done.end() == 0, done.err.read_text()[-2000:]
    assert done.out.read_text() == "together\n"
