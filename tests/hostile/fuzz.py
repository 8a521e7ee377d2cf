"""Hostile files against the command line, for as long as one likes: `make fuzz MINUTES=5`, or `python -m hostile.fuzz`.

Workers run cases in process, one after the other. A worker that hangs ends itself with a dump of its stack, one that
crashes is replaced. What fails is made small and kept in a folder, from which --replay runs it again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from hostile.cases import ENDLESS, FIFO, KINDS, SHARES, Case, case, sound_cases
from hostile.contract import (
    ADDRESS_SPACE,
    MEMORY,
    OUTCOMES,
    UNCOUNTED,
    WALL_SECONDS,
    Process,
    Verdict,
    limit_memory,
    prepare,
)
from hostile.guided import guide, guided_case, instrumented

LIFE = 3000
"""Cases after which a worker is replaced, so that what libraries leak does not add up."""


# ---------------------------------------------------------------------- workers


def _forked(task: Callable[[int], None]) -> tuple[int, int]:
    """(pid, reading end of a pipe) of a child that runs `task(writing end)`."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            task(writing)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    return pid, reading


def _tell(target: int, **message: object) -> None:
    os.write(target, json.dumps(message).encode() + b"\n")


@dataclass
class Worker:
    """A child that runs cases first, first + step, …"""

    slot: int
    pid: int
    pipe: int
    log: Path
    buffer: bytes = b""
    current: int = -1
    heard: float = field(default_factory=time.monotonic)


