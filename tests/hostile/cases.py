"""A case is some files and a command: `case(seed, index)` makes the same one every time."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from hostile import arrays, hdf5, matlab, pictures, weights
from hostile.arrays import Made
from hostile.hdf5 import REACHING
from hostile.mutate import NAMES, damage, number

FIFO = b"\0FIFO"
"""Stands for a pipe that nobody writes to: opening it blocks for ever."""
ENDLESS = b"\0ENDLESS"
"""Stands for a link to a device that never ends."""


@dataclass
class Case:
    """files: what is in the folder (a name may contain folders); subject: the one that is hostile. args: of `unsnap`.

    outputs: what may be there afterwards, if the exit code is not 2. expect: "any", "works" or "refused".
    """

    format: str
    attack: str
    files: dict[str, bytes]
    args: list[str]
    subject: str = ""
    outputs: tuple[str, ...] = ()
    expect: str = "any"


OUTSIDE = "elsewhere"


@cache
def _measurement() -> bytes:
    return arrays.npz_scene({"meas": arrays.scene(random.Random(1))["meas"]})


@cache
def _good() -> bytes:
    return arrays.npz_scene(arrays.scene(random.Random(1)))


def _frames(folder: str, suffix: str, rng: random.Random) -> dict[str, bytes]:
    return {f"{folder}/{k}.{suffix}": pictures.sound_image(suffix, rng) for k in range(arrays.T)}


# ---------------------------------------------------------------------- bytes of every format


def _numbers(write: Callable[[arrays.Arrays], bytes]) -> Callable[[random.Random], Made]:
    def make(rng: random.Random) -> Made:
        attack, content = arrays.hostile_scene(rng)
        return f"numbers {attack}", write(content)

    return make


def _one(rng: random.Random) -> Made:
    attack, content = arrays.hostile_scene(rng)
    return f"numbers {attack}", arrays.npy_bytes(content.get("mask", next(iter(content.values()))))


@dataclass(frozen=True)
class Kind:
    """How to make files of a format: sound ones, and hostile ones besides those that are merely damaged."""

    suffix: str
    sound: Callable[[random.Random], bytes]
    hostile: tuple[Callable[[random.Random], Made], ...] = ()


def _h5(matlab: bool) -> Callable[[random.Random], Made]:
    return lambda rng: hdf5.hdf5_structure(rng, OUTSIDE, matlab)


KINDS: dict[str, Kind] = {
    "npz": Kind("npz", lambda rng: arrays.npz_scene(arrays.scene(rng)),
    (arrays.npz_structure, _numbers(arrays.npz_scene))),
    "mat v5": Kind(
        "mat", lambda rng: matlab.mat5_scene(arrays.scene(rng), rng.random() < 0.5),
        (matlab.mat5_structure, matlab.mat5_structure, _numbers(matlab.mat5_scene)),
    ),
    "mat v4": Kind("mat", lambda rng: matlab.mat4(random.Random(0))[1], (matlab.mat4,)),
    "mat v7.3": Kind(
        "mat", lambda rng: hdf5.hdf5_scene(arrays.scene(rng), matlab=True),
        (_h5(True), _numbers(lambda a: hdf5.hdf5_scene(a, True)))
    ),
    "h5": Kind("h5", lambda rng: hdf5.hdf5_scene(arrays.scene(rng)), (_h5(False), _numbers(hdf5.hdf5_scene))),
    "npy": Kind("npy", lambda rng: arrays.npy_bytes(arrays.scene(rng)["mask"]),
    (lambda rng: arrays.npy(arrays.scene(rng)["mask"], rng), _one)),
    "tiff": Kind("tif", lambda rng: pictures.tiff(rng, hostile=False)[1], (pictures.tiff,)),
    "png": Kind("png", lambda rng: pictures.sound_image("png", rng), (pictures.png,)),
    "jpg": Kind("jpg", lambda rng: pictures.sound_image("jpg", rng), (pictures.jpg,)),
    "bmp": Kind("bmp", lambda rng: pictures.sound_image("bmp", rng), (pictures.bmp,)),
    "safetensors": Kind("safetensors", weights.sound_model, (weights.model,)),
    "checkpoint": Kind("ckpt", lambda rng: weights.torch_bytes(weights.sound_checkpoint(), rng.random() < 0.3),
    (weights.checkpoint,)),
    "config": Kind("json", lambda rng: weights.dump_json(weights.sound_config()).encode(), (weights.config,)),
    "run": Kind("pt", lambda rng: weights.sound_run(), (weights.run,)),
}  # fmt: skip
KINDS |= {
    suffix: Kind(
        suffix,
        lambda rng, suffix=suffix: pictures.video(suffix),
        (lambda rng, suffix=suffix: pictures.video_field(suffix, rng), lambda rng: pictures.video_text(rng, OUTSIDE)),
    )
    for suffix in pictures.VIDEOS
}
SCENES = ("npz", "mat v5", "mat v4", "mat v7.3", "h5")
STACKS = ("npy", "tiff", *pictures.VIDEOS)
PICTURES = ("png", "jpg", "bmp")


def content(kind: Kind, rng: random.Random, sound: bool = False) -> Made:
    """Sound (rarely), damaged, or hostile in a way of the format's own."""
    die = rng.random()
    if sound or die < 0.02:
        return "sound", kind.sound(rng)
    if die < 0.5 or not kind.hostile:
        attack, data = damage(kind.sound(rng), rng)
        return f"bytes {attack}", data
    attack, data = rng.choice(kind.hostile)(rng)
    if die > 0.95:
        return f"{attack} + bytes", damage(data, rng)[1]
    return attack, data


