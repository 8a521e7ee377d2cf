"""The tab Camera: simulate a coded camera, see its snapshot, misplace its masks, and calibrate it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from unsnap.errors import InputError
from unsnap.io.formats import suffixes
from unsnap.simulate.recording import Recording
from unsnap.studio import cards, films, work_models
from unsnap.studio.core import Studio
from unsnap.studio.reading import command
from unsnap.studio.sessions import Session
from unsnap.studio.tab_reconstruct import downloads, summary
from unsnap.studio.watching import FREE, Watched, guarded, session_of, waiting

_CLIPS = [*suffixes(lambda kind: kind.holds_video), ".zip"]
_QUICK = ["gap-tv", "gap-tv3d", "admm-tv3d", "gap-wnnm", "shift-wnnm", "de-gap"]


class CameraTab:
    """The tab's parts and what they do."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=300):
                self.clip = gr.File(
                    label="Drop a clip, or leave it empty for the rendered scene", file_types=_CLIPS, type="filepath",
                    height=150, elem_id="clip",
                )  # fmt: skip
                self.size = gr.Dropdown(
                    ["64x64", "128x128", "256x256"], value="128x128", label="Size of the rendered scene"
                )
                self.frames = gr.Slider(2, 32, 8, step=1, label="Frames per snapshot, T", elem_id="camera-frames")
                self.mask = gr.Radio(["bernoulli", "shifted", "gray"], value="bernoulli", label="Masks")
                self.noise = gr.Slider(0, 0.2, 0, step=0.005, label="Gaussian noise, in units of one white frame")
                self.photons = gr.Slider(0, 5000, 0, step=100, label="Electrons of one white frame (0: no shot noise)")
                self.bits = gr.Slider(0, 16, 0, step=1, label="Bits of the converter (0: exact)")
                self.simulate = gr.Button("Take the snapshot", variant="primary", elem_id="simulate")
            with gr.Column(scale=3, min_width=320):
                self.seen = gr.HTML(elem_id="camera-seen")
                with gr.Row():
                    self.method = gr.Dropdown(_QUICK, value="gap-tv", label="Method", elem_id="camera-method")
                    self.go = gr.Button("Reconstruct it", elem_id="camera-go", interactive=False)
                    self.stop = gr.Button("Stop", elem_id="camera-stop", interactive=False)
                self.progress = gr.HTML(elem_id="camera-progress")
                self.film = gr.HTML(elem_id="camera-film")
                self.downloads = gr.HTML()
        with gr.Accordion("Calibration: where were the masks really?", open=False, elem_id="calibration"):
            gr.HTML(cards.note(
                "Somebody touched the camera after its masks were recorded: move them, calibrate from the snapshots "
                "alone, and compare. It works on any capture that is open in this page."
            ))  # fmt: skip
            with gr.Row():
                self.down = gr.Slider(-3, 3, 0.8, step=0.1, label="Move the masks down (pixels)")
                self.right = gr.Slider(-3, 3, -0.6, step=0.1, label="… and to the right")
                self.move = gr.Button("Misplace them", elem_id="misplace")
                self.calibrate = gr.Button("Calibrate", elem_id="calibrate")
            self.calibrated = gr.HTML(elem_id="calibrated")
        self._connect()

    def _connect(self) -> None:
        settings = [self.clip, self.size, self.frames, self.mask, self.noise, self.photons, self.bits]
        parts = [self.seen, self.go, self.stop, self.progress, self.film, self.downloads, self.calibrated]
        self.simulate.click(self.taken, settings, parts, **FREE)
        self.go.click(self.run, self.method, parts, **FREE)
        self.move.click(self.misplaced, [self.down, self.right], parts, **FREE)
        self.calibrate.click(self.calibrating, None, parts, **FREE)
        self.stop.click(self.stopped, None, None, queue=False, api_visibility="private")

    def taken(
        self, clip: str | None, size: str, frames: int, mask: str, noise: float, photons: float, bits: int,
        request: gr.Request,
    ) -> Iterator[dict[Any, Any]]:  # fmt: skip
        recording = Recording(
            frames=int(frames), snapshots=2, mask=mask, noise=noise, photons=photons or None, bits=int(bits) or None,
            size=Recording.size if clip else size,
        )  # fmt: skip
        session = session_of(self.studio, request)
        yield from guarded(self._taken(session, clip, recording), self.seen, self.stop)

    def _taken(self, session: Session, clip: str | None, recording: Recording) -> Iterator[dict[Any, Any]]:
        yield {self.film: "", self.downloads: "", self.progress: "", self.calibrated: "",
               self.go: gr.update(interactive=False), self.stop: gr.update(interactive=True)}  # fmt: skip
        for message in self.studio.record(session, clip, recording):
            yield {self.seen: cards.note(waiting(message) or "Taking the snapshot …")}
        pictures: list[Any] = []
        for message in self.studio.examine(session):
            pictures = message.get("pictures", pictures)
        path = session.path
        link = "" if path is None else f'<div class="downloads">{cards.link(session.offer(path), path.name)}</div>'
        seen = cards.strip(pictures, ("snapshot", "first mask")) if pictures else ""
        yield {self.seen: seen + link + cards.code(session.prepare, "By the command line"),
               self.go: gr.update(interactive=bool(pictures))}  # fmt: skip

    def run(self, method: str, request: gr.Request) -> Iterator[dict[Any, Any]]:
        yield from guarded(self._run(session_of(self.studio, request), method), self.progress, self.stop)

    def _run(self, session: Session, method: str) -> Iterator[dict[Any, Any]]:
        yield {self.stop: gr.update(interactive=True)}
        watched = Watched(method)
        for message in self.studio.reconstruct(session, method, anyway=True):
            if "run" in message:
                yield {self.progress: summary(message["run"]), self.film: films.viewer(session, ""),
                       self.downloads: downloads(session, "")}  # fmt: skip
            elif watched.take(message):
                yield {self.progress: watched.html()}

    def misplaced(self, down: float, right: float, request: gr.Request) -> Iterator[dict[Any, Any]]:
        yield from guarded(self._misplaced(session_of(self.studio, request), down, right), self.calibrated, self.stop)

    def _misplaced(self, session: Session, down: float, right: float) -> Iterator[dict[Any, Any]]:
        path = _capture(session)
        target = session.new_folder() / f"{Path(session.name).stem}-masks.npz"
        session.reading = replace(session.reading, camera=None, masks=None)
        job = self.studio.run(session, work_models.misplaced, path, session.reading, (down, right), target)
        for message in job:
            yield {self.calibrated: cards.note(waiting(message) or "Moving the masks …")}
        session.reading = replace(session.reading, masks=target)
        told = f"The masks now lie {down:+.1f} rows and {right:+.1f} columns off, as the file {target.name}."
        link = f'<div class="downloads">{cards.link(session.offer(target), target.name)}</div>'
        yield {self.calibrated: cards.note(told) + link}

    def calibrating(self, request: gr.Request) -> Iterator[dict[Any, Any]]:
        yield from guarded(self._calibrating(session_of(self.studio, request)), self.calibrated, self.stop)

    def _calibrating(self, session: Session) -> Iterator[dict[Any, Any]]:
        path = _capture(session)
        target = session.new_folder() / f"{Path(session.name).stem}-camera.npz"
        session.reading = replace(session.reading, camera=None)
        watched = Watched("calibration")
        yield {self.stop: gr.update(interactive=True)}
        for message in self.studio.run(session, work_models.before_after, path, session.reading, target):
            if "facts" in message:
                if message["changed"]:
                    session.reading = replace(session.reading, camera=target)
                line = command(
                    "calibrate", session.name, *replace(session.reading, camera=None).words(), "-o", target.name
                )
                link = f'<div class="downloads">{cards.link(session.offer(target), target.name)}</div>'
                seen = cards.strip(message["pictures"], ("before", "after"))
                yield {
                    self.calibrated: seen + found(message["facts"]) + link + cards.code([line], "By the command line")
                }
            elif watched.take(message):
                yield {self.calibrated: watched.html()}

    def stopped(self, request: gr.Request) -> None:
        session_of(self.studio, request).stop()


def _capture(session: Session) -> Path:
    if session.path is None:
        raise InputError("there is no capture yet; take a snapshot first, or open one under Reconstruct")
    return session.path


def found(facts: dict[str, Any]) -> str:
    """What the calibration found, and how much less is left unexplained."""
    shifts = zip(facts["shift"], facts["uncertainty"]["shift"], strict=True)
    left = [f"{100 * facts[name]:.2f} %" for name in ("objective_before", "objective_after")]
    rows = [
        ["shift (rows, columns)", ", ".join(f"{s:+.3f} ± {e:.3f}" for s, e in shifts)],
        ["rotation", f"{facts['rotation']:+.4f}°"],
        ["blur", f"{facts['blur']:.2f} pixels"],
        ["not explained of unseen pixels", " → ".join(left)],
    ]
    verdict = "what was found is applied to this capture" if facts["changed"] else "the masks are where they should be"
    return cards.table(("what", "found"), rows, f"Calibration: {verdict}")