class Fuzz:
    """Workers, and what they found."""

    def __init__(self, seed: int, jobs: int, last: int, formats: tuple[str, ...], once: bool = False) -> None:
        self.seed, self.jobs, self.last, self.formats, self.until = seed, jobs, last, formats, float("inf")
        self.once = once
        self.tried: set[tuple[str, str]] = set()
        """Attacks on formats, of which a worker that begins later knows"""
        shared = Path("/dev/shm")
        self.root = Path(tempfile.mkdtemp(prefix="unsnap-hostile-", dir=shared if os.access(shared, os.W_OK) else None))
        self.table: dict[str, Counter[str]] = {name: Counter() for name in formats}
        self.failures: dict[str, list[Verdict]] = {}
        self.cases: dict[str, Case] = {}
        """The first case of every failure."""
        self.slowest = self.largest = Verdict("", "", "ok")

    def run(self) -> None:
        workers = {w.pipe: w for w in (self._start(slot, slot) for slot in range(self.jobs))}
        while workers:
            ready, _, _ = select.select(list(workers), [], [], 1.0)
            for pipe in ready:
                worker = workers[pipe]
                data = os.read(pipe, 2**16)
                if data:
                    self._hear(worker, data)
                    continue
                del workers[pipe]
                following = self._bury(worker)
                if following is not None:
                    fresh = self._start(worker.slot, following)
                    workers[fresh.pipe] = fresh
            for worker in workers.values():
                if time.monotonic() - worker.heard > 3 * WALL_SECONDS:  # not even its watchdog runs
                    os.kill(worker.pid, signal.SIGKILL)
                    worker.heard = time.monotonic()

    def _start(self, slot: int, first: int) -> Worker:
        log = self.root / f"{slot}.log"

        def work(target: int) -> None:
            process = Process(log)
            limit_memory()
            for index in range(first, min(self.last, first + LIFE * self.jobs), self.jobs):
                if time.monotonic() > self.until:
                    return
                made = case(self.seed, index, self.formats)
                _tell(target, start=index)
                if self.once and (made.format, made.attack) in self.tried:
                    continue
                self.tried.add((made.format, made.attack))
                verdict = process.run(made, self.root / f"w{slot}")
                _tell(target, **asdict(replace(verdict, index=index)))
            _tell(target, start=-1)

        pid, pipe = _forked(work)
        return Worker(slot, pid, pipe, log, current=first - self.jobs)

    def _hear(self, worker: Worker, data: bytes) -> None:
        worker.heard = time.monotonic()
        *lines, worker.buffer = (worker.buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "start" in message:
                worker.current = message["start"] if message["start"] >= 0 else worker.current
            else:
                verdict = Verdict(**message)
                self.count(verdict, lambda index=verdict.index: case(self.seed, index, self.formats))

    def count(self, verdict: Verdict, made: Callable[[], Case]) -> None:
        if verdict.failed:
            verdict = settled(verdict, made(), self.root)
        self.tried.add((verdict.format, verdict.attack))
        self.table.setdefault(verdict.format, Counter())[verdict.outcome] += 1
        self.slowest = max(self.slowest, verdict, key=lambda v: v.seconds)
        self.largest = max(self.largest, verdict, key=lambda v: v.memory)
        if verdict.failed:
            self.failures.setdefault(verdict.signature, []).append(verdict)
            if verdict.signature not in self.cases:
                self.cases[verdict.signature] = made()

    def run_guided(self) -> None:
        """Each format in turn by libFuzzer, for its share of the time."""
        share = max(5.0, (self.until - time.monotonic()) / len(self.formats))
        for format in self.formats:
            end = time.monotonic() + share
            while (left := end - time.monotonic()) > 1:
                self._guide(format, left)

    def _guide(self, format: str, seconds: float) -> None:
        def work(target: int) -> None:
            guide(format, seconds, self.seed, self.root, lambda **message: _tell(target, **message))

        pid, pipe = _forked(work)
        with os.fdopen(pipe, "rb") as messages:
            for line in messages:
                message = json.loads(line)
                data = b64decode(message.pop("data"))
                self.count(Verdict(**message), lambda data=data: guided_case(format, data))
        _, status = os.waitpid(pid, 0)
        if status:
            made = guided_case(format, (self.root / "current").read_bytes())
            self.count(died(made, status, self.root / "guided.log"), lambda: made)

    def _bury(self, worker: Worker) -> int | None:
        """Where the next worker of this slot begins, if there is anything left; a death is counted as a failure."""
        os.close(worker.pipe)
        _, status = os.waitpid(worker.pid, 0)
        if status:
            made = case(self.seed, worker.current, self.formats)
            self.count(replace(died(made, status, worker.log), index=worker.current), lambda: made)
        following = worker.current + self.jobs
        return following if following < self.last and time.monotonic() < self.until else None


def died(made: Case, status: int, log: Path) -> Verdict:
    """The verdict on a case that took its process with it."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    frames = re.findall(r'File "([^"]*)", line \d+ in (\S+)', text)
    ours = [f"{Path(file).stem}.{name}" for file, name in frames if "/unsnap/" in file]
    kind = "hang" if "Timeout" in text else f"signal {status & 127}" if status & 127 else "left"
    where = ours[0] if ours else f"{made.format} {made.attack}"
    return Verdict(made.format, made.attack, kind, where, text[-3000:], args=made.args)


def attempt(made: Case, root: Path, space: int = ADDRESS_SPACE) -> Verdict:
    """One case in a child of its own, which is ended when it takes too long or grows far beyond the bound."""
    log = root / "attempt.log"

    def work(target: int) -> None:
        process = Process(log, space)
        limit_memory(space)
        _tell(target, **asdict(process.run(made, root / "attempt")))

    pid, pipe = _forked(work)
    data, end, first = b"", time.monotonic() + 3 * WALL_SECONDS, _resident(pid)
    large = False
    while True:
        ready, _, _ = select.select([pipe], [], [], 0.05)
        part = os.read(pipe, 2**16) if ready else b""
        data += part
        large = large or _resident(pid) - first > 4 * MEMORY
        if large or time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            break
        if ready and not part:
            break
    os.close(pipe)
    _, status = os.waitpid(pid, 0)
    if large:
        return Verdict(
            made.format, made.attack, "memory", f"{made.format} {made.attack} {made.args[0]}", args=made.args
        )
    return Verdict(**json.loads(data)) if data and not status else died(made, status, log)


def _resident(pid: int) -> int:
    with suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * resource.getpagesize()
    return 0


def settled(verdict: Verdict, made: Case, root: Path) -> Verdict:
    """The verdict; a failed allocation counts only if, where there is room for it, memory is filled with it."""
    if not verdict.where.startswith(UNCOUNTED):
        return verdict
    return replace(attempt(made, root, 2**37), index=verdict.index)


# ---------------------------------------------------------------------- findings


def shrink(made: Case, verdict: Verdict, root: Path, seconds: float) -> Case:
    """The case with as much of its hostile file deleted or zeroed as leaves the failure the same."""
    end = time.monotonic() + seconds

    def fails(content: bytes) -> bool:
        trial = replace(made, files={**made.files, made.subject: content})
        return attempt(trial, root).signature == verdict.signature

    best = made.files[made.subject]
    if best in (FIFO, ENDLESS):
        return made
    for zero in (False, True):
        size = max(1, len(best) // 2)
        while size >= max(1, len(best) // 256):
            for at in range((len(best) - 1) // size * size, -1, -size):
                if time.monotonic() > end:
                    return replace(made, files={**made.files, made.subject: best})
                part = bytes(min(size, len(best) - at)) if zero else b""
                trial = best[:at] + part + best[at + size :]
                if trial != best and fails(trial):
                    best = trial
            size //= 2
    return replace(made, files={**made.files, made.subject: best})


def keep(made: Case, verdict: Verdict, folder: Path) -> Path:
    """Write the case so that people and --replay can run it."""
    digest = hashlib.sha256(verdict.signature.encode()).hexdigest()[:8]
    target = folder / f"{re.sub(r'[^a-z0-9]+', '-', verdict.outcome)}-{digest}"
    if target.exists():
        shutil.rmtree(target)
    (target / "files").mkdir(parents=True)
    special = {FIFO: "fifo", ENDLESS: "endless"}
    names = []
    for number, (name, content) in enumerate(made.files.items()):
        plain = re.fullmatch(r"[\w.-]+", name)
        stored = name if plain else f"{number}{Path(name).suffix if name.isprintable() else ''}".replace("/", "")
        if content not in special:
            (target / "files" / stored).write_bytes(content)
        names.append({"name": name, "stored": stored, "special": special.get(content)})
    facts = {**asdict(replace(made, files={})), "files": names, "signature": verdict.signature}
    (target / "case.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    report = f"{verdict.signature}\nunsnap {' '.join(map(repr, made.args))}\n\n{verdict.detail}\n"
    (target / "report.txt").write_text(report.encode("utf-8", "backslashreplace").decode(), encoding="utf-8")
    return target


def kept(folder: Path) -> Case:
    facts = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    special = {"fifo": FIFO, "endless": ENDLESS}
    files = {
        f["name"]: special.get(f["special"]) or (folder / "files" / f["stored"]).read_bytes()
        for f in facts.pop("files")
    }
    known = {f.name for f in fields(Case)}  # a finding may be older than today's Case
    return Case(**{k: v for k, v in facts.items() if k in known} | {"outputs": tuple(facts["outputs"])}, files=files)


# ---------------------------------------------------------------------- the command


def show(fuzz: Fuzz, seconds: float) -> None:
    """The table format × outcome."""
    seen = sorted({o for row in fuzz.table.values() for o in row} - set(OUTCOMES))
    columns = [*OUTCOMES, *seen]
    print(f"{'format':<13}{'cases':>8}" + "".join(f"{name:>{max(12, len(name) + 2)}}" for name in columns))
    total: Counter[str] = Counter()
    for name, row in fuzz.table.items():
        total += row
        print(f"{name:<13}{row.total():>8}" + "".join(f"{row[c]:>{max(12, len(c) + 2)}}" for c in columns))
    print(f"{'all':<13}{total.total():>8}" + "".join(f"{total[c]:>{max(12, len(c) + 2)}}" for c in columns))
    slow, large = fuzz.slowest, fuzz.largest
    print(f"{total.total() / max(seconds, 1e-9):.0f} cases per second; slowest {slow.seconds:.2f} s ({slow.format}, "
          f"{slow.attack}), "
          f"largest growth {large.memory / 2**20:.0f} MB ({large.format}, {large.attack})")  # fmt: skip


def warm_up(fuzz: Fuzz) -> None:
    """Sound files of every format, so that kernels are compiled before workers begin; all of them must work."""
    log, here = fuzz.root / "warm.log", Path.cwd()
    saved = os.dup(1), os.dup(2), sys.stdout, sys.stderr
    process = Process(log, patience=600)  # compiling takes a minute on a busy machine
    for made in sound_cases():
        if made.format in fuzz.formats:
            verdict = process.run(made, fuzz.root / "warm")
            if verdict.outcome != "slow":  # compiling is
                fuzz.count(verdict, lambda made=made: made)
    os.dup2(saved[0], 1)
    os.dup2(saved[1], 2)
    sys.stdout, sys.stderr = saved[2:]
    os.chdir(here)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="run this long (default: until --cases)")
    parser.add_argument("--cases", type=int, help="run this many (default: until --minutes)")
    parser.add_argument("--once", action="store_true", help="of these, only the first of each attack on each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--formats", default=",".join(SHARES), help="only these, separated by commas")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="folder for reproducers")
    parser.add_argument("--shrink", type=float, default=20.0, help="seconds to make one finding small")
    parser.add_argument("--guided", action="store_true", help="by coverage, one process, where atheris is installed")
    parser.add_argument("--replay", type=Path, nargs="+", help="run these findings again")
    options = parser.parse_args()
    if options.minutes is None and options.cases is None:
        options.minutes = 5.0
    formats = tuple(options.formats.split(","))
    if options.guided:
        formats = tuple(name for name in formats if name in KINDS)
    fuzz = Fuzz(options.seed, options.jobs, options.cases or sys.maxsize, formats, options.once)
    try:
        instrumented(prepare) if options.guided else prepare()
        if options.replay:
            cases = [kept(folder) for folder in options.replay]
            verdicts = [settled(attempt(made, fuzz.root), made, fuzz.root) for made in cases]
            for folder, verdict in zip(options.replay, verdicts, strict=True):
                print(
                    f"{folder}: {verdict.signature}\n{verdict.detail}"
                    if verdict.failed
                    else f"{folder}: {verdict.outcome}"
                )
            return int(any(verdict.failed for verdict in verdicts))
        warm_up(fuzz)
        began = time.monotonic()
        fuzz.until = began + 60 * (options.minutes or float("inf"))
        with suppress(KeyboardInterrupt):  # what was found until then is told all the same
            fuzz.run_guided() if options.guided else fuzz.run()
        show(fuzz, time.monotonic() - began)
        for signature, verdicts in sorted(fuzz.failures.items()):
            first = min(verdicts, key=lambda v: v.index if v.index >= 0 else sys.maxsize)
            print(
                f"{len(verdicts):>6} × {signature}   (case {first.index}: {first.format}, {first.attack})", flush=True
            )
            made = shrink(fuzz.cases[signature], first, fuzz.root, options.shrink)
            print(f"         {keep(made, first, options.findings)}")
        return int(bool(fuzz.failures))
    finally:
        shutil.rmtree(fuzz.root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
