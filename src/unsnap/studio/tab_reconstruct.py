"""The tab Reconstruct: a capture in, the doctor's findings, a method, and the film with its downloads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from unsnap.doctor import ALIGNMENT
from unsnap.errors import InputError
from unsnap.io.formats import suffixes
from unsnap.methods import DEFAULT, get
from unsnap.simulate.recording import Recording
from unsnap.studio import cards, films
from unsnap.studio.core import StoppedError, Studio
from unsnap.studio.jobs import Message
from unsnap.studio.reading import clicks
from unsnap.studio.sessions import Run, Session
from unsnap.studio.watching import FREE, Watched, method_choices, session_of, waiting

BUILT_IN = {
    "128×128, quick": "128x128",
    "256×256, as in `unsnap demo`": "256x256",
    "64×64, tiny": "64x64",
}
READABLE = [*suffixes(lambda kind: kind.is_readable), ".zip"]
LOOKS = {"as it is": "", "stretched": "auto", "frames equally bright": "equalise", "both": "auto-equalise"}
_CLICKED = """element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-remedy]');
  if (button) trigger('click', {remedy: Number(button.dataset.remedy)});
});"""


class Reconstruct:
    """The tab's parts and what they do."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        with gr.Row(equal_height=False):
            with gr.Column(scale=2, min_width=320):
                self.file = gr.File(
                    label="Drop a capture: .mat .npz .h5 .tif, or a zipped folder",
                    file_count="single",
                    file_types=READABLE,
                    type="filepath",
                    elem_id="capture",
                    height=150,
                )
                with gr.Accordion("Its masks are in another file", open=False):
                    self.masks = gr.File(
                        label="Masks", file_count="single", file_types=READABLE, type="filepath", height=100,
                        elem_id="masks",
                    )  # fmt: skip
                with gr.Row():
                    self.size = gr.Dropdown(list(BUILT_IN), label="Or a rendered scene", elem_id="built-in-size")
                    self.built_in = gr.Button("Take it", elem_id="built-in", min_width=110, scale=0)
                self.findings = gr.HTML(elem_id="findings", js_on_load=_CLICKED)
            with gr.Column(scale=3, min_width=320):
                self.method = gr.Dropdown([DEFAULT], value=DEFAULT, label="Method", elem_id="method", filterable=True)
                self.about = gr.HTML(elem_id="about")
                with gr.Row():
                    self.go = gr.Button("Reconstruct", variant="primary", elem_id="go", interactive=False)
                    self.stop = gr.Button("Stop", elem_id="stop", interactive=False)
                self.anyway = gr.Checkbox(
                    False, label="Go on though the masks are certainly misplaced (--anyway)", visible=False,
                    elem_id="anyway",
                )  # fmt: skip
                self.progress = gr.HTML(elem_id="progress")
                self.film = gr.HTML(elem_id="film")
                self.look = gr.Radio(list(LOOKS), value="as it is", label="Contrast", elem_id="look", visible=False)
                self.downloads = gr.HTML(elem_id="downloads")
        self._connect()

    def _connect(self) -> None:
        after = [self.findings, self.method, self.about, self.go, self.stop, self.anyway, self.progress]
        shown = [*after, self.film, self.look, self.downloads]
        gr.on(
            [self.file.upload, self.masks.upload, self.masks.clear],
            self.uploaded, [self.file, self.masks], shown, **FREE,
        )  # fmt: skip
        self.built_in.click(self.take_built_in, self.size, shown, **FREE)
        self.findings.click(self.remedied, None, shown, **FREE)
        gr.on([self.method.change], self.chosen, self.method, self.about, **FREE)
        ran = [self.go, self.stop, self.progress, self.film, self.look, self.downloads]
        self.go.click(self.run, [self.method, self.anyway, self.look], ran, **FREE)
        self.stop.click(self.stopped, None, None, queue=False, api_visibility="private")
        self.look.change(self.looked, self.look, [self.film, self.downloads], **FREE)

    # ------------------------------------------------------------------ captures

    def uploaded(self, file: str | None, masks: str | None, request: gr.Request) -> Iterator[dict[Any, Any]]:
        session = session_of(self.studio, request)
        if file is None:
            return
        yield from self.guarded(self._upload(session, file, masks))

    def _upload(self, session: Session, file: str, masks: str | None) -> Iterator[dict[Any, Any]]:
        self.studio.upload(session, file, masks)
        yield from self._examined(session)

    def take_built_in(self, size: str, request: gr.Request) -> Iterator[dict[Any, Any]]:
        session, recording = (
            session_of(self.studio, request),
            Recording(snapshots=2, size=BUILT_IN.get(size, "128x128")),
        )
        yield from self.guarded(self._built_in(session, recording))

    def _built_in(self, session: Session, recording: Recording) -> Iterator[dict[Any, Any]]:
        for message in self.studio.record(session, None, recording):
            yield self._working(message, "Rendering the scene …")
        yield from self._examined(session)

    def remedied(self, event: gr.EventData, request: gr.Request) -> Iterator[dict[Any, Any]]:
        yield from self.guarded(self._remedied(session_of(self.studio, request), int(event.remedy)))

    def _remedied(self, session: Session, number: int) -> Iterator[dict[Any, Any]]:
        remedy = clicks((session.report or {"findings": []})["findings"]).get(number)
        if remedy is None:
            raise InputError("this finding has no remedy that a click could apply")
        for message in self.studio.remedy(session, remedy):
            yield self._working(message, message.get("stage", "Applying it …"))
        yield from self._examined(session)

    def _examined(self, session: Session) -> Iterator[dict[Any, Any]]:
        pictures: list[Any] = []
        yield {self.film: "", self.downloads: "", self.look: gr.update(visible=False), self.findings: "",
               self.about: "", self.go: gr.update(interactive=False)}  # fmt: skip
        for message in self.studio.examine(session):
            pictures = message.get("pictures", pictures)
            yield self._working(message, f"Asking the doctor about {session.name} …")
        report = session.report or {"findings": [], "fatal": True}
        applied = session.reading.words()
        misplaced = any(f["level"] == "fatal" and f["subject"] == ALIGNMENT for f in report["findings"])
        hopeless = any(f["level"] == "fatal" and f["subject"] != ALIGNMENT for f in report["findings"])
        choices = method_choices(self.studio, session)
        for finding in report["findings"]:
            finding["text"] = session.spoken(finding["text"])
        chosen = next((name for name in (DEFAULT, "gap-tv") if name in [v for _, v in choices]), None)
        yield {
            self.findings: cards.findings(report, pictures, session.name, applied),
            self.method: gr.update(choices=choices, value=chosen),
            self.about: self._about(session, chosen),
            self.go: gr.update(interactive=not hopeless and chosen is not None),
            self.anyway: gr.update(visible=misplaced, value=False),
            self.progress: "",
        }

    # ------------------------------------------------------------------ methods

    def chosen(self, name: str | None, request: gr.Request) -> str:
        return self._about(session_of(self.studio, request), name)

    def _about(self, session: Session, name: str | None) -> str:
        if name is None or session.report is None:
            return ""
        method = get(name)
        return cards.method(method, self.studio.expected(method, session.report), session.report["refused"].get(name))

    # ------------------------------------------------------------------ runs

    def run(self, method: str, anyway: bool, look: str, request: gr.Request) -> Iterator[dict[Any, Any]]:
        session = session_of(self.studio, request)
        yield {self.go: gr.update(interactive=False), self.stop: gr.update(interactive=True)}
        try:
            yield from self._run(session, method, anyway, LOOKS[look])
        except StoppedError:
            yield {self.progress: cards.note("Stopped. Nothing is kept of it.")}
        except InputError as error:
            yield {self.progress: cards.problem(str(error))}
        yield {self.go: gr.update(interactive=True), self.stop: gr.update(interactive=False)}

    def _run(self, session: Session, name: str, anyway: bool, look: str) -> Iterator[dict[Any, Any]]:
        watched = Watched(name)
        for message in self.studio.reconstruct(session, name, anyway):
            if "run" in message:
                yield {self.progress: summary(message["run"]), **self._films(session, look)}
            elif watched.take(message):
                yield {self.progress: watched.html()}

    def _films(self, session: Session, look: str) -> dict[Any, Any]:
        return {
            self.film: films.viewer(session, look),
            self.look: gr.update(visible=bool(session.runs)),
            self.downloads: downloads(session, look),
        }

    def looked(self, look: str, request: gr.Request) -> dict[Any, Any]:
        session = session_of(self.studio, request)
        return {self.film: films.viewer(session, LOOKS[look]), self.downloads: downloads(session, LOOKS[look])}

    def stopped(self, request: gr.Request) -> None:
        session_of(self.studio, request).stop()

    # ------------------------------------------------------------------ helpers

    def _working(self, message: Message, words: str) -> dict[Any, Any]:
        return {self.progress: cards.note(waiting(message) or words), self.stop: gr.update(interactive=True)}

    def guarded(self, parts: Iterator[dict[Any, Any]]) -> Iterator[dict[Any, Any]]:
        """What went wrong as one sentence on the page."""
        try:
            yield from parts
        except StoppedError:
            yield {self.progress: cards.note("Stopped.")}
        except InputError as error:
            yield {self.progress: cards.problem(str(error))}
        yield {self.stop: gr.update(interactive=False)}


