"""What jobs of the tests do; in a module of its own, which other processes can import."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from unsnap.errors import InputError


def sleeping(tell: Any) -> None:
    tell({"pid": os.getpid()})
    time.sleep(600)


def failing(tell: Any, how: str, terminal: Path) -> None:
    sys.stderr = terminal.open("w", buffering=1)  # jobs are copies of a process that another test may have started
    if how == "input":
        raise InputError("a.mat is no capture; give another")
    if how == "dies":
        os._exit(9)
    raise KeyError(how)
