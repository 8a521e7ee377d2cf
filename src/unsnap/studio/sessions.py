"""What the studio remembers of each page: its folder, its capture, its results. All of it goes when the page closes."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from unsnap.errors import InputError
from unsnap.studio.jobs import Job
from unsnap.studio.reading import Reading

_FORGOTTEN = 12 * 3600.0
"""Seconds after which a page that was never closed is taken for gone."""
_SETTLED = 3.0
"""Seconds without a byte after which a file that is being received, and no page waits for, is taken for given up."""
_MOST_RUNS = 12
"""Results that a page keeps; older ones go."""


@dataclass
class Run:
    """A finished reconstruction: its folder with video.npy, the numbers behind `--json`, and how it was asked for."""

    number: int
    method: str
    folder: Path
    result: dict[str, Any]
    look: dict[str, Any]
    reading: Reading
    anyway: bool
    history: list[float]
    alone: bool
    capture: int
    """Which of the captures of this page it belongs to."""


@dataclass
class Session:
    """One page. `token` is the secret in its addresses."""

    folder: Path
    token: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    path: Path | None = None
    name: str = ""
    prepare: list[str] = field(default_factory=list)
    """Commands that make the file, before those that read it (a simulated one)."""
    reading: Reading = field(default_factory=Reading)
    report: dict[str, Any] | None = None
    runs: dict[int, Run] = field(default_factory=dict)
    captures: int = 0
    job: Job | None = None
    cancelled: bool = False
    uploads: set[Path] = field(default_factory=set)
    offered: dict[tuple[str, str], Path] = field(default_factory=dict)
    used: float = field(default_factory=time.monotonic)
    _count: int = 0

    def new_folder(self) -> Path:
        self._count += 1
        folder = self.folder / str(self._count)
        folder.mkdir(parents=True)
        return folder

    def take(self, upload: str | Path, folder: Path) -> Path:
        """An uploaded file under its own name in a folder of the page."""
        source = Path(upload)
        target = folder / source.name
        try:
            try:
                os.link(source, target)
            except OSError:
                shutil.copyfile(source, target)
        except OSError as error:
            raise InputError(f"{source.name} did not arrive whole; upload it again") from error
        self.uploads.add(source)
        return target

    def begin(self, path: Path, name: str) -> None:
        """Another capture: what belonged to the one before goes."""
        for number in list(self.runs):
            self.drop(number)
        if self.path is not None and self.path != path:
            _remove(self.folder / self.path.relative_to(self.folder).parts[0])
        self.path, self.name, self.report = path, name, None
        self.reading, self.prepare = Reading(), []
        self.captures += 1

    def keep(self, run: Run) -> None:
        """The result, in place of an older one of the same method."""
        for number, other in list(self.runs.items()):
            if other.method == run.method:
                self.drop(number)
        self.runs[run.number] = run
        while len(self.runs) > _MOST_RUNS:
            self.drop(min(self.runs))

    def drop(self, number: int) -> None:
        run = self.runs.pop(number, None)
        if run is not None:
            _remove(run.folder)

    def discard(self, folder: Path) -> None:
        """A folder of this page that nobody needs."""
        _remove(folder)

    def offer(self, path: Path) -> str:
        """The address at which this page can download a file of its folder."""
        self.offered[path.parent.name, path.name] = path
        return f"studio/{self.token}/extra/{path.parent.name}/{quote(path.name)}"

    def spoken(self, text: str) -> str:
        """A sentence without the folder that nobody but us knows."""
        return re.sub(re.escape(f"{self.folder}{os.sep}") + r"\d+" + re.escape(os.sep), "", text)

    def stop(self) -> None:
        """End what runs for this page."""
        self.cancelled = True
        job = self.job
        if job is not None:
            job.stop()


class Sessions:
    """All pages, by the name that the browser gave itself."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._all: dict[str, Session] = {}

    def of(self, key: str) -> Session:
        with self._lock:
            now = time.monotonic()
            old = [k for k, s in self._all.items() if now - s.used > _FORGOTTEN and s.job is None]
            if key not in self._all:
                folder = self.root / secrets.token_hex(12)
                folder.mkdir(parents=True, mode=0o700)
                self._all[key] = Session(folder)
            session = self._all[key]
            session.used = now
        for forgotten in old:
            self.close(forgotten)
        return session

    def by_token(self, token: str) -> Session | None:
        """The page whose addresses hold this secret."""
        with self._lock:
            found = [s for s in self._all.values() if secrets.compare_digest(s.token.encode(), token.encode())]
        return found[0] if found else None

    def close(self, key: str) -> None:
        with self._lock:
            session = self._all.pop(key, None)
            used = set().union(*(other.uploads for other in self._all.values()))
        if session is None:
            return
        session.stop()
        _remove(session.folder)
        for upload in session.uploads - used:
            _remove(upload)
            with suppress(OSError):
                upload.parent.rmdir()  # Gradio's, for this file alone

        timer = threading.Timer(_SETTLED + 0.1, self.sweep)
        timer.daemon = True
        timer.start()

    def sweep(self) -> None:
        """Remove what Gradio leaves of receiving a file, once nobody can be sending it any more."""
        patience = _FORGOTTEN if self._all else _SETTLED
        for path in (self.root.parent / "uploads").glob("tmp*"):
            with suppress(OSError):
                if path.is_file() and time.time() - path.stat().st_mtime > patience:
                    path.unlink()

    def close_all(self) -> None:
        for key in list(self._all):
            self.close(key)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.unlink(missing_ok=True)