# ---------------------------------------------------------------------- commands

_VIDEO_OUTPUTS = ("o.npy", "o.npy", "o.npz", "o.mat", "o.tif", "o.gif", "o.mp4", "o")


def _named(suffix: str, rng: random.Random) -> str:
    """The file's name, at times a hostile one."""
    if rng.random() > 0.04:
        return f"x.{suffix}"
    name = rng.choice(NAMES)
    return f"{'./' if name[0] == '-' else ''}{name}.{suffix}"


def _outputs(name: str) -> tuple[str, ...]:
    stem, dot, suffix = name.rpartition(".")
    return (name, f"{stem}-unconverged.{suffix}" if dot else f"{name}-unconverged")


def _scene_command(name: str, rng: random.Random) -> tuple[list[str], tuple[str, ...]]:
    out = rng.choice(_VIDEO_OUTPUTS)
    solve = ["reconstruct", name, "-m", "gap-tv", "--iterations", "2"]
    options: list[tuple[list[str], tuple[str, ...]]] = [
        (["inspect", name], ()),
        (["inspect", name, "--json"], ()),
        (["inspect", name, "--json"], ()),
        ([*solve, "-o", out], _outputs(out)),
        ([*solve, "-o", "o.npy", "-q"], _outputs("o.npy")),
        ([*solve, "--json"], ()),
        (["inspect", "meas.npz", "--masks", name, "--json"], ()),
        (["simulate", name, "-o", "o.npz", "-T", "2"], ("o.npz",)),
    ]
    return rng.choice(options)


def _stack_command(name: str, rng: random.Random) -> tuple[list[str], tuple[str, ...]]:
    options: list[tuple[list[str], tuple[str, ...]]] = [
        (["inspect", "meas.npz", "--masks", name, "--json"], ()),
        (["reconstruct", "meas.npz", "--masks", name, "-m", "gap-tv", "--iterations", "1", "--json"], ()),
        (["simulate", name, "-o", "o.npz", "-T", "2", "-q"], ("o.npz",)),
        (["simulate", name, "-o", "o.mat", "-T", "2"], ("o.mat",)),
    ]
    return rng.choice(options)


def _beside_command(name: str, rng: random.Random) -> tuple[list[str], tuple[str, ...]]:
    """The file as what stands beside a scene, or as one of another camera."""
    solve = ["-m", "gap-tv", "--iterations", "1", "--json"]
    role, kind = rng.choice(("dark", "white", "bad-pixels", "camera")), rng.choice(_CAMERA_KINDS)
    options: list[tuple[list[str], tuple[str, ...]]] = [
        (["reconstruct", "good.npz", f"--{role}", name, *solve], ()),
        (["inspect", name, "--kind", kind, "--json"], ()),
        (["reconstruct", name, "--kind", kind, *solve], ()),
        (["reconstruct", name, "--saturated", "exclude", "--roi", "0:8,0:12", *solve], ()),
    ]
    return rng.choice(options)


_CAMERA_KINDS = ("bayer:rggb", "bayer:quad-bggr", "rgb", "dispersed:1", "dispersed:-1,0", "dual:2", "multishot")
_REACHING = (*(f"h5 {way}" for way in REACHING), "text ffconcat", "text concat", "text hls")


