"""A capture opens in napari as layers to scrub through, and the panel reconstructs it while it shows how far it is."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unsnap
from laws import seeded
from unsnap.masks import bernoulli
from unsnap.napari_plugin import reader
from unsnap.operators.bayer import mosaic
from unsnap.simulate import render, simulate

MANIFEST = Path(reader.__file__).with_name("napari.yaml")
MASKS = bernoulli(4, 32, 24, generator=seeded())


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return unsnap.save_scene(tmp_path / "capture.npz", simulate(render(8, 32, 24, seed=0), MASKS))


def test_a_capture_is_layers_of_one_shape(capture: Path) -> None:
    assert reader.get_reader([str(capture)]) is None
    layers = reader.get_reader(str(capture))(str(capture))
    assert [options["name"] for _, options, _ in layers] == ["capture snapshot", "capture masks", "capture truth"]
    assert {data.shape for data, _, _ in layers} == {(2, 4, 32, 24)}
    scene = unsnap.load_scene(capture)
    np.testing.assert_array_equal(layers[0][0][:, 3], scene.measurement)
    np.testing.assert_array_equal(layers[2][0], scene.truth)


def test_colours_come_last(tmp_path: Path) -> None:
    red = torch.cat([torch.ones(4, 32, 24), torch.zeros(8, 32, 24)])[None]
    path = unsnap.save_scene(tmp_path / "red.npz", unsnap.Scene.of(red, mosaic(MASKS, "rggb"), "bayer"))
    snapshot, truth = reader.read(str(path))
    assert snapshot[0].shape == (1, 4, 32, 24)
    assert truth[1]["rgb"]
    np.testing.assert_array_equal(truth[0], np.broadcast_to([1, 0, 0], (1, 4, 32, 24, 3)))


def test_the_manifest_names_what_is_there() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the manifest")
    commands = yaml.safe_load(MANIFEST.read_text())["contributions"]["commands"]
    for command in commands:
        module, _, function = command["python_name"].partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def waited(application: Any, what: Callable[[], bool], seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while not what() and time.monotonic() < until:
        application.processEvents()
        time.sleep(0.01)
    return what()


@pytest.fixture
def viewer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """All of a viewer but its canvas, which needs OpenGL, and an application for the panel's buttons."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    napari = pytest.importorskip("napari", reason="napari is not installed: pip install 'unsnap[napari]'")
    npe2 = pytest.importorskip("npe2", reason="npe2 comes with napari")
    manager = npe2.PluginManager.instance()
    manager.discover()  # finds it where unsnap is installed with its entry point
    if "unsnap" not in {manifest.name for manifest in manager.iter_manifests()}:
        manager.register(npe2.PluginManifest.from_file(MANIFEST))
    try:
        from napari.components import ViewerModel
        from qtpy.QtWidgets import QApplication
    except ImportError as error:  # Qt needs libraries of the system
        pytest.skip(f"Qt does not load here: {error}")
    application, model = QApplication.instance() or QApplication([]), ViewerModel()
    monkeypatch.setattr(napari, "current_viewer", lambda: model)
    return model, application


@pytest.mark.filterwarnings("ignore")
def test_open_reconstruct_scrub_stop(viewer: Any, capture: Path) -> None:
    import npe2

    viewer, application = viewer
    scene = unsnap.load_scene(capture)
    expected = unsnap.reconstruct(scene.measurement, scene.operator, "gap-tv3d").x  # compiles what has to be
    viewer.open(str(capture), plugin="unsnap")
    assert viewer.dims.nsteps == (2, 4, 32, 24), "two snapshots, four frames to scrub through"
    (offered,) = [w for w in npe2.PluginManager.instance().iter_widgets() if w.plugin_name == "unsnap"]
    panel = offered.get_callable()()
    assert panel.capture.choices == ("capture snapshot",)
    panel.method.value = "gap-tv3d"
    panel.start.clicked.emit(True)
    assert not panel.start.enabled
    assert waited(application, lambda: panel.start.enabled)
    np.testing.assert_array_equal(viewer.layers["capture gap-tv3d"].data, expected.clamp(0, 1))
    assert panel.words.value.startswith("converged after 40 iterations, PSNR ")
    viewer.dims.set_point(1, 2)
    assert viewer.dims.current_step[1] == 2
    panel.iterations.value = 100_000
    panel.start.clicked.emit(True)
    assert waited(application, lambda: panel.bar.value > 0)
    panel.stop.clicked.emit(True)
    assert waited(application, lambda: panel.start.enabled, 20)
    assert panel.words.value.startswith("stopped after ")
