"""Run one case in this process and hold it against the whole promise.

Exit code 0, 3 or 2; for 2 one line on stderr that begins with "Error:"; no traceback, no warning of a library, no
control character; no file that was not asked for; every input as it was; memory and time within the bounds below.
"""

from __future__ import annotations

import faulthandler
import functools
import hashlib
import importlib
import io
import os
import re
import resource
import shutil
import stat
import sys
import tempfile
import time
import traceback
import unicodedata
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import typer.main

from hostile.cases import ENDLESS, FIFO, Case

ADDRESS_SPACE = 3 * 2**29
"""Bytes that a worker may map beyond what it has mapped when it begins."""
MEMORY, PER_BYTE = 5 * 2**27, 300
"""A case may make the process grow by MEMORY plus PER_BYTE times the size of its files."""
PATIENCE = float(os.environ.get("UNSNAP_HOSTILE_PATIENCE", "1"))
"""How many times slower than ours a machine may be."""
CPU_SECONDS, WALL_SECONDS = 4.0 * PATIENCE, 20.0 * PATIENCE
LONGEST = 2000
"""Letters of a sentence that somebody is to read."""

Snapshot = dict[str, str]


@dataclass
class Verdict:
    """outcome: ok, unconverged, refused, or the kind of the first problem. where: what tells problems apart."""

    format: str
    attack: str
    outcome: str
    where: str = ""
    detail: str = ""
    seconds: float = 0.0
    memory: int = 0
    index: int = -1
    args: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return self.outcome not in OUTCOMES

    @property
    def signature(self) -> str:
        return f"{self.outcome}: {self.where}"


OUTCOMES = ("ok", "unconverged", "refused")
UNCOUNTED = "more than the address space"
"""An allocation failed: whether it would have filled memory, or only reserved it, a process with more of it tells."""


# ---------------------------------------------------------------------- the folder


