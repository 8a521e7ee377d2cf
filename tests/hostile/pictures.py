"""Stacks, frames and videos: sound ones, and ones whose fields lie.

Every function takes a generator of random numbers and returns (name of the attack, bytes of the file).
"""

from __future__ import annotations

import io
import random
import struct
import tempfile
import zlib
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hostile.arrays import H, Made, T, W
from hostile.mutate import bits, edit, number

# ---------------------------------------------------------------------- TIFF

_SIZE = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_TAGS = {
    "width": 256, "height": 257, "depth": 258, "compression": 259, "photometric": 262, "strips": 273, "samples": 277,
    "rows": 278, "counts": 279, "planar": 284, "predictor": 317, "format": 339, "description": 270, "tile": 322,
    "subifds": 330, "fill": 266, "software": 305,
}  # fmt: skip


def _pack_bits(data: bytes) -> bytes:
    return b"".join(bytes([len(part) - 1]) + part for part in (data[k : k + 128] for k in range(0, len(data), 128)))


@cache
def _zeros(size: int) -> bytes:
    """Megabytes of zeros, deflated once."""
    return zlib.compress(bytes(size), 1)


def _deflated(data: bytes) -> bytes:
    return zlib.compress(data, 1) if len(data) < 2**16 else _zeros(len(data))


