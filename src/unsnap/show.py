"""How a notebook shows a scene or a solution: a strip of frames inside the page, and the facts beside it."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from html import escape

import torch
from torch import Tensor

from unsnap.errors import printable

FRAMES, ROWS = 8, 3  # that are shown of a video, and of a batch
_BYTES = 200_000  # of pixels in a strip: even of pure noise it is less than 300 kB of a notebook


def card(title: str, facts: Mapping[str, object], strips: Sequence[str]) -> str:
    """A few lines of HTML: pictures, and a table of facts, whose text may come from anywhere."""
    lines = "".join(
        f'<tr><th style="text-align:left">{escape(printable(name))}</th>'
        f'<td style="text-align:left">{escape(_cut(printable(fact)))}</td></tr>'
        for name, fact in facts.items()
    )
    return f"<div><b>{escape(_cut(printable(title)))}</b>{''.join(strips)}<table>{lines}</table></div>"


def _cut(text: str, longest: int = 300) -> str:
    return text if len(text) <= longest else text[:longest] + " …"


def film_strip(video: Tensor, caption: str = "", *, colour: bool = False, stretch: bool = False) -> str:
    """Some frames of videos (..., T, H, W), or (..., 3T, H, W) in colour, as one picture inside HTML.

    White is 1, or with `stretch`, or where it is far above 1, the largest value shown. What is not finite is black.
    """
    channels = 3 if colour and video.shape[-3] % 3 == 0 else 1
    if video.numel() == 0:
        return ""
    clips = video.detach().reshape(-1, channels, video.shape[-3] // channels, *video.shape[-2:])
    rows, columns = min(len(clips), ROWS), min(clips.shape[2], FRAMES)
    chosen = torch.linspace(0, clips.shape[2] - 1, columns).round().long().tolist()
    scale = math.sqrt(_BYTES / (rows * columns * channels * clips.shape[-2] * clips.shape[-1]))
    small = torch.stack([_fit(clips[:rows, :, k], scale) for k in chosen], 2)  # (rows, channels, columns, h, w)
    small = torch.where(small.isfinite(), small, 0).clamp(min=0)
    top = float(small.max())
    small = small / (top if top > 1.5 or (stretch and top > 0) else 1.0)
    pixels = small.clamp(max=1).mul(255).round().to(torch.uint8).permute(0, 3, 2, 4, 1)
    height, width = small.shape[-2:]
    text = f"{caption} (frames {', '.join(str(k + 1) for k in chosen)})" if columns < clips.shape[2] else caption
    text += f"; the first {rows} of {len(clips)}" if rows < len(clips) else ""
    image = base64.b64encode(_png(pixels.reshape(rows * height, columns * width, channels))).decode("ascii")
    larger = max(1, 96 // height)
    return (
        f'<figure style="margin:.4em 0"><img alt="{escape(text)}" width="{larger * columns * width}" '
        f'style="max-width:100%;image-rendering:pixelated" src="data:image/png;base64,{image}">'
        f"<figcaption>{escape(text)}</figcaption></figure>"
    )


def _fit(picture: Tensor, scale: float) -> Tensor:
    """Pictures (rows, channels, H, W), at most `scale` times as large, as float32 on the CPU."""
    height, width = (max(1, int(min(1.0, scale) * n)) for n in picture.shape[-2:])
    step = max(1, min(picture.shape[-2] // height, picture.shape[-1] // width) // 2)
    coarse = picture[..., ::step, ::step].cpu().to(torch.float32)  # most of a large one is never touched
    return torch.nn.functional.adaptive_avg_pool2d(coarse, (height, width))


def _png(pixels: Tensor) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels.squeeze(-1).numpy()).save(file, "png", optimize=True)
    return file.getvalue()