def lay_out(case: Case, folder: Path) -> None:
    """An empty folder with the files of the case; it becomes the working folder."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir()
    (folder / "tmp").mkdir()
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content == FIFO:
            os.mkfifo(path)
        elif content == ENDLESS:
            path.symlink_to("/dev/zero")
        else:
            path.write_bytes(content)
    os.chdir(folder)
    tempfile.tempdir = str(folder / "tmp")


def snapshot(folder: Path) -> Snapshot:
    """What is there: every file with its digest, links, pipes and folders by kind."""
    found: Snapshot = {}
    waiting = [str(folder)]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            mode = entry.stat(follow_symlinks=False).st_mode
            what = str(stat.S_IFMT(mode))
            if stat.S_ISDIR(mode):
                waiting.append(entry.path)
            elif stat.S_ISREG(mode):
                what = hashlib.blake2b(Path(entry.path).read_bytes(), digest_size=16).hexdigest()
            found[os.path.relpath(entry.path, folder)] = what
    return found


# ---------------------------------------------------------------------- the process


def peak(reset: bool = False) -> int:
    """Bytes of memory at most since the last reset (where Linux tells)."""
    with suppress(OSError):
        if reset:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        status = Path("/proc/self/status").read_bytes()
        return int(re.findall(rb"VmHWM:\s+(\d+)", status)[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_memory(space: int = ADDRESS_SPACE) -> None:
    """No more address space than now and this much, and no core files."""
    mapped = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + space,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Process:
    """This process, prepared to run commands: what they print goes into memory, a hang ends in a dump of the stack."""

    def __init__(self, log: Path, space: int = ADDRESS_SPACE, patience: float = WALL_SECONDS) -> None:
        self.log, self.space, self.patience = log.open("wb", buffering=0), space, patience
        self.captured = [os.memfd_create("stdout"), os.memfd_create("stderr")]
        faulthandler.enable(self.log)
        prepare()

    def call(self, args: list[str]) -> tuple[int | None, BaseException | None, str, str]:
        """Exit code, what was raised, stdout and stderr of `unsnap ARGS`."""
        from unsnap.cli import common, main

        for console in (common.out, common.err):
            console._buffer.clear()  # what an earlier case could not print
        for number, target in enumerate(self.captured, start=1):
            os.ftruncate(target, 0)
            os.lseek(target, 0, os.SEEK_SET)
            os.dup2(target, number)
        sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), encoding="utf-8")  # noqa: SIM115
        sys.stderr = io.TextIOWrapper(open(2, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)  # noqa: SIM115
        sys.argv = ["unsnap", *args]
        self.log.truncate(0)
        faulthandler.dump_traceback_later(self.patience, exit=True, file=self.log)
        code, raised = 0, None
        try:
            main()
        except SystemExit as left:
            raised = left
            code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        except BaseException as error:  # noqa: BLE001
            code, raised = None, error
        finally:
            faulthandler.cancel_dump_traceback_later()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError) as error:
            code, raised = None, error
        texts = [os.pread(target, 10**7, 0).decode("utf-8", "surrogateescape") for target in self.captured]
        return code, raised, texts[0], texts[1]

    def run(self, case: Case, folder: Path) -> Verdict:
        """The case, judged."""
        lay_out(case, folder)
        before = snapshot(folder)
        with warnings.catch_warnings():
            # A worker runs many cases, and a warning must not hide because an earlier case had it already.
            warnings.simplefilter("always")
            for ignored in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
                warnings.simplefilter("ignore", ignored)
            memory, clock = peak(reset=True), time.process_time()
            code, raised, out, err = self.call(case.args)
            seconds, grown = time.process_time() - clock, peak() - memory
        after = snapshot(folder)
        outcome = {0: "ok", 2: "refused", 3: "unconverged"}.get(-1 if code is None else code, "")
        verdict = Verdict(case.format, case.attack, outcome, "", err[-2000:], seconds, grown, args=case.args)
        for kind, where in problems(case, code, raised, out, err, before, after):
            verdict.outcome, verdict.where = kind, where
            break
        else:
            size = sum(len(content) for content in case.files.values())
            if self.space == ADDRESS_SPACE and _chain_has(raised, MemoryError):
                verdict.outcome, verdict.where = "memory", f"{UNCOUNTED}: {_place(raised, MemoryError)}"
            elif grown > MEMORY + PER_BYTE * size:
                verdict.outcome, verdict.where = "memory", f"{case.format} {case.attack} {case.args[0]}"
                verdict.detail = f"grew by {grown / 2**20:.0f} MB for {size} bytes; {err[-500:]}"
            elif seconds > CPU_SECONDS:
                verdict.outcome, verdict.where = "slow", f"{case.format} {case.attack} {case.args[0]}"
                verdict.detail = f"{seconds:.1f} s; {err[-500:]}"
        if raised is not None and verdict.failed:
            verdict.detail += "\n" + "".join(traceback.format_exception(raised))[-3000:]
        return verdict


@functools.cache
def prepare() -> None:
    """Import what the commands import when they need it; build the parser once instead of for every case."""
    for name in ("av", "h5py", "matplotlib.pyplot", "numba", "PIL.Image", "safetensors.torch", "scipy.io", "tifffile"):
        importlib.import_module(name)
    for name in ("torch._dynamo", "unsnap.cli.app", "unsnap.doctor", "unsnap.training"):
        importlib.import_module(name)
    torch.set_num_threads(1)  # threads would not survive a fork, and would wait for one another
    typer.main.get_command = functools.cache(typer.main.get_command)


# ---------------------------------------------------------------------- the promise


def problems(
    case: Case, code: int | None, raised: BaseException | None, out: str, err: str, before: Snapshot, after: Snapshot
) -> list[tuple[str, str]]:
    """What was not as promised: (kind, what tells it from others)."""
    found: list[tuple[str, str]] = []
    if code is None and raised is not None:
        found.append(("traceback", f"{type(raised).__name__} in {_place(raised)}"))
    elif code not in (0, 2, 3):
        found.append((f"exit {code}", _place(raised)))
    found += _text(case, code, out, err)
    lost = [
        name
        for name, what in before.items()
        if after.get(name) != what and not (code != 2 and _within(name, case.outputs, case))
    ]
    if lost:
        found.append(("input changed", f"{case.format} {case.attack} {case.args[0]}"))
    allowed = case.outputs if code != 2 else ()
    stray = [name for name in after if name not in before and not _within(name, allowed, case)]
    if stray:
        found.append(("stray file", f"{case.args[0]} leaves {re.sub(r'[0-9a-f]{6,}', '*', stray[0])}"))
    if case.expect == "works" and code == 2:
        found.append(("sound refused", f"{case.format} {case.args[0]}"))
    if case.expect == "refused" and code in (0, 3):
        found.append(("accepted", f"{case.format} {case.attack} {case.args[0]}"))
    return found


def _within(name: str, outputs: tuple[str, ...], case: Case) -> bool:
    inside = [os.path.normpath(output) for output in outputs]
    return any(name == output or name.startswith(output + "/") or output.startswith(name + "/") for output in inside)


def _text(case: Case, code: int | None, out: str, err: str) -> list[tuple[str, str]]:
    if "Traceback (most recent" in err or "Traceback (most recent" in out:
        return [("traceback", "printed")]
    noisy = re.search(r"^.*?(\w*Warning): (.*)$|^(.*(?:\[\w+ @ 0x|HDF5-DIAG|libpng).*)$", err, re.MULTILINE)
    if noisy and not noisy[0].startswith("Warning: "):
        return [("library speaks", re.sub(r"\d+|0x\w+", "N", (noisy[2] or noisy[0]))[:80])]
    odd = {c for c in out + err if unicodedata.category(c) in ("Cc", "Cs") and c != "\n"}
    if odd:
        return [("control", f"{sorted(odd)[0]!r} from {case.args[0]}")]
    if code != 2:
        return []
    lines = [line for line in err.splitlines() if not line.startswith("Warning: ")]
    if case.args[0] == "inspect" and not lines and ("✗" in out or '"fatal": true' in out):
        return []  # the report itself is the answer
    if len(lines) != 1 or not lines[0].startswith("Error:"):
        return [("lines", f"{len(lines)} lines from {case.args[0]}, {case.format}")]
    return [("long", f"from {case.args[0]}, {case.format}")] if len(lines[0]) > LONGEST else []


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _chain_has(error: BaseException | None, kind: type[BaseException]) -> bool:
    return any(isinstance(link, kind) for link in _chain(error))


def _place(error: BaseException | None, kind: type[BaseException] = BaseException) -> str:
    """The innermost function of ours that an exception passed."""
    links = [link for link in _chain(error) if isinstance(link, kind) and not isinstance(link, SystemExit)]
    frames: list[Any] = traceback.extract_tb(links[0].__traceback__) if links else []
    ours = [f"{Path(f.filename).stem}.{f.name}" for f in frames if "/unsnap/" in f.filename.replace("\\", "/")]
    others = [f"{Path(f.filename).stem}.{f.name}" for f in frames]
    return ours[-1] if ours else others[-1] if others else "nowhere"