def _array_case(format: str, made: Made, rng: random.Random) -> Case:
    attack, data = made
    name = _named(KINDS[format].suffix, rng)
    if rng.random() < 0.01:  # one clip of several, which training leaves out if it is of no use
        name = f"clips/x.{KINDS[format].suffix}"
        files = {name: data, "x.json": KINDS["config"].sound(rng), **_clips()}
        args = ["train", "--config", "x.json", "-o", "run", "--steps", "1", "-q"]
        return Case(format, attack, {**files, OUTSIDE: FIFO}, args, name, ("run",), "works")
    command = _scene_command if format in SCENES and rng.random() < 0.9 else _stack_command
    beside = rng.random() < 0.12
    args, outputs = (_beside_command if beside else command)(name, rng)
    files = {"meas.npz": _measurement(), "good.npz": _good(), name: data}
    expect = "any"
    if attack.startswith(_REACHING):
        expect = "any" if "unneeded" in attack or "+" in attack else "refused"
        other = pictures.video("mp4") if attack.startswith("text") else hdf5.hdf5_scene(arrays.scene(rng))
        files[OUTSIDE] = FIFO if rng.random() < 0.2 else other
    elif beside:
        pass
    elif attack == "sound" and format in pictures.VIDEOS:  # 32×32, where the measurement is 16×16
        expect = "refused" if "--masks" in args or not data else "works"
    elif attack == "sound" and format != "mat v4":
        expect = "works"
    return Case(format, attack, files, args, name, outputs, expect)


def _picture_case(format: str, made: Made, rng: random.Random) -> Case:
    """A frame of a folder, in the folder's place as masks, as a clip, or as a part of a scene."""
    attack, data = made
    files = {"meas.npz": _measurement(), **_frames("x", format, rng)}
    way = rng.choice(("masks", "clip", "scene", "single"))
    subject = f"x/{rng.randrange(arrays.T)}.{format}"
    if way == "masks":
        args, outputs = ["inspect", "meas.npz", "--masks", "x"], ()
    elif way == "clip":
        args, outputs = ["simulate", "x", "-o", "o.npz", "-T", "2"], ("o.npz",)
    elif way == "scene":
        files = {f"x/meas.{format}": data, **_frames("x/mask", format, rng)}
        subject = f"x/meas.{format}"
        args, outputs = ["reconstruct", "x", "-m", "gap-tv", "--iterations", "1", "-o", "o.npy"], _outputs("o.npy")
    else:
        subject = f"x.{format}"
        args, outputs = ["inspect", "meas.npz", "--masks", subject], ()
    files[subject] = data
    return Case(
        format, attack, files, args, subject, outputs, "works" if attack == "sound" and way != "single" else "any"
    )


def _model_case(made: Made, rng: random.Random) -> Case:
    attack, data = made
    name = _named("safetensors", rng)
    solve = ["reconstruct", "good.npz", "-m", name, "--iterations", "2"]
    options: list[tuple[list[str], tuple[str, ...]]] = [
        ([*solve, "--json"], ()),
        ([*solve, "-o", "o.npy"], _outputs("o.npy")),
    ]
    args, outputs = rng.choice(options)
    expect = "works" if attack == "sound" and not set(name) & set(",[") else "any"
    return Case("safetensors", attack, {"good.npz": _good(), name: data}, args, name, outputs, expect)


def _checkpoint_case(made: Made, rng: random.Random) -> Case:
    attack, data = made
    name = _named(rng.choice(("ckpt", "pth", "pt")), rng)
    args = ["import", name, "-o", "o.safetensors", *(["--json"] if rng.random() < 0.5 else [])]
    expect = {"sound": "works", "code": "refused"}.get(attack, "any")
    return Case("checkpoint", attack, {name: data}, args, name, ("o.safetensors",), expect)


def _clips() -> dict[str, bytes]:
    return {f"clips/{k}.npz": weights.clip(k) for k in range(2)}


def _config_case(made: Made, rng: random.Random) -> Case:
    attack, data = made
    args = ["train", "--config", "x.json", "-o", "run", "--steps", "1", "-q"]
    return Case(
        "config",
        attack,
        {"x.json": data, **_clips()},
        args,
        "x.json",
        ("run",),
        "works" if attack == "sound" else "any",
    )


def _run_case(made: Made, rng: random.Random) -> Case:
    attack, data = made
    files = {"run/checkpoint.pt": data, "run/config.json": KINDS["config"].sound(rng), **_clips()}
    expect = "works" if attack == "sound" else "any"
    if rng.random() < 0.5:
        return Case(
            "run", attack, files, ["train", "--resume", "run", "--pack", "p.pt"], "run/checkpoint.pt", ("p.pt",), expect
        )
    args = ["train", "--resume", "run", "--steps", "1", "-q"]
    return Case("run", attack, files, args, "run/checkpoint.pt", ("run",), expect)


