"""The panel beside the picture: choose a method, watch the frames appear while it runs, stop it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from torch import Tensor

import unsnap
from unsnap.napari_plugin.reader import KEY, video_layer

_POLL = 200  # milliseconds between looks at the running method


class _StoppedError(Exception):
    """Leaves the method's loop when the user says so."""


@dataclass
class _Run:
    """One reconstruction in a thread of its own. The thread writes, the panel looks: only the panel touches Qt."""

    scene: Any
    method: str
    iterations: int | None
    done: int = 0
    x: Tensor | None = None
    words: str = "starting"
    over: bool = False
    stop: bool = False

    def go(self) -> None:
        try:
            solution = unsnap.reconstruct(
                self.scene.measurement,
                self.scene.operator,
                self.method,
                iterations=self.iterations,
                callback=self._watch,
            )
            verdict = "converged" if bool(solution.converged.all()) else "did not converge"
            self.x, self.words = solution.x, f"{verdict} after {solution.iterations} iterations"
            if self.scene.truth is not None:
                self.words += f", PSNR {unsnap.score(solution.x, self.scene.truth).psnr:.2f} dB"
        except _StoppedError:
            self.words = f"stopped after {self.done} iterations"
        except (ValueError, RuntimeError, MemoryError) as error:
            self.words = str(error)
        finally:
            self.over = True

    def _watch(self, iteration: int, x: Tensor, residual: Tensor) -> None:
        if self.stop:
            raise _StoppedError
        self.done, self.x = max(iteration, 0), x
        self.words = f"iteration {iteration}, change {float(residual.max()):.1e}"


def reconstruct_widget() -> Any:
    """The panel, as napari asks for it."""
    from magicgui.widgets import ComboBox, Container, Label, ProgressBar, PushButton, SpinBox

    here = sorted(name for name, method in unsnap.METHODS.items() if method.missing() is None)
    panel = Container(
        widgets=[
            ComboBox(name="capture", choices=_captures),
            ComboBox(name="method", choices=here, value="gap-tv3d"),
            SpinBox(name="iterations", min=0, max=100_000, value=0, tooltip="0: as many as the method takes"),
            PushButton(name="start", text="Reconstruct"),
            PushButton(name="stop", text="Stop", enabled=False),
            ProgressBar(name="bar", min=0, max=1, value=0),
            Label(name="words", value="open a capture, then press Reconstruct"),
        ]
    )
    panel.unsnap = _Panel(panel)  # signals hold their receivers weakly
    return panel


def _captures(_: Any) -> list[str]:
    import napari

    viewer = napari.current_viewer()
    return [layer.name for layer in viewer.layers if KEY in layer.metadata] if viewer is not None else []


class _Panel:
    """What the buttons do."""

    def __init__(self, panel: Any) -> None:
        from qtpy.QtCore import QTimer

        self.panel, self.run, self.layer_name = panel, None, ""
        self.timer = QTimer(panel.native)
        self.timer.timeout.connect(self.poll)
        panel.start.clicked.connect(self.start)
        panel.stop.clicked.connect(self.stop)

    run: _Run | None

    def start(self) -> None:
        import napari

        viewer, panel = napari.current_viewer(), self.panel
        panel.reset_choices()
        if viewer is None or panel.capture.value is None:
            panel.words.value = "open a capture first: a .mat, .npz or .h5 file with its masks"
            return
        scene = viewer.layers[panel.capture.value].metadata[KEY]
        method = unsnap.METHODS[panel.method.value]
        self.run = _Run(scene, method.name, panel.iterations.value or None)
        self.layer_name = f"{scene.meta.get('name', 'capture')} {method.name}"
        panel.bar.max = panel.iterations.value or method.iterations
        panel.start.enabled, panel.stop.enabled = False, True
        threading.Thread(target=self.run.go, daemon=True).start()
        self.timer.start(_POLL)

    def stop(self) -> None:
        if self.run is not None:
            self.run.stop = True

    def poll(self) -> None:
        """Show how far the run is, and the frames that it has by now."""
        run = self.run
        if run is None:
            return
        over, x = run.over, run.x
        self.panel.words.value = run.words
        self.panel.bar.value = self.panel.bar.max if over else min(run.done, self.panel.bar.max)
        if x is not None:
            self._show(x, run.scene.video_options["colour"])
        if over:
            self.timer.stop()
            self.panel.start.enabled, self.panel.stop.enabled = True, False

    def _show(self, x: Tensor, colour: bool) -> None:
        import napari

        data, options, _ = video_layer(x, self.layer_name, colour)
        layers = napari.current_viewer().layers
        if self.layer_name in layers:
            layers[self.layer_name].data = data
        else:
            napari.current_viewer().add_image(data, **options)
