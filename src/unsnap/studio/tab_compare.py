"""The tab Compare: several methods on the page's capture, a table and a plot that grow as they finish."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from unsnap.bench.pictures import psnr_time_plot
from unsnap.errors import InputError
from unsnap.methods import DEFAULT, get
from unsnap.run import Result
from unsnap.studio import cards, films
from unsnap.studio.core import StoppedError, Studio
from unsnap.studio.reading import command
from unsnap.studio.sessions import Session
from unsnap.studio.watching import FREE, Watched, method_choices, session_of

_USUAL = ("gap-tv", "gap-tv3d", DEFAULT)
_NONE = "Open a capture under Reconstruct first, or take the built-in scene there."


class Compare:
    """The tab's parts and what they do."""

    def __init__(self, studio: Studio, tab: Any) -> None:
        self.studio = studio
        self.hint = gr.HTML(cards.note(_NONE), elem_id="compare-hint")
        self.methods = gr.CheckboxGroup([], label="Methods", elem_id="compare-methods")
        with gr.Row():
            self.go = gr.Button("Compare", variant="primary", elem_id="compare-go")
            self.stop = gr.Button("Stop", elem_id="compare-stop", interactive=False)
        self.progress = gr.HTML(elem_id="compare-progress")
        self.table = gr.HTML(elem_id="compare-table")
        with gr.Row(equal_height=False):
            self.plot = gr.HTML(elem_id="compare-plot")
            self.film = gr.HTML(elem_id="compare-film")
        tab.select(self.opened, self.methods, [self.hint, self.methods], **FREE)
        parts = [self.go, self.stop, self.progress, self.table, self.plot, self.film]
        self.go.click(self.run, self.methods, parts, **FREE)
        self.stop.click(self.stopped, None, None, queue=False, api_visibility="private")

    def opened(self, before: list[str], request: gr.Request) -> dict[Any, Any]:
        """What can be compared now; what was chosen before stays so."""
        session = session_of(self.studio, request)
        choices = method_choices(self.studio, session)
        usual = [name for _, name in choices if name in (before or _USUAL)]
        hint = cards.note(f"Capture: {session.name}") if choices else cards.note(_NONE)
        return {self.hint: hint, self.methods: gr.update(choices=choices, value=usual)}

    def run(self, names: list[str], request: gr.Request) -> Iterator[dict[Any, Any]]:
        session = session_of(self.studio, request)
        yield {self.go: gr.update(interactive=False), self.stop: gr.update(interactive=True), self.table: "",
               self.plot: "", self.film: ""}  # fmt: skip
        try:
            yield from self._run(session, names)
        except StoppedError:
            yield {self.progress: cards.note("Stopped. What had finished stays.")}
        except InputError as error:
            yield {self.progress: cards.problem(str(error))}
        yield {self.go: gr.update(interactive=True), self.stop: gr.update(interactive=False)}

    def _run(self, session: Session, names: list[str]) -> Iterator[dict[Any, Any]]:
        if not names:
            raise InputError("there is no method to compare; choose at least one")
        results: list[Result] = []
        folder = session.new_folder()
        for name in sorted(names, key=lambda n: self.studio.expected(get(n), session.report) or 1e9):
            watched = Watched(name)
            for message in self.studio.reconstruct(session, name, anyway=True, alone=True):
                if "run" in message:
                    results.append(Result(**message["run"].result))
                    yield {self.table: table(results), self.plot: plot(results, folder / "plot.png"),
                           self.film: films.viewer(session, "")}  # fmt: skip
                elif watched.take(message):
                    yield {self.progress: watched.html()}
        line = command(
            "compare", session.name, *session.reading.words(), "--methods", ",".join(names), "-o",
            f"{Path(session.name).stem}-compare",
        )  # fmt: skip
        yield {self.progress: cards.code([*session.prepare, line], "The same by the command line")}

    def stopped(self, request: gr.Request) -> None:
        session_of(self.studio, request).stop()


def table(results: list[Result]) -> str:
    """One row per method, best first where the truth is known."""
    ranked = sorted(results, key=lambda r: -(r.psnr or 0.0))
    rows = [
        [
            r.method,
            get(r.method).family,
            "–" if r.psnr is None else f"{r.psnr:.2f}",
            "–" if r.ssim is None else f"{r.ssim:.4f}",
            f"{r.seconds:.2f}",
            str(r.iterations),
            "diverged" if r.diverged else "yes" if r.converged else "no",
        ]
        for r in ranked
    ]
    heads = ("method", "family", "PSNR (dB)", "SSIM", "seconds", "iterations", "converged")
    return cards.table(heads, rows, f"{len(results)} finished")


def plot(results: list[Result], path: Path) -> str:
    """PSNR against time, as `unsnap compare` draws it; nothing without truth."""
    if all(result.psnr is None for result in results):
        return ""
    psnr_time_plot(results, path)
    return cards.embedded(path, "PSNR against CPU seconds")
