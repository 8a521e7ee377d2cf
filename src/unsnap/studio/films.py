"""Results as films: pictures of all their frames for the page, and the files that one downloads."""

from __future__ import annotations

import html
import json
import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsnap.errors import InputError
from unsnap.io import save_video
from unsnap.io.film import Film
from unsnap.io.outputs import unconverged
from unsnap.studio.cards import png
from unsnap.studio.reading import reconstruct_line
from unsnap.studio.sessions import Run, Session

FORMATS = ("mp4", "gif", "tif", "npz")
LOOKS = ("", "auto", "equalise", "auto-equalise")
FPS = 10.0
_SIDE, _MOST_FRAMES = 512, 64
_ERROR = 4.0
"""Errors are shown so many times as bright."""


def film_of(look: str) -> Film:
    """What a choice of contrast on the page means: `auto`, `equalise`, both, or nothing."""
    if look not in LOOKS:
        raise InputError(f"a film is shown as one of {', '.join(LOOKS)}, not as {look}")
    return Film(contrast="auto" if "auto" in look else None, equalise="equalise" in look)


def film_words(film: Film) -> list[str]:
    return (["--contrast", film.contrast] if film.contrast else []) + (["--equalise"] if film.equalise else [])


def download_name(session: Session, run: Run, kind: str) -> str:
    """As the command line calls it."""
    path = Path(f"{Path(session.name).stem}-{Path(run.method).stem}.{kind}")
    return path.name if run.result["converged"] else unconverged(path).name


def download(session: Session, run: Run, kind: str, look: str) -> Path:
    """The film as a file, made when it is first asked for; its bytes are those of `command_of`."""
    if kind not in FORMATS:
        raise InputError(f"a film is offered as {', '.join(FORMATS)}, not as {kind}")
    film, target = film_of(look), run.folder / (look or "plain") / download_name(session, run, kind)
    if not target.is_file():
        video = torch.from_numpy(np.load(run.folder / "video.npy"))
        save_video(target, film.of(video, 3 if run.look["colour"] else 1), fps=FPS, **run.look)
    return target


def command_of(session: Session, run: Run, kind: str, look: str) -> list[str]:
    """The commands that write the same bytes, with the file where it lies."""
    output = f"{Path(session.name).stem}-{Path(run.method).stem}.{kind}"
    more = film_words(film_of(look)) + ["--anyway"] * run.anyway + ["--alone"] * run.alone
    line = reconstruct_line(session.name, run.reading, run.method, output, more=more)
    return [*session.prepare, line]


def layers_of(session: Session) -> dict[str, tuple[Run, str]]:
    """What the film can show: name -> run and what of it."""
    runs = [run for run in session.runs.values() if not run.result["diverged"]]
    found = {run.method: (run, "video") for run in runs}
    if runs and (runs[0].folder / "truth.npy").is_file():
        found["truth"] = (runs[0], "truth")
        found |= {f"error of {run.method} ×{_ERROR:g}": (run, "error") for run in runs}
    if runs:
        found["snapshot"] = (runs[0], "snapshot")
    return found


def viewer(session: Session, look: str) -> str:
    """The element that shows them, the newest result on the left, the one before (or the truth) on the right."""
    layers = layers_of(session)
    if not layers:
        return ""
    methods = [name for name, (_, part) in layers.items() if part == "video"]
    run = layers[methods[-1]][0]
    frames, height, width = _size(run)
    addresses = {
        name: f"studio/{session.token}/layer/{own.number}/{part}.png?look={look or 'plain'}"
        for name, (own, part) in layers.items()
    }
    spec = {
        "frames": frames,
        "height": height,
        "width": width,
        "columns": math.ceil(math.sqrt(frames)),
        "fps": FPS,
        "newest": run.number,
        "left": methods[-1],
        "right": methods[-2] if len(methods) > 1 else "truth" if "truth" in layers else "snapshot",
        "layers": addresses,
    }
    data = html.escape(json.dumps(spec)).replace("{", "&#123;").replace("}", "&#125;").replace("$", "&#36;")
    return f'<unsnap-film data-film="{data}"></unsnap-film>'


def _size(run: Run) -> tuple[int, int, int]:
    """Frames, height and width as they are shown."""
    shape = np.load(run.folder / "video.npy", mmap_mode="r").shape
    count = shape[0] * shape[1] // (3 if run.look["colour"] else 1)
    step = _step(shape[-2:])
    return min(count, _MOST_FRAMES), -(-shape[-2] // step), -(-shape[-1] // step)


def _step(size: tuple[int, ...]) -> int:
    return max(1, -(-max(size) // _SIDE))


def layer(run: Run, part: str, look: str) -> bytes:
    """All frames of one layer in one PNG, row by row."""
    video = torch.from_numpy(np.load(run.folder / "video.npy"))
    colours = 3 if run.look["colour"] else 1
    count, height, width = _size(run)
    step = _step(tuple(video.shape[-2:]))
    if part == "snapshot":
        y = torch.from_numpy(np.load(run.folder / "snapshot.npy"))
        y = y / y.amax((-2, -1), keepdim=True).clamp(min=1e-12)
        frames = y.repeat_interleave(video.shape[1] // colours, 0)[:, None]
    else:
        whole = video
        if part in ("truth", "error"):
            truth = torch.from_numpy(np.load(run.folder / "truth.npy"))
            whole = truth if part == "truth" else _ERROR * (video[: len(truth)] - truth).abs()
        film = Film() if part == "error" else film_of(look)
        frames = torch.unflatten(film.of(whole, colours), 0, (colours, -1)).transpose(0, 1)
    return png(_sheet(_coloured(frames[:count, :, ::step, ::step]), count, height, width))


def _coloured(frames: Tensor) -> NDArray[np.uint8]:
    """(F, H, W) or (F, H, W, 3) as bytes from frames (F, C, H, W)."""
    found = (frames.clamp(0, 1) * 255).round().to(torch.uint8).movedim(1, -1).numpy()
    pictures: NDArray[np.uint8] = found[..., 0] if found.shape[-1] == 1 else found
    return pictures


def _sheet(frames: NDArray[np.uint8], count: int, height: int, width: int) -> NDArray[np.uint8]:
    columns = math.ceil(math.sqrt(count))
    rows = -(-count // columns)
    sheet = np.zeros((rows * height, columns * width, *frames.shape[3:]), np.uint8)
    for k, frame in enumerate(frames):
        top, left = k // columns * height, k % columns * width
        sheet[top : top + height, left : left + width] = frame
    return sheet
