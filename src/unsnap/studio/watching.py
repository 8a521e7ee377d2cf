"""What several tabs do: find the page's session, offer methods, and show how a method is getting on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from unsnap.errors import InputError
from unsnap.methods import everything
from unsnap.studio import cards
from unsnap.studio.core import StoppedError, Studio
from unsnap.studio.jobs import Message
from unsnap.studio.sessions import Session

FREE: dict[str, Any] = {"concurrency_limit": None, "show_progress": "hidden", "api_visibility": "private"}
"""Of every event: our own queue decides whose turn it is, and the page has no public interface."""


def session_of(studio: Studio, request: gr.Request) -> Session:
    return studio.sessions.of(str(request.session_hash))


def method_choices(studio: Studio, session: Session) -> list[tuple[str, str]]:
    """Methods that can serve the page's capture, each with the time that it will take."""
    report = session.report or {}
    found = []
    for method in everything():
        if report.get("refused", {}).get(method.name, "unknown") is None:
            seconds = studio.expected(method, report)
            time = "" if seconds is None else f"  ≈ {cards.in_words(seconds)}"
            found.append((f"{method.name} · {method.family}{time}", method.name))
    return found


def waiting(message: Message) -> str:
    """What somebody reads whose turn has not come; empty if it has."""
    ahead = message.get("ahead", 0)
    return f"Waiting: {ahead} computation{'s' * (ahead > 1)} of others before this one." if ahead else ""


class Watched:
    """What a running method has told so far, as a piece of the page."""

    def __init__(self, name: str) -> None:
        self.name, self.words, self.share = name, f"{name}: reading the capture …", 0.0
        self.residual: list[tuple[float, float]] = []
        self.quality: list[tuple[float, float]] = []
        self.frames: list[Any] = []

    def take(self, message: Message) -> bool:
        """Whether there is something new worth drawing."""
        if "ahead" in message:
            self.words = waiting(message)
            return True
        if "stage" in message:
            self.words = message["stage"]
            self.share = message.get("share", self.share)
            return True
        if "iteration" in message:
            k = message["iteration"]
            self.share = k / max(message["total"], 1)
            self.residual.append((k, message["residual"]))
            self.words = f"{self.name}: iteration {k} of at most {message['total']}, change {message['residual']:.1e}"
            if "psnr" in message:
                self.quality.append((k, message["psnr"]))
            if self.quality:
                self.words += f", PSNR {self.quality[-1][1]:.2f} dB"
            self.frames = message.get("frames", self.frames)
        return "frames" in message or not message

    def html(self) -> str:
        curves = cards.curve(self.residual, "relative change", log=True)
        curves += cards.curve(self.quality, "PSNR (dB)", log=False)
        return cards.progress(self.words, self.share, self.frames, f'<div class="curves">{curves}</div>')


def guarded(parts: Iterator[dict[Any, Any]], place: Any, stop: Any) -> Iterator[dict[Any, Any]]:
    """What went wrong as one sentence where the result would be; then there is nothing to stop."""
    try:
        yield from parts
    except StoppedError:
        yield {place: cards.note("Stopped.")}
    except InputError as error:
        yield {place: cards.problem(str(error))}
    yield {stop: gr.update(interactive=False)}
