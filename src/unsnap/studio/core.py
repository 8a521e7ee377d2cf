"""What all tabs share: pages, the queue, jobs, and how long a method will take here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

from unsnap.errors import InputError
from unsnap.methods import Method, get
from unsnap.simulate.recording import Recording
from unsnap.studio import work
from unsnap.studio.jobs import Job, Message, Work
from unsnap.studio.reading import Remedy, command
from unsnap.studio.sessions import Run, Session, Sessions
from unsnap.studio.turns import Turns

_UNIT = 8 * 256 * 256  # values of the video that a method's `cpu_seconds` are for


class StoppedError(Exception):
    """Its owner stopped the computation."""


class Studio:
    """The studio behind the page. limit: bytes that reading files may use, if the user named an amount."""

    def __init__(self, root: Path, workers: int = 1, limit: int | None = None) -> None:
        self.sessions, self.turns, self.limit = Sessions(root / "pages"), Turns(workers), limit
        self._factor: dict[str, float] = {}
        self._usual = self._busy = 1.0

    def run(self, session: Session, work: Work, *args: Any) -> Iterator[Message]:
        """What a job tells, once it is its turn; {"ahead": n} while it is not, {} when there is nothing new.

        StoppedError if it was stopped, InputError (without our folders' names) if it failed.
        """
        if session.job is not None:
            raise InputError("this page is computing something already; wait for it, or stop it")
        session.cancelled = False
        ticket = self.turns.ask(session.token)
        try:
            while ahead := self.turns.ahead(ticket):
                if session.cancelled:
                    raise StoppedError
                yield {"ahead": ahead}
            session.job = Job(work, *args, limit=self.limit)
            for message in session.job.messages():
                yield message or {}
            if session.cancelled:
                raise StoppedError
        except InputError as error:
            raise InputError(session.spoken(str(error))) from error
        finally:
            if session.job is not None:
                session.job.stop()
                session.job = None
            self.turns.leave(ticket)

    # ------------------------------------------------------------------ captures

    def upload(self, session: Session, file: str, masks: str | None = None) -> Path:
        """Make an uploaded file the page's capture."""
        folder = session.new_folder()
        path = session.take(file, folder)
        session.begin(path, path.name)
        if masks is not None:
            session.reading = replace(session.reading, masks=session.take(masks, session.new_folder()))
        return path

    def record(self, session: Session, clip: str | None, recording: Recording) -> Iterator[Message]:
        """Make what a camera records of a clip, or of the rendered scene, the page's capture."""
        target = session.new_folder() / ("built-in.npz" if clip is None else f"{Path(clip).stem}-scene.npz")
        source = None if clip is None else session.take(clip, session.new_folder())
        yield from self.run(session, work.simulate, source, recording, target)
        session.begin(target, target.name)
        session.prepare = [simulate_line(None if clip is None else Path(clip).name, recording, target.name)]

    def examine(self, session: Session) -> Iterator[Message]:
        """Ask the doctor; the report is remembered."""
        path = _known(session)
        session.report = None
        for message in self.run(session, work.examine, path, session.reading):
            if "path" in message and message["path"] != session.path:
                unpacked: Path = message["path"]
                session.path = unpacked
                session.prepare = [shlex.join(["unzip", session.name, "-d", Path(session.name).stem])]
                session.name = str(unpacked.relative_to(path.parent))
            if "report" in message:
                session.report = message["report"]
            yield message

    def remedy(self, session: Session, remedy: Remedy) -> Iterator[Message]:
        """Change how the capture is read as a finding asks."""
        path, reading = _known(session), session.reading
        if remedy.turn:
            target = session.new_folder() / f"{Path(session.name).stem}-masks.npz"
            yield from self.run(session, work.turned, path, reading, remedy.turn, target)
            reading = replace(reading, masks=target, transpose_masks=False, time_axis=None)
        if remedy.calibrate:
            target = session.new_folder() / f"{Path(session.name).stem}-camera.npz"
            yield from self.run(session, work.calibrated, path, reading, target)
            reading = replace(reading, camera=target)
        session.reading = remedy.applied(reading)

    def reconstruct(self, session: Session, method: str, anyway: bool, alone: bool = False) -> Iterator[Message]:
        """Run a method on the page's capture; the last message holds the finished `run`."""
        path, folder, capture, reading = _known(session), session.new_folder(), session.captures, session.reading
        done = False
        try:
            for message in self.run(session, work.reconstruct, path, reading, method, anyway, folder, alone):
                if "result" not in message:
                    yield message
                    continue
                result = message["result"]
                number = int(folder.name)
                history, look = message["history"], message["look"]
                run = Run(number, method, folder, result, look, reading, anyway, history, alone, capture)
                if session.captures == capture:
                    session.keep(run)
                    done = True
                self._learn(method, result)
                yield {"run": run}
        finally:
            if not done:
                session.discard(folder)

    # ------------------------------------------------------------------ how long

    def measure_speed(self) -> None:
        """Compare this machine with the developers', in the background."""

        def measured() -> None:
            for message in Job(work.speed).messages():
                self._usual = (message or {}).get("factor", self._usual)

        Thread(target=measured, daemon=True).start()

    def expected(self, method: Method, report: dict[str, Any] | None) -> float | None:
        """Seconds that a method will take for this file, or None if nobody knows."""
        if method.cpu_seconds is None or report is None or "values" not in report:
            return None
        factor = self._factor.get(method.name, self._usual * self._busy)
        return float(factor * method.cpu_seconds * report["values"] / _UNIT)

    def _learn(self, name: str, result: dict[str, Any]) -> None:
        """What it took this time tells what it will take the next, and how busy the machine is for all others."""
        seconds = get(name).cpu_seconds
        values = result["snapshots"] * result["frames"] * result["height"] * result["width"]
        if seconds and result["seconds"]:
            self._factor[name] = result["seconds"] / (seconds * values / _UNIT)
        if result["cpu_seconds"] > 0.2:
            self._busy = result["seconds"] / result["cpu_seconds"]


def _known(session: Session) -> Path:
    if session.path is None:
        raise InputError("there is no capture yet; drop a file, or take the built-in scene")
    return session.path


def simulate_line(video: str | None, recording: Recording, output: str) -> str:
    """The command that writes the same scene file."""
    words: list[str] = ["simulate", *([video] if video else []), "-o", output]
    usual = Recording()
    for name, value in vars(recording).items():
        if value != getattr(usual, name):
            text = f"{value:.9g}" if isinstance(value, float) else str(value)
            words += [f"--{name.replace('_', '-')}", text]
    return command(*words)
