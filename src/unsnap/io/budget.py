"""The memory that reading may use: every reader claims what it will allocate, before it does.

A claim must keep two bounds. *What there is*: 80 % of what the machine, the control group and the process's own limits
leave, or what the user says (`--memory 2G`, `with memory(2 * 2**30): ...`). *What the file can justify*: 512 MiB, or
so many times its size, so that a file of a kilobyte cannot ask for all of a large machine. Who names an amount of
memory has justified it himself.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from unsnap.errors import InputError

SHARE = 0.8
FLOOR = 512 * 2**20
ARRAYS = 300
"""Bytes claimed per byte of a file of numbers: random binary masks as float64, compressed, come to less than 250."""
PICTURES = 50_000
"""The same of images and videos: a still scene compresses without limit."""


class TooLargeError(InputError):
    """A file is honest, but more than may be used; parts of it may do."""


@dataclass
class Budget:
    """Bytes that may be claimed, whether the user named them, what is claimed now and was at most."""

    limit: int
    named: bool
    used: int = 0
    peak: int = 0


@dataclass
class _Tally:
    """What was claimed for each file while one thing is read, even if it was given back: it also bounds the time."""

    files: dict[str, int] = field(default_factory=dict)


_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)
_tally: ContextVar[_Tally | None] = ContextVar("tally", default=None)


@contextmanager
def memory(limit: int | None = None) -> Iterator[Budget]:
    """All that is read inside may use this many bytes together; None: what there is now.

    >>> with memory(2 * 2**30):
    ...     left() / 2**30
    2.0
    """
    if limit is not None and limit < 1:
        raise InputError(f"memory must be a positive number of bytes, got {limit}")
    budget = Budget(available() if limit is None else limit, limit is not None)
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        _budget.reset(token)


@contextmanager
def counted() -> Iterator[None]:
    """Around whatever reads one thing (decorates too): its claims are added up, in the budget around it or its own."""
    if _tally.get() is not None:
        yield
        return
    token = _tally.set(_Tally())
    try:
        if _budget.get() is None:
            with memory():
                yield
        else:
            yield
    finally:
        _tally.reset(token)


@contextmanager
def passing() -> Iterator[None]:
    """What is claimed inside is given back at the end."""
    budget = _budget.get()
    before = 0 if budget is None else budget.used
    try:
        yield
    finally:
        if budget is not None:
            budget.used = before


def claim(path: Path, nbytes: int, ratio: int = ARRAYS) -> None:
    """Announce an allocation; an InputError with both numbers if it goes beyond what there is or what is justified."""
    with counted():
        budget, tally = _budget.get(), _tally.get()
        if budget is None or tally is None:  # `counted` has set both
            return
        needed = budget.used + nbytes
        total = tally.files.get(str(path), 0) + nbytes
        size = _size(path)
        if not budget.named and size is not None and total > max(FLOOR, ratio * size):
            raise InputError(
                f"{path} of {in_words(size)} would need {in_words(total)} of memory, and such a file may use "
                f"{in_words(max(FLOOR, ratio * size))}; if it is honest, give --memory {_rounded(total)}"
            )
        if needed > budget.limit:
            raise TooLargeError(
                f"{path} would need {in_words(needed)} of memory and {in_words(budget.limit)} may be used; "
                "crop it, keep fewer frames or allow more with --memory"
            )
        budget.used, tally.files[str(path)] = needed, total
        budget.peak = max(budget.peak, needed)


def keep(nbytes: int) -> None:
    """So much of what `passing` gave back is still held."""
    budget = _budget.get()
    if budget is not None:
        budget.used += nbytes


def left() -> int:
    """Bytes that may still be claimed."""
    budget = _budget.get()
    return available() if budget is None else budget.limit - budget.used


def named() -> int | None:
    """Bytes that the user has named, if he has."""
    budget = _budget.get()
    return budget.limit if budget is not None and budget.named else None


def parse(text: str) -> int:
    """Bytes from 512M, 2G, 1.5GiB, 500000000.

    >>> parse("1.5GiB"), parse("512M") == 512 * 2**20
    (1610612736, True)
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE | re.ASCII)
    value = 0 if found is None else int(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "))
    if value < 1:
        raise InputError(f"--memory must be an amount such as 512M or 2G, got {text!r}")
    return value


def in_words(nbytes: int) -> str:
    """A number of bytes for people: 1.7 KiB, 512 MiB, 7.45e+06 GiB."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes} bytes"


def _rounded(nbytes: int) -> str:
    """Up to whole gigabytes, as --memory takes it."""
    return f"{-(-nbytes // 2**30)}G"


def _size(path: Path) -> int | None:
    """Bytes of a file that are really stored (holes are not); None of a folder, whose files justify themselves."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return None if path.is_dir() else stored(facts)


def stored(facts: os.stat_result) -> int:
    """The size of a file without its holes; some file systems keep small files in no block at all."""
    blocks = getattr(facts, "st_blocks", None)
    return facts.st_size if blocks is None or facts.st_size < FLOOR else min(facts.st_size, 512 * int(blocks))


# ---------------------------------------------------------------------- what there is


def available() -> int:
    """80 % of the smallest of: free memory, what the control group and the process's limits leave."""
    return int(SHARE * min([_free(), *_in_groups(), *_under_limits()]))


def _free() -> int:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    if found:
        return 1024 * int(found[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def _in_groups() -> Iterator[int]:
    """What each control group of this process leaves, of version 1 and 2, with its parents."""
    for line in _text("/proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers not in ("", "memory"):
            continue
        root, most, now = (
            ("/sys/fs/cgroup", "memory.max", "memory.current")
            if not controllers
            else ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        inside = Path(path.lstrip("/"))
        for group in (Path(root) / part for part in (inside, *inside.parents)):
            limit, used = _text(group / most).strip(), _text(group / now).strip()
            if limit.isdecimal() and used.isdecimal():
                cached = re.search(r"^(?:total_)?inactive_file (\d+)", _text(group / "memory.stat"), re.MULTILINE)
                yield max(0, int(limit) - int(used) + (int(cached[1]) if cached else 0))


def _under_limits() -> Iterator[int]:
    """What is left of the address space and the data that `ulimit -v` and `-d` allow."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    pages = [int(n) for n in _text("/proc/self/statm").split()]
    for which, used in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)):
        soft = resource.getrlimit(which)[0]
        if soft != resource.RLIM_INFINITY:
            yield max(0, soft - (pages[used] * resource.getpagesize() if len(pages) > used else 0))


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError):
        return ""


@contextmanager
def address_space(size: int) -> Iterator[None]:
    """A library that asks for more than `size` bytes at once inside is refused by the system, where it counts them.

    For libraries that believe the sizes a file states. Only while this process has one thread of Python's, as the limit
    is the whole process's.
    """
    before = None
    if sys.platform == "linux" and threading.active_count() == 1:
        import resource

        before = resource.getrlimit(resource.RLIMIT_AS)
        mapped = int(Path("/proc/self/statm").read_bytes().split()[0]) * resource.getpagesize()
        limits = [mapped + size, *(limit for limit in before if limit != resource.RLIM_INFINITY)]
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), before[1]))
    try:
        yield
    finally:
        if before is not None:
            resource.setrlimit(resource.RLIMIT_AS, before)
