"""Where commands speak, and two of the codes that they leave with; light, for what is said before torch is there."""

from __future__ import annotations

from rich.console import Console

out = Console()
err = Console(stderr=True)

BAD_INPUT, NOT_CONVERGED = 2, 3
