"""One thread per process: small tensors gain nothing from more, and a busy machine or `pytest -n` loses much."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