def tiff(rng: random.Random, hostile: bool = True, pages: int = T) -> Made:
    """A grey stack written tag by tag, so that each of them can be wrong."""
    order, big = rng.choice("<<<>"), hostile and rng.random() < 0.15
    depth = rng.choice((8, 8, 16))
    attack = "sound"
    way = rng.choice(("field", "field", "field", "type", "cycle", "bomb", "next", "many", "drop")) if hostile else ""
    if way == "many":
        pages = rng.choice((101, 150, 300))
    count = pages if way != "cycle" else rng.choice((pages, 101, 150))
    coding = rng.choice((1, 1, 8, 32773))
    if way == "bomb":
        coding = rng.choice((8, 32946))
    content = bytearray(
        struct.pack(
            f"{order}2sHHHQ" if big else f"{order}2sHI",
            b"II" if order == "<" else b"MM",
            *((43, 8, 0, 16) if big else (42, 8)),
        )
    )
    wide, head = ("Q", 8) if big else ("I", 4)
    starts: list[int] = []
    link = len(content) - head
    victim = rng.randrange(count)
    for page in range(count):
        pixels = rng.randbytes(H * W * depth // 8) if count < 20 else bytes(H * W * depth // 8)
        fields: dict[str, Any] = {
            "width": W, "height": H, "depth": depth, "compression": coding, "photometric": 1, "strips": 0, "samples": 1,
            "rows": H, "counts": 0,
        }  # fmt: skip
        if way == "bomb" and page == victim:
            pixels = bytes(2**23)
            if rng.random() < 0.5:
                fields |= {"width": 2**14, "height": 2**17, "rows": 2**17}
        data = pixels if coding == 1 else _pack_bits(pixels) if coding == 32773 else _deflated(pixels)
        fields |= {"strips": len(content), "counts": len(data)}
        types = dict.fromkeys(fields, 4)
        counts = dict.fromkeys(fields, 1)
        content += data + bytes(len(data) % 2)
        if page == victim and way == "field":
            extra = rng.choice(("planar", "predictor", "format", "description", "tile", "subifds", "fill", "software"))
            if rng.random() < 0.3:
                fields[extra] = types[extra] = counts[extra] = 1
            attack = "tag " + edit(
                fields, rng, lambda name, rng: number(rng) if rng.random() < 0.8 else rng.randrange(12)
            )
            types |= {name: 4 for name in fields if name not in types}
            counts |= {name: 1 for name in fields if name not in counts}
        elif page == victim and way == "type":
            name = rng.choice(sorted(fields))
            types[name], counts[name] = rng.choice((*_SIZE, 0, 99)), number(rng)
            attack = "tag type"
        elif page == victim and way == "drop":
            del fields[rng.choice(sorted(fields))]
            attack = "tag dropped"
        content[link : link + head] = struct.pack(order + wide, len(content))
        starts.append(len(content))
        content += struct.pack(order + ("Q" if big else "H"), len(fields))
        for name in sorted(fields, key=lambda name: _TAGS[name]):
            value = fields[name] % 2 ** (64 if big else 32)
            content += struct.pack(
                f"{order}HH{wide}{wide}", _TAGS[name], types[name], counts[name] % 2 ** (8 * head), value
            )
        link = len(content)
        content += bytes(head)
    if way == "cycle":
        attack = "page cycle"
        content[link : link + head] = struct.pack(order + wide, rng.choice((starts[0], starts[-1], rng.choice(starts))))
    elif way == "next":
        attack = "page offset"
        content[link : link + head] = bits(rng.choice((number(rng), len(content) - 4, 1, 8)), order + wide)
    elif way in ("many", "bomb"):
        attack = f"page {way}"
    return f"tiff {attack}", bytes(content)


# ---------------------------------------------------------------------- frames


def frame(rng: random.Random) -> np.ndarray:
    return np.frombuffer(rng.randbytes(H * W), np.uint8).reshape(H, W)


def sound_image(suffix: str, rng: random.Random) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(frame(rng)).save(buffer, format={"jpg": "jpeg"}.get(suffix, suffix))
    return buffer.getvalue()


def _chunk(kind: bytes, data: bytes, length: int | None = None) -> bytes:
    return (
        bits(len(data) if length is None else length, ">I") + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    )


def png(rng: random.Random) -> Made:
    """Chunks with sound checksums and unsound content."""
    fields: dict[str, Any] = {
        "width": W,
        "height": H,
        "depth": 8,
        "colour": 0,
        "method": 0,
        "filter": 0,
        "interlace": 0,
    }
    way = rng.choice(("field", "field", "size", "bomb", "text bomb", "order", "length", "palette", "icc", "animation"))
    attack = way
    if way == "field":
        attack = edit(fields, rng, lambda name, rng: number(rng) if name in ("width", "height") else rng.randrange(20))
    elif way == "size":
        fields["width"], fields["height"] = rng.choice(
            ((2**14, 2**14), (30000, 30000), (2**31 - 1, 1), (60000, 2000), (13000, 13000))
        )
    raw = b"".join(b"\0" + rng.randbytes(W) for _ in range(H)) if way != "bomb" else bytes(2**22)
    if way == "bomb":  # the first two are as large as they say
        sizes = ((2**18 - 1, 16), (15, 2**18), (16, 16), (9000, 9000), (20000, 20000))
        fields["width"], fields["height"] = rng.choice(sizes)
    forms = (">I", ">I", "B", "B", "B", "B", "B")
    head = _chunk(b"IHDR", b"".join(bits(v, f) for v, f in zip(fields.values(), forms, strict=True)))
    body, end = _chunk(b"IDAT", _deflated(raw)), _chunk(b"IEND", b"")
    if way == "text bomb":
        body = _chunk(rng.choice((b"zTXt", b"iCCP")), b"k\0\0" + _zeros(2**22)) * rng.choice((1, 40)) + body
    elif way == "order":
        parts = [head, body, end, body]
        rng.shuffle(parts)
        return "png order", b"\x89PNG\r\n\x1a\n" + b"".join(parts)
    elif way == "length":
        body = _chunk(b"IDAT", zlib.compress(raw), number(rng))
    elif way == "palette":
        body = (
            _chunk(b"PLTE", rng.randbytes(rng.choice((0, 3, 5, 900))))
            + _chunk(b"tRNS", rng.randbytes(rng.choice((0, 1, 400))))
            + body
        )
    elif way == "icc":
        body = (
            _chunk(
                rng.choice((b"gAMA", b"cHRM", b"pHYs", b"eXIf", b"sBIT", b"acTL")),
                rng.randbytes(rng.choice((0, 1, 4, 30))),
            )
            + body
        )
    elif way == "animation":
        body = _chunk(b"acTL", bits(number(rng), ">I") + bits(0, ">I")) + _chunk(b"fcTL", rng.randbytes(26)) + body
    return f"png {attack}", b"\x89PNG\r\n\x1a\n" + head + body + end


def patched(content: bytes, at: int, form: str, rng: random.Random) -> bytes:
    data = bytearray(content)
    size = struct.calcsize(form)
    if 0 <= at <= len(data) - size:
        data[at : at + size] = bits(rng.choice((number(rng), -1, -16)), form)
    return bytes(data)


def bmp(rng: random.Random) -> Made:
    return "bmp header", patched(
        sound_image("bmp", rng), rng.choice((2, 10, 14, 18, 22, 28, 30, 34, 46)), rng.choice(("<I", "<H")), rng
    )


def jpg(rng: random.Random) -> Made:
    content = sound_image("jpg", rng)
    frame_header = content.find(b"\xff\xc0")
    marks = [k for k in range(len(content) - 1) if content[k] == 255 and content[k + 1] not in (0, 255)]
    at = frame_header + rng.choice((2, 4, 5, 7, 9)) if rng.random() < 0.5 else rng.choice(marks) + rng.choice((1, 2, 4))
    return "jpg segment", patched(content, at, rng.choice((">H", "B")), rng)


# ---------------------------------------------------------------------- videos

_CODECS = {
    "mp4": ("mp4", "libx264", "yuv420p"),
    "avi": ("avi", "mpeg4", "yuv420p"),
    "mkv": ("matroska", "ffv1", "gray"),
}
_CODECS |= {"mov": ("mov", "mjpeg", "yuvj420p"), "gif": ("gif", "gif", "gray"), "webm": ("webm", "libvpx", "yuv420p")}
VIDEOS = tuple(_CODECS)
_BOXES = (
    b"moov", b"trak", b"mdia", b"stbl", b"stsd", b"stts", b"stsz", b"stco", b"stsc", b"tkhd", b"mdhd", b"avcC",
    b"ctts", b"elst",
)  # fmt: skip
_MARKS = {
    "avi": (b"avih", b"strh", b"strf", b"movi", b"idx1", b"00dc", b"RIFF", b"LIST"),
    "gif": (b"GIF8", b",\0\0\0\0", b"!\xff\x0b"),
}
_MARKS |= {"mkv": (b"\x1aE\xdf\xa3", b"\x18S\x80g", b"\xe0", b"\xb0", b"\xba", b"\xae"), "mp4": _BOXES, "mov": _BOXES}
_MARKS["webm"] = _MARKS["mkv"]


@cache
def video(suffix: str, frames: int = 4) -> bytes:
    """A sound video of 32×32 pixels; empty where this build of ffmpeg has no such encoder."""
    import av

    container, codec, pixels = _CODECS[suffix]
    if codec not in av.codecs_available:
        return b""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"v.{suffix}"
        with av.open(str(path), "w", format=container) as output:
            stream = output.add_stream(codec, rate=Fraction(10))
            stream.height = stream.width = 32
            stream.pix_fmt = pixels
            stream.codec_context.thread_count = 1
            rng = np.random.default_rng(0)
            for _ in range(frames):
                output.mux(
                    stream.encode(
                        av.VideoFrame.from_ndarray(rng.integers(0, 255, (32, 32)).astype(np.uint8), format="gray")
                    )
                )
            output.mux(stream.encode())
        return path.read_bytes()


def video_field(suffix: str, rng: random.Random) -> Made:
    """A number next to one of the container's marks, replaced."""
    content = video(suffix)
    mark = rng.choice(_MARKS[suffix])
    at = content.find(mark)
    at = (
        at + rng.choice((-4, len(mark), len(mark) + 4, len(mark) + 8, len(mark) + rng.randrange(90)))
        if at >= 0
        else rng.randrange(60)
    )
    return f"{suffix} field", patched(content, at, rng.choice((">I", ">H", "<I", "<H", "B")), rng)


def video_text(rng: random.Random, outside: str) -> Made:
    """Text that ffmpeg would take for a list of other files to read."""
    lists = {
        "ffconcat": f"ffconcat version 1.0\nfile {outside}\n", "concat": f"file '{outside}'\nfile '{outside}'\n",
        "hls": f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{outside}\n#EXT-X-ENDLIST\n",
        "hls concat": f"#EXTM3U\n#EXTINF:1,\nconcat:{outside}|{outside}\n",
        "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\n",
        "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011">'
        f"<Period><BaseURL>{outside}</BaseURL></Period></MPD>",
        "image": "P5\n9999999 9999999\n255\n", "subtitle": "1\n00:00:00,000 --> 00:00:01,000\nx\n",
        "y4m": "YUV4MPEG2 W99999 H99999 F1:1\nFRAME\n",
    }  # fmt: skip
    name = rng.choice(sorted(lists))
    return f"text {name}", lists[name].encode()
