"""One thread per process: small tensors gain nothing from more, and a busy machine or `pytest -n` loses much.

Signals as in a terminal: tests send some to themselves and to commands, which would ignore them after `nohup` or `&`.
"""

from __future__ import annotations

import signal

import torch

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
