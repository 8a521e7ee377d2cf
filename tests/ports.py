"""A port for a server that another process starts a moment later."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """Free now, and below those that systems hand out by themselves: nobody gets it by chance in the meantime."""
    draw = random.SystemRandom()
    while True:
        port = draw.randrange(10_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
