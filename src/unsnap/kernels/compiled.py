"""`numba.njit` with our options, whose cache on disk is a convenience and never a reason to fail.

numba itself raises when the cache cannot be written: a full disk stops a reconstruction that needs no disk, and an
installation without any writable folder cannot even be imported.

Kernels copy arrays number by number: of `a[:] = b` numba also compiles the sentence that would name unequal shapes,
which takes longer than the rest of the kernel (of 7 seconds for the first total variation, 4.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import numba

# Not full fastmath: NaN and Inf must survive, or a diverging run would go unseen.
CAREFUL = ("contract", "reassoc", "nsz")


def compiled(
    function: Callable[..., Any] | None = None, *, fastmath: Iterable[str] = CAREFUL, forceinline: bool = False
) -> Any:
    """Compile a kernel at its first call: without the GIL, division as in numpy, kept on disk if that is possible."""
    if function is None:
        return partial(compiled, fastmath=fastmath, forceinline=forceinline)
    options = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath), "forceinline": forceinline}
    kernel = numba.njit(**options)(function)
    try:
        kernel.enable_caching()
    except RuntimeError:  # no folder that could hold the cache
        return kernel
    save = kernel._cache.save_overload

    def save_if_possible(*compilation: Any) -> None:
        with suppress(OSError):  # full disk, quota, read-only
            save(*compilation)

    kernel._cache.save_overload = save_if_possible
    return kernel