_INPUT = ("npz", "mat", "h5", "npy", "tif", "mp4", "gif", "png")


def _special_case(rng: random.Random) -> Case:
    """A pipe, or a device without end, where a file is expected; or an output that must not be replaced."""
    files = {"good.npz": _good(), "meas.npz": _measurement(), **_clips()}
    suffix = rng.choice(_INPUT)
    stuck = rng.choice((FIFO, FIFO, ENDLESS))
    solve = ["reconstruct", "good.npz", "-m", "gap-tv", "--iterations", "2"]
    reads: list[tuple[str, list[str]]] = [
        (f"x.{suffix}", ["inspect", f"x.{suffix}"]),
        (f"x.{suffix}", [*solve[:1], f"x.{suffix}", *solve[2:]]),
        (f"x.{suffix}", ["inspect", "meas.npz", "--masks", f"x.{suffix}"]),
        (f"x.{suffix}", ["simulate", f"x.{suffix}", "-o", "o.npz"]),
        (f"x/1.{suffix}", ["simulate", "x", "-o", "o.npz", "-T", "1"]),
        (f"x/meas.{suffix}", ["inspect", "x"]),
        ("x.safetensors", ["reconstruct", "good.npz", "-m", "x.safetensors"]),
        ("x.safetensors", ["train", "clips", "--init", "x.safetensors", "-o", "run", "--steps", "1"]),
        ("x.safetensors", ["certify", "x.safetensors"]),
        ("x.json", ["train", "--config", "x.json", "-o", "run", "--steps", "1"]),
        ("x.pt", ["train", "--resume", "x.pt", "-o", "run", "--steps", "1"]),
        ("x/checkpoint.pt", ["train", "--resume", "x", "--steps", "1"]),
        ("x/checkpoint.pt", ["train", "--resume", "x", "--pack", "p.pt"]),
        ("x.ckpt", ["import", "x.ckpt", "-o", "o.safetensors"]),
        ("x.py", ["inspect", "good.npz", "--plugin", "x.py"]),
    ]
    targets: list[tuple[str, bytes, list[str]]] = [
        ("x.npy", FIFO, [*solve, "-o", "x.npy"]),
        ("x.mp4", FIFO, [*solve, "-o", "x.mp4"]),
        ("x.npz", FIFO, ["simulate", "good.npz", "-T", "2", "-o", "x.npz"]),
        ("x.safetensors", FIFO, ["import", "x.ckpt", "-o", "x.safetensors"]),
        ("good.npz", _good(), [*solve, "-o", "good.npz"]),
        ("good.npz", _good(), ["simulate", "good.npz", "-T", "2", "-o", "good.npz"]),
        ("meas.npz", _measurement(), ["reconstruct", "meas.npz", "--masks", "m.npy", *solve[2:], "-o", "m.npy"]),
        ("notes.npy", b"mine", [*solve, "-o", "notes.npy"]),
        ("notes.mat", b"mine", ["simulate", "good.npz", "-T", "2", "-o", "notes.mat"]),
    ]
    if rng.random() < 0.6:
        name, args = rng.choice(reads)
        files[name] = stuck
        return Case("special", "pipe read" if stuck == FIFO else "endless", files, args, name, (), "refused")
    name, data, args = rng.choice(targets)
    files |= {name: data, "m.npy": KINDS["npy"].sound(rng), "x.ckpt": weights.published()}
    return Case("special", "pipe as output" if data == FIFO else "output is taken", files, args, name, (), "refused")


_WORDS = ("nan", "inf", "-inf", "1e-300", "1e300", "-1", "0", "1e9", "0.5", "x", "", "1e-9", *NAMES)
_WORDS += (
    "1:2",
    "0:0",
    "9:1",
    "0:4,0:4",
    "-1:3,:",
    ":,:",
    "1,2;3,4",
    "1,nan,4",
    "1,0,8",
    "0.1,0.9",
    "auto",
    "9,9",
    "mp4",
)
_WORDS += (
    "bayer:xxxx",
    "bayer",
    "dispersed:0",
    "dispersed:99999999999",
    "dispersed:1,1,1",
    "dual:-3",
    "rgb",
    "exclude",
)


_DEVICES = ("meta", "hpu", "cuda", "cuda:9", "mps", "xpu")
_SETTINGS = ("crop", "batch", "rate", "seed", "frames", "pool", "noise", "settings.layers", "x")
_RECONSTRUCT = (
    "seed scale tol snapshots roi motion bad-pixels offset saturated contrast frames kind points dark white camera "
    "measurement-key masks-key format"
)
_SIMULATE = "seed blur frames noise photons read-noise saturation bits dead density size snapshots shots"