def summary(run: Run) -> str:
    """What came out, in two lines, and how it converged."""
    r = run.result
    if r["diverged"]:
        return cards.problem(f"{run.method} diverged after {r['iterations']} iterations; there is no video to show")
    quality = "" if r["psnr"] is None else f" PSNR {r['psnr']:.2f} dB, SSIM {r['ssim']:.4f}."
    size = f"{r['snapshots']} × {r['frames']} frames of {r['height']}×{r['width']}"
    text = f"{run.method}: {size} in {r['seconds']:.2f} s, {r['iterations']} iterations.{quality}"
    warning = ""
    if not r["converged"]:
        told = f"the last change {r['residual']:.1e} is above {r['tolerance']:.1e}"
        warning = cards.problem(f"It did not converge: {told}; downloads are called …-unconverged")
    curve = cards.curve(enumerate(run.history, 1), "relative change", log=True)
    return (
        f'<section class="running done"><p>{cards.safe(text)}</p>{warning}<div class="curves">{curve}</div></section>'
    )


def downloads(session: Session, look: str) -> str:
    """Links to the newest result in every format, and the commands that write the same bytes."""
    runs = [run for run in session.runs.values() if not run.result["diverged"]]
    if not runs:
        return ""
    run = runs[-1]
    links = "".join(
        f'<a href="studio/{session.token}/film/{run.number}/{look or "plain"}/{kind}" '
        f'download="{cards.safe(films.download_name(session, run, kind))}">{kind.upper()}</a>'
        for kind in films.FORMATS
    )
    links += "".join(cards.link(session.offer(p), p.name) for p in (run.reading.masks, run.reading.camera) if p)
    lines = films.command_of(session, run, "mp4", look)
    label = (
        f"The same bytes by the command line ({Path(session.name).name} where you have it; .gif, .tif, .npz likewise)"
    )
    title = f"<b>Download the film of {cards.safe(run.method)}</b>"
    return f'<div class="downloads">{title}{links}</div>{cards.code(lines, label)}'
