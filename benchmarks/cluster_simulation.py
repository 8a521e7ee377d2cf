"""A million snapshots on a thousand nodes, on paper: a discrete simulation of what `--cluster` does.

Each node takes a task when it is free: its input comes through the shared file system, whose bandwidth all readers and
writers share; it computes for a time that varies, sometimes on a slow node (a straggler); its video goes back. A node
that fails loses its task, and returns after a while. The scheduler serves one task after the other, `--dispatch`
seconds each: that is Dask's overhead per task, and a queue of its own. Costs are node-hours times `--price`.

    python benchmarks/cluster_simulation.py                        # the table of docs/scale.md
    python benchmarks/cluster_simulation.py --snapshots 1e6 --nodes 1000 --cores 32 --seconds 4.2

`--shrink 20` simulates a twentieth of it: snapshots, nodes, bandwidth and the scheduler's speed are all divided by 20,
so that every queue is as long as in the whole.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import simpy


@dataclass(frozen=True)
class Setting:
    """Seconds, bytes and counts."""

    snapshots: int = 1_000_000
    nodes: int = 1000
    cores: int = 32
    """Tasks that a node does at a time."""
    seconds: float = 4.2
    """Of one core for one task: gap-wnnm, 8 frames of 256×256."""
    spread: float = 0.15
    """Of that time, relative."""
    slow: float = 0.01
    """Share of nodes that are four times slower."""
    days_to_failure: float = 30.0
    """Of one node."""
    repair: float = 600.0
    bandwidth: float = 10e9
    """Of the shared file system, bytes per second, reading and writing together."""
    latency: float = 0.02
    """Of opening, syncing and naming files, per task."""
    read: float = 0.6e6
    write: float = 0.1e6
    """Bytes per task: snapshot and masks; the mp4."""
    dispatch: float = 9e-3
    """Seconds of the scheduler and client per task: `benchmarks/dask_overhead.py`."""
    price: float = 1.5
    """Per node-hour."""


@dataclass(frozen=True)
class Found:
    hours: float
    rate: float
    """Snapshots per second."""
    cost: float
    busy: float
    """Share of the cores' time that went into results."""
    scheduler: float
    """Share of the time in which the scheduler was busy; likewise the file system."""
    files: float
    lost: int
    """Tasks that were begun in vain."""


class Cluster:
    def __init__(self, setting: Setting, seed: int = 0) -> None:
        self.setting, self.random = setting, random.Random(seed)
        self.env = simpy.Environment()
        self.scheduler, self.files = simpy.Resource(self.env), simpy.Resource(self.env)
        self.left, self.done, self.lost = setting.snapshots, 0, 0
        self.scheduling = self.moving = self.computing = 0.0
        self.end = self.env.event()

    def run(self) -> Found:
        s = self.setting
        for _ in range(s.nodes):
            self.env.process(self.node(4.0 if self.random.random() < s.slow else 1.0))
        self.env.run(self.end)
        wall = self.env.now
        return Found(
            wall / 3600,
            s.snapshots / wall,
            s.nodes * s.price * wall / 3600,
            self.computing / (wall * s.nodes * s.cores),
            self.scheduling / wall,
            self.moving / wall,
            self.lost,
        )

    def node(self, slowness: float) -> Iterator[Any]:
        """Its cores until it fails; all of them lose what they were doing."""
        mean = self.setting.days_to_failure * 86400
        while self.left or self.done < self.setting.snapshots:
            cores = [self.env.process(self.core(slowness)) for _ in range(self.setting.cores)]
            failure = self.env.timeout(self.random.expovariate(1 / mean))
            yield failure | self.env.all_of(cores)
            for core in cores:
                if core.is_alive:
                    core.interrupt()
            yield self.env.timeout(self.setting.repair)

    def core(self, slowness: float) -> Iterator[Any]:
        s = self.setting
        while self.left:
            self.left -= 1
            try:
                yield from self.served(self.scheduler, s.dispatch, "scheduling")
                yield from self.served(self.files, s.read / s.bandwidth, "moving")
                yield self.env.timeout(s.latency)
                took = slowness * max(0.1, self.random.gauss(1, s.spread)) * s.seconds
                yield self.env.timeout(took)
                yield from self.served(self.files, s.write / s.bandwidth, "moving")
            except simpy.Interrupt:
                self.left, self.lost = self.left + 1, self.lost + 1
                return
            self.computing += took / slowness
            self.done += 1
            if self.done == s.snapshots:
                self.end.succeed()

    def served(self, resource: simpy.Resource, seconds: float, tally: str) -> Iterator[Any]:
        """One after the other. For a bandwidth that is shared, this gives the same throughput as all at once."""
        with resource.request() as turn:
            yield turn
            yield self.env.timeout(seconds)
            setattr(self, tally, getattr(self, tally) + seconds)


def scenarios(base: Setting) -> dict[str, Setting]:
    def together(setting: Setting, count: int) -> Setting:
        """So many snapshots in one file, which is one task."""
        return replace(
            setting,
            snapshots=setting.snapshots // count,
            seconds=count * setting.seconds,
            read=count * setting.read,
            write=count * setting.write,
        )

    fast, lossless = replace(base, seconds=0.18), replace(base, write=2.1e6)
    return {
        "gap-wnnm, a task per snapshot": base,
        "… on 100 nodes": replace(base, nodes=100),
        "… 8 snapshots per task": together(base, 8),
        "… float32 instead of mp4": together(lossless, 8),
        "… and a file system of 1 GB/s": replace(together(lossless, 8), bandwidth=1e9),
        "… 8 per task, nodes fail once a day": replace(together(base, 8), days_to_failure=1),
        "… 8 per task, a tenth of the nodes slow": replace(together(base, 8), slow=0.1),
        "gap-tv3d (0.18 s), a task per snapshot": fast,
        "gap-tv3d, 8 snapshots per task": together(fast, 8),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in vars(Setting()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=value)
    parser.add_argument("--shrink", type=int, default=20)
    given = vars(parser.parse_args())
    shrink = given.pop("shrink")
    whole = ("snapshots", "nodes", "cores")
    base = Setting(**{name: int(value) if name in whole else value for name, value in given.items()})
    print(f"{'':42s}   hours  snapshots/s     cost  cores  scheduler  files   lost")
    for name, setting in scenarios(base).items():
        per_task = base.snapshots / setting.snapshots
        small = replace(
            setting,
            snapshots=setting.snapshots // shrink,
            nodes=setting.nodes // shrink,
            bandwidth=setting.bandwidth / shrink,
            dispatch=setting.dispatch * shrink,
        )
        found = Cluster(small).run()
        print(
            f"{name:42s} {found.hours:7.2f} {shrink * per_task * found.rate:12.0f} {shrink * found.cost:8.0f} "
            f"{found.busy:6.0%} {found.scheduler:10.0%} {found.files:6.0%} {shrink * found.lost:6d}",
            flush=True,
        )


if __name__ == "__main__":
    main()
