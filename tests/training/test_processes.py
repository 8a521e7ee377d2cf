"""What only real processes can show: a kill at any moment, and two that share the work."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from runs import lasting, same, tiny

from laws import close
from unsnap.training import Trainer, resume
from unsnap.training.checkpoint import load_checkpoint
from unsnap.training.world import World

QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def train(config: Path, run: Path, launcher: tuple[str, ...] = ()) -> list[str]:
    options = ["--config", str(config), "-o", str(run), "--threads", "1", "--quiet"]
    return [sys.executable, *(launcher or ("-m", "unsnap")), "train", *options]


def test_a_kill_at_any_moment_costs_one_interval_and_not_one_bit(tmp_path: Path, clips: Path) -> None:
    config = tiny(clips, steps=40, checkpoint_every=4, validate_every=30)
    (tmp_path / "config.json").write_text(config.to_json())
    checkpoint = tmp_path / "killed" / "checkpoint.pt"
    process = subprocess.Popen(train(tmp_path / "config.json", tmp_path / "killed"), env=QUIET)
    whole = Trainer(config, tmp_path / "whole")
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < load_checkpoint(checkpoint)["step"] < 40

    whole.run()
    again = resume(tmp_path / "killed")
    again.run()
    assert same(lasting(again.state()), lasting(whole.state()))
    logs = [[{**line, "minutes": 0, "cpu_hours": 0} for line in run.log.lines] for run in (again, whole)]
    assert logs[0] == logs[1]
    assert [line["step"] for line in logs[0]] == [30, 40]


def test_two_nodes_end_where_one_process_does_though_a_rank_is_killed(tmp_path: Path, clips: Path) -> None:
    """Two ranks until the kill, two that begin again after it: both stretches must equal one process's."""
    # A contraction: where the equilibrium is not well defined yet, solvers enlarge rounding errors without bound.
    network = {"network": "certified", "settings": {"blocks": 1, "channels": 4, "hidden": 4, "contraction": 0.9}}
    config = tiny(clips, **network, steps=24, gaussian=0.3, blend=0.3, implicit=0.3, penalty=0.1, checkpoint_every=2)
    (tmp_path / "config.json").write_text(config.to_json())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    node = (
        "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3",
        "--rdzv-id", "7", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--local-addr", "127.0.0.1",
        "-m", "unsnap",
    )  # fmt: skip
    command = train(tmp_path / "config.json", tmp_path / "two", node)
    agents = [subprocess.Popen(command, env=QUIET, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    one = Trainer(config, tmp_path / "one")
    checkpoint = tmp_path / "two" / "checkpoint.pt"
    while not checkpoint.exists() or load_checkpoint(checkpoint)["step"] == 0:
        assert all(agent.poll() is None for agent in agents)
        time.sleep(0.02)
    rank = int(Path(f"/proc/{agents[1].pid}/task/{agents[1].pid}/children").read_text().split()[0])
    os.kill(rank, signal.SIGKILL)
    before = load_checkpoint(checkpoint)["step"]
    one.run()
    said = [agent.communicate()[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], said
    assert before < 24, "the kill came too late to show anything"

    two = load_checkpoint(checkpoint)
    assert (two["step"], two["skipped"]) == (24, 0)
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
