"""A campaign on a Dask cluster of 2 worker processes on this machine: does it survive, and what does it cost?

1. serial: `unsnap reconstruct FOLDER -o serial`, the reference for every byte and for the cost;
2. undisturbed: the same with --cluster; its processor time against the first's is the overhead, and who spends it;
3. disturbed: workers are killed (SIGKILL) at random moments, the scheduler twice; every video must equal the first's;
4. again: the third command once more, which must find everything done.

    python benchmarks/campaign.py --files 200 --kills 100 --size 48 --iterations 300
    python benchmarks/campaign.py --files 30 --kills 0 --size 256 --iterations 300      # the overhead alone

Nothing is mocked: processes, sockets on 127.0.0.1, files. In 2 scheduler and workers are started by their commands, as
anybody would; in 3 they are forked from a process that has imported what they need, so that 100 kills take no hour.
"""

from __future__ import annotations

import argparse
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "campaign"))
from machines import ENVIRONMENT, Machines, machines, unsnap, worker_options

from unsnap import Scene, save_scene
from unsnap.masks import bernoulli
from unsnap.simulate import render


def make(folder: Path, files: int, size: int) -> None:
    masks = bernoulli(8, size, size, generator=torch.Generator().manual_seed(0))
    film = render(8 * 16, size, size, seed=0).reshape(16, 8, size, size)
    generator = torch.Generator().manual_seed(1)
    for k in range(files):  # 16 videos, each time with other noise: no two files are alike
        scene = Scene.of(film[k % 16, None], masks)
        noisy = scene.measurement + 0.01 * torch.randn(scene.measurement.shape, generator=generator)
        save_scene(folder / f"s{k:04d}.npz", Scene(noisy, masks))


def spent() -> float:
    """Processor seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Watch:
    """Wall-clock and processor time of a block, children included."""

    def __enter__(self) -> Watch:
        self.cpu, self.wall = spent(), time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu, self.wall = spent() - self.cpu, time.monotonic() - self.wall

    def __str__(self) -> str:
        return f"{self.wall:8.1f} s wall-clock {self.cpu:8.1f} s processor"


def finish(*words: object) -> None:
    process = unsnap(*words)
    _, said = process.communicate()
    assert process.returncode == 0, said


def done(out: Path) -> int:
    return len(list(out.glob("s*.npz")))


def compare(one: Path, other: Path, files: int) -> int:
    names = sorted(path.name for path in one.glob("s*.npz"))
    assert len(names) == files
    return sum((one / name).read_bytes() == (other / name).read_bytes() for name in names)


class Command(subprocess.Popen[bytes]):
    """A command, with the words that processes have."""

    def is_alive(self) -> bool:
        return self.poll() is None

    def join(self) -> None:
        self.wait()


class Started(Machines):
    """Scheduler and workers as commands of their own, which import all that they need."""

    def _start(self, what: str) -> Command:  # type: ignore[override]
        options = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        if what == "worker":
            options = worker_options(self.address, self.log.parent / "dask")
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options]
            return Command(command, stdout=log, stderr=log, env=ENVIRONMENT)


def undisturbed(root: Path, inputs: Path, options: tuple[object, ...], serial: Watch, files: int) -> None:
    with Watch() as calm:
        cluster = Started(2, root / "calm.log")
        try:
            finish("reconstruct", inputs, "-o", root / "calm", "--cluster", cluster.address, *options)
        finally:
            cluster.close()
    who = {**cluster.spent, "client": calm.cpu - sum(cluster.spent.values())}
    print(f"undisturbed  {calm}   overhead {100 * (calm.cpu / serial.cpu - 1):+.1f} % of the processor time")
    print("             " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in who.items()))
    print(f"             identical: {compare(root / 'serial', root / 'calm', files)} of {files}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--scheduler-kills", type=int, default=2)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only-kills", action="store_true", help="leave the undisturbed campaign out")
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="unsnap-campaign-"))
    inputs = root / "in"
    inputs.mkdir()
    make(inputs, given.files, given.size)
    options = ("-m", "gap-tv", "--iterations", given.iterations, "--format", "npz", "--quiet")
    with Watch() as serial:
        finish("reconstruct", inputs, "-o", root / "serial", *options)
    each = serial.cpu / given.files
    print(f"serial       {serial}   ({given.files} files, {each:.2f} s each)", flush=True)

    if not given.only_kills:
        undisturbed(root, inputs, options, serial, given.files)
    if given.kills:
        disturbed(given, root, inputs, options, each)
    shutil.rmtree(root)


def disturbed(given: argparse.Namespace, root: Path, inputs: Path, options: tuple[object, ...], each: float) -> None:
    chance, out = random.Random(given.seed), root / "disturbed"
    # By progress, not by the clock: kills are spread over the campaign however fast the machine is.
    moments = sorted(chance.uniform(0, given.files - 3) for _ in range(given.kills))
    schedulers = [given.files * (k + 1) / (given.scheduler_kills + 1) for k in range(given.scheduler_kills)]
    command = ("reconstruct", inputs, "-o", out, "--cluster")
    with Watch() as wild, machines(2, root / "wild.log") as cluster:
        client = unsnap(*command, cluster.address, *options)
        while client.poll() is None:
            if schedulers and done(out) >= schedulers[0]:
                schedulers.pop(0)
                cluster.kill_scheduler()
            if moments and done(out) >= moments[0]:
                moments.pop(0)
                time.sleep(chance.uniform(0, each))
                cluster.kill_worker(chance)
            time.sleep(0.2)
        _, said = client.communicate()
        assert client.returncode == 0, said
        kills = cluster.kills
    wild.cpu += sum(cluster.spent.values())  # no children of this process
    print(f"disturbed    {wild}   {kills} workers killed, scheduler {given.scheduler_kills - len(schedulers)} times")
    same = compare(root / "serial", out, given.files)
    print(f"             identical: {same} of {given.files}", flush=True)

    with Watch() as again:
        finish(*command, "tcp://127.0.0.1:9", *options)  # nobody is there, and nobody is needed
    print(f"again        {again}")
    assert same == given.files


if __name__ == "__main__":
    main()
