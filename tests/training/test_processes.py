"""What only real processes can show: two that share the work, one of which dies. (Kills of one: tests/hostile.)"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from runs import tiny

from campaign.nursery import born, script
from laws import close
from ports import free_port
from unsnap.training import Trainer
from unsnap.training.checkpoint import load_checkpoint
from unsnap.training.world import World

QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}

# The second of two processes dies at its sixth step, once.
DEADLY = """
import os, signal
from pathlib import Path
from unsnap.training import Trainer

mark, step = Path({mark!r}), Trainer.one_step

def one_step(self, progress):
    if self.world.rank == 1 and self.step == 5 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, progress)

Trainer.one_step = one_step
"""

# Two nodes, each with torchrun's own agent; all are forked from one process that has imported everything.
NODES = """
import os, sys
import torch._dynamo
import unsnap.cli.app
import unsnap.cli.train
from torch.distributed.launcher.api import elastic_launch
from torch.distributed.run import config_from_args, parse_args
from unsnap.cli import main
from unsnap.training import trainer, validate

trainer.VALIDATION_SIZE, validate.DEPTHS = 16, (5,)

def rank():
    sys.argv = words
    try:
        main()
    except SystemExit as left:
        if left.code:
            raise

config, _, words = config_from_args(parse_args(sys.argv[1:]))
words = words[words.index("unsnap"):]
other = os.fork()
elastic_launch(config, rank)()
if other:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
"""


def test_two_nodes_end_where_one_process_does_though_a_rank_is_killed(tmp_path: Path, clips: Path) -> None:
    """Two ranks until the kill, two that begin again after it: both stretches must equal one process's."""
    # A contraction: where the equilibrium is not well defined yet, solvers enlarge rounding errors without bound.
    network = {"network": "certified", "settings": {"blocks": 1, "channels": 4, "hidden": 4, "contraction": 0.9}}
    config = tiny(clips, **network, steps=12, gaussian=0.3, blend=0.3, implicit=0.3, penalty=0.1, checkpoint_every=2)
    (tmp_path / "config.json").write_text(config.to_json())
    (tmp_path / "deadly.py").write_text(DEADLY.format(mark=str(tmp_path / "died")))
    options = (
        "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3", "--start-method", "fork", "--rdzv-id", "7",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--local-addr", "127.0.0.1",
        "-m", "unsnap", "train", "--config", str(tmp_path / "config.json"), "-o", str(tmp_path / "two"),
        "--plugin", str(tmp_path / "deadly.py"), "--threads", "1", "--quiet",
    )  # fmt: skip
    nodes = born(script, NODES, *options, said=tmp_path / "said", environment=QUIET)
    one = Trainer(config, tmp_path / "one")
    one.run()
    assert nodes.end() == 0, nodes.err.read_text()
    assert (tmp_path / "died").exists()

    two = load_checkpoint(tmp_path / "two" / "checkpoint.pt")
    assert (two["step"], two["skipped"]) == (12, 0)
    assert torch.equal(two["generator"], one.generator.get_state()), "no draw was lost, and none was made twice"
    for part in ("weights", "mean"):
        for key, mine in one.state()[part].items():
            close(two[part][key], mine, 1e-4)
    for k, mine in one.state()["optimizer"]["state"].items():
        close(two["optimizer"]["state"][k]["mean"], mine["mean"], 1e-4)
    for mine, theirs in zip(one.state()["pool"], two["pool"], strict=True):
        assert (mine["age"], mine["life"]) == (theirs["age"], theirs["life"])
        torch.testing.assert_close(mine["state"], theirs["state"], rtol=1e-4, atol=1e-5)
    assert not list((tmp_path / "two").glob(".unsnap*"))


def test_shares_are_equal_and_cover_the_batch() -> None:
    rows = list(range(12))
    assert [r for rank in range(3) for r in rows[World(rank, 3).rows(12)]] == rows
    with pytest.raises(ValueError, match="cannot be shared equally"):
        World(0, 5).rows(12)
