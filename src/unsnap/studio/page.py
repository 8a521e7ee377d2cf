"""The page: its tabs, and what happens when it is opened and closed."""

from __future__ import annotations

from typing import Any

import gradio as gr

from unsnap.studio import tab_equations
from unsnap.studio.core import Studio
from unsnap.studio.tab_camera import CameraTab
from unsnap.studio.tab_compare import Compare
from unsnap.studio.tab_models import Models
from unsnap.studio.tab_reconstruct import Reconstruct

_FONT = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]


def theme() -> Any:
    """Calm colours; fonts of the reader's own machine."""
    return gr.themes.Base(
        primary_hue="blue",
        neutral_hue="slate",
        font=_FONT,
        font_mono=["ui-monospace", "Menlo", "Consolas", "monospace"],
    )


def page(studio: Studio) -> Any:
    """All tabs."""
    with gr.Blocks(title="unsnap studio", analytics_enabled=False, delete_cache=(3600, 24 * 3600)) as blocks:
        gr.HTML("<h1>unsnap studio</h1><p>One coded snapshot in, its video out.</p>", elem_id="title")
        with gr.Tabs():
            with gr.Tab("Reconstruct", id="reconstruct"):
                Reconstruct(studio)
            with gr.Tab("Compare", id="compare") as compare:
                Compare(studio, compare)
            with gr.Tab("Camera", id="camera"):
                CameraTab(studio)
            with gr.Tab("Equations", id="equations"):
                tab_equations.build()
            with gr.Tab("Models", id="models"):
                Models(studio)

        def closed(request: gr.Request) -> None:
            studio.sessions.close(str(request.session_hash))

        blocks.unload(closed)
    return blocks