def _option_case(rng: random.Random) -> Case:
    """Values of options that no one types, and names that no one gives."""
    big = str(rng.choice((number(rng), -number(rng), 10**19, 10**30, -(10**30))))
    value = rng.choice((*_WORDS, big, big, big))
    output = rng.choice(NAMES) + rng.choice((".npy", ".mp4", ".npz", "", ".mat", ".gif"))
    target = f"--output={'./' if output[0] == '-' else ''}{output}"
    solve = ["reconstruct", "good.npz", "-m", "gap-tv", "--iterations", "1"]
    made = ["simulate", "-o", "o.npz", "--size", "16x16", "-T", "2"]
    train = ["train", "--config", "x.json", "-o", "run", "--steps", "1"]
    options = {f"reconstruct {name}": [*solve, "--json", f"--{name}={value}"] for name in _RECONSTRUCT.split()}
    options |= {
        f"inspect {name}": ["inspect", "good.npz", f"--{name}={value}", *rng.choice(([], ["--json"]))]
        for name in ("time-axis", "camera", "kind", "scale", "masks", "plugin", "motion", "dark")
    }
    options |= {f"simulate {name}": [*made, f"--{name}={value}"] for name in _SIMULATE.split()}
    options["simulate blur"] += ["--mask", "gray"]
    options["simulate read-noise"] += ["--photons", "100"]
    options |= {
        f"import {name}": ["import", "x.ckpt", "-o", "o.safetensors", f"--{name}={value}"]
        for name in ("tol", "sigma", "max-iter")
    }
    options |= {
        "device": [*solve, "--json", f"--device={rng.choice((*_DEVICES, value))}"],
        "fps": [*solve, "-o", "o.mp4", f"--fps={value}"],
        "method": ["reconstruct", "good.npz", f"--method={value}", "--json"],
        "reconstruct output": [*solve, target],
        "simulate output": [*made, target],
        "train set": [*train, f"--set={rng.choice(_SETTINGS)}={value}"],
        "train seed": [*train, f"--seed={value}"],
    }
    name = rng.choice(sorted(options))
    files = {"good.npz": _good(), "x.json": KINDS["config"].sound(rng), **_clips()}
    files["x.ckpt"] = weights.published()
    outputs = ("o.npz", "o.safetensors", "run", *_outputs("o.mp4"), *_outputs(output))
    return Case("options", name, files, options[name], "good.npz", outputs)


# Shares of the formats: what is read by our own code most, what costs a training step least.
SHARES = {
    **dict.fromkeys(("npz", "mat v5", "mat v7.3", "h5"), 9.0), "mat v4": 3.0, "npy": 8.0, "tiff": 9.0,
    **dict.fromkeys(PICTURES, 3.0),
    **dict.fromkeys(pictures.VIDEOS, 3.0), "safetensors": 8.0, "checkpoint": 6.0, "config": 2.0, "run": 1.5,
    "special": 1.0, "options": 4.0,
}  # fmt: skip


def make(format: str, rng: random.Random, sound: bool = False) -> Case:
    """A case of one format; sound: with a file that is as it should be."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that are told to write what they should not
        if format == "special":
            return _special_case(rng)
        if format == "options":
            return _option_case(rng)
        return around(format, content(KINDS[format], rng, sound), rng)


def around(format: str, made: Made, rng: random.Random) -> Case:
    """A command that reads this content."""
    whole = {"safetensors": _model_case, "checkpoint": _checkpoint_case, "config": _config_case, "run": _run_case}
    if format in whole:
        return whole[format](made, rng)
    return (_picture_case if format in PICTURES else _array_case)(format, made, rng)


def case(seed: int, index: int, formats: tuple[str, ...] = tuple(SHARES)) -> Case:
    """The same case for the same numbers; a combination of damages that cannot be made is drawn again."""
    for attempt in ("", *(f"/{k}" for k in range(1, 10))):
        rng = random.Random(f"{seed}/{index}{attempt}")
        with suppress(ArithmeticError, RuntimeError, TypeError, ValueError):
            return make(rng.choices(formats, [SHARES[name] for name in formats])[0], rng)
    raise RuntimeError(f"case {seed}/{index} cannot be made")


def sound_cases() -> list[Case]:
    """Sound files of every format with every command: they must work, and what they compile stays compiled."""
    found: dict[str, Case] = {}
    for format in KINDS:
        for index in range(20):
            made = make(format, random.Random(index), sound=True)
            found.setdefault(f"{format} {' '.join(made.args)}", made)
    return list(found.values())
