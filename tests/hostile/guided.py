"""Coverage-guided: libFuzzer, through `atheris`, keeps what reaches new branches of the code and goes on from it.

atheris is no dependency of the project: `pip install atheris` beside unsnap, then `make fuzz GUIDED=1`.
"""

from __future__ import annotations

import os
import random
import sys
import zlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from hostile.cases import KINDS, Case, around, content
from hostile.contract import Process, limit_memory
from hostile.mutate import damage

INSTRUMENTED = ["unsnap", "tifffile", "PIL"]


def instrumented(prepare: Callable[[], None]) -> None:
    """Import what is to be guided by."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        prepare()


def guided_case(format: str, data: bytes) -> Case:
    """The bytes as a file of this format; which command reads it depends on them too, so that it is the same again."""
    return around(format, ("guided", data), random.Random(zlib.crc32(data)))


def guide(format: str, seconds: float, seed: int, folder: Path, tell: Callable[..., None]) -> None:
    """Run libFuzzer on one format, from sound and hostile files; every verdict is told, a failure with its bytes."""
    import atheris

    process = Process(folder / "guided.log")
    corpus = folder / f"corpus-{format.replace(' ', '-')}"
    corpus.mkdir(exist_ok=True)
    if not any(corpus.iterdir()):
        for k in range(60):
            made = content(KINDS[format], random.Random(f"{seed}/{k}"), sound=k < 5)[1]
            (corpus / str(k)).write_bytes(made[:20000])

    def mutate(data: bytes, size: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < 0.3:
            return bytes(atheris.Mutate(data, size))
        if rng.random() < 0.1:
            return content(KINDS[format], rng)[1][:size]
        return damage(data, rng)[1][:size]

    def one(data: bytes) -> None:
        (folder / "current").write_bytes(data)
        verdict = process.run(guided_case(format, data), folder / "guided")
        tell(**asdict(verdict), data=b64encode(data).decode() if verdict.failed else "")

    limit_memory()
    os.chdir(folder)
    options = [f"-max_total_time={max(1, int(seconds))}", f"-seed={seed + 1}", "-max_len=20000", "-timeout=60"]
    atheris.Setup([sys.argv[0], str(corpus), *options, "-rss_limit_mb=0", "-verbosity=0"], one, custom_mutator=mutate)
    atheris.Fuzz()
