"""The tab Models: the shipped models, what is proven of them, how they converge; and a small one of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from unsnap import zoo
from unsnap.studio import cards, work_models
from unsnap.studio.core import Studio
from unsnap.studio.reading import command
from unsnap.studio.sessions import Session
from unsnap.studio.watching import FREE, Watched, guarded, session_of, waiting

_CROP = 48


class Models:
    """The tab's parts and what they do."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        names = zoo.names()
        with gr.Row(equal_height=False):
            with gr.Column(scale=3, min_width=320):
                self.name = gr.Dropdown(names, value=names[0], label="Shipped model", elem_id="model")
                with gr.Row():
                    self.certify = gr.Button("Certificate and convergence", variant="primary", elem_id="certify")
                    self.stop = gr.Button("Stop", elem_id="models-stop", interactive=False)
                self.certificate = gr.HTML(elem_id="certificate")
                with gr.Accordion("Its card", open=True):
                    self.card = gr.Markdown(zoo.card(names[0]), elem_id="card")
            with gr.Column(scale=2, min_width=320):
                gr.HTML(
                    cards.note("Train a small model on rendered clips, and watch its loss. Seconds show the way only.")
                )
                self.preset = gr.Dropdown(list(work_models.SMALL), value="denoiser", label="Kind", elem_id="preset")
                self.seconds = gr.Slider(5, 300, 20, step=5, label="Seconds", elem_id="seconds")
                self.train = gr.Button("Train", elem_id="train")
                self.trained = gr.HTML(elem_id="trained")
        self.name.change(zoo.card, self.name, self.card, **FREE)
        self.certify.click(self.certified, self.name, [self.certificate, self.stop], **FREE)
        self.train.click(self.training, [self.preset, self.seconds], [self.trained, self.stop], **FREE)
        self.stop.click(self.stopped, None, None, queue=False, api_visibility="private")

    def certified(self, name: str, request: gr.Request) -> Iterator[dict[Any, Any]]:
        yield {self.stop: gr.update(interactive=True)}
        yield from guarded(self._certified(session_of(self.studio, request), name), self.certificate, self.stop)

    def _certified(self, session: Session, name: str) -> Iterator[dict[Any, Any]]:
        watched = Watched(name)
        for message in self.studio.run(session, work_models.convergence, name, _CROP):
            if "certificate" in message:
                facts = message["certificate"]
                statement = facts.pop("statement")
                rows = [[key, _said(value)] for key, value in facts.items()]
                curve = cards.curve(enumerate(message["history"], 1), "residual on the built-in scene", log=True)
                line = cards.code([command("certify", name, "--crop", str(_CROP))], "By the command line")
                told = cards.table(("what", "value"), rows, f"{name}, built-in scene of {_CROP}×{_CROP}")
                yield {self.certificate: f'{cards.note(statement)}<div class="curves">{curve}</div>{told}{line}'}
            elif watched.take(message) or "iteration" in message:
                yield {self.certificate: watched.html()}

    def training(self, name: str, seconds: float, request: gr.Request) -> Iterator[dict[Any, Any]]:
        yield {self.stop: gr.update(interactive=True)}
        yield from guarded(self._training(session_of(self.studio, request), name, seconds), self.trained, self.stop)

    def _training(self, session: Session, name: str, seconds: float) -> Iterator[dict[Any, Any]]:
        folder = session.new_folder() / "run"
        losses: list[tuple[float, float]] = []
        for message in self.studio.run(session, work_models.train, name, min(max(seconds, 1.0), 300.0), folder):
            if "loss" in message:
                losses.append((message["step"], message["loss"]))
            if "model" in message:
                yield {self.trained: self._result(session, name, message, losses)}
            elif "draw" in message or "stage" in message or "ahead" in message:
                words = waiting(message) or message.get("stage") or f"{name}: step {losses[-1][0]:.0f}"
                curve = cards.curve(losses, "loss", log=False)
                yield {self.trained: cards.progress(words, message.get("share", 0.0), [], curve)}

    def _result(self, session: Session, name: str, message: dict[str, Any], losses: list[tuple[float, float]]) -> str:
        path = message["model"]
        scores = [[key, _said(value)] for key, value in message["scores"].items()]
        link = f'<div class="downloads">{cards.link(session.offer(path), path.name)}</div>'
        use = cards.code([command("reconstruct", "capture.mat", "--method", path.name)], "Use it")
        told = cards.table(("validation", "value"), scores, f"{name} after {message['steps']} steps") if scores else ""
        return f"{cards.curve(losses, 'loss', log=False)}{told}{link}{use}"

    def stopped(self, request: gr.Request) -> None:
        session_of(self.studio, request).stop()


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not finite" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
