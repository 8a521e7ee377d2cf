"""What a description may ask for: numbers that end in bounded time, and no more weights than its file holds.

Both are counted before anything is allocated: a file of a few hundred bytes can say `layers = 1000000`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from typing import Any

from torch import Tensor
from torch.nn.modules import module
from torch.overrides import TorchFunctionMode

from unsnap.errors import InputError
from unsnap.io.budget import left

MOST = {"max_iter": 100_000, "memory": 100, "radius": 100, "patch": 100, "group": 1000, "inner": 1000, "updates": 1000}
"""The largest whole numbers in a description; of others, such as iterations, `OTHERS`."""
OTHERS = 10_000
_TENSORS = 2000  # of a network without a file to compare with
_FACTORIES = ("empty", "zeros", "ones", "full", "rand", "new_")


def check_numbers(facts: Mapping[str, Any]) -> None:
    """A ValueError if a whole number of a description is absurd; settings of networks are left to `within`."""
    for name, value in facts.items():
        if isinstance(value, Mapping) and name not in ("about", "network"):
            check_numbers(value)
        elif isinstance(value, int) and value > MOST.get(name, OTHERS):
            raise ValueError(f"{name} may be {MOST.get(name, OTHERS)} at most, got {_short(value)}")


@contextmanager
def within(described: Mapping[str, Any], weights: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Stop the building of a model that has more weights than these, or than memory allows if there are none.

    Twice as many are granted, since a constructor may make what it then replaces.
    """
    tensors = _TENSORS if weights is None else 2 * len(weights) + 16
    values = left() // 4 if weights is None else 4 * sum(w.numel() for w in weights.values()) + 2**20
    whose = "there is room for" if weights is None else "the file holds weights for"
    networks = [described.get("network"), *(described.get("networks") or ())]
    _check_settings(networks, values, whose)
    with ExitStack() as stack:
        counts = {"tensors": 0, "modules": 0}

        def count(what: str, most: int) -> None:
            counts[what] += 1
            if counts[what] > most:
                raise InputError(f"it describes more {what} than {whose} ({most}); import or train it again")

        hooks = (
            module.register_module_parameter_registration_hook(lambda *_: count("tensors", tensors)),
            module.register_module_module_registration_hook(lambda *_: count("modules", 10 * tensors)),
        )
        for hook in hooks:
            stack.callback(hook.remove)
        stack.enter_context(_Room(values, whose))
        yield


def _check_settings(value: Any, most: int, whose: str) -> None:
    """No whole number of a network's settings exceeds the number of its weights: lists may be made that long."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            _check_settings(inner, most, whose)
    elif isinstance(value, int) and abs(value) > most:
        raise InputError(f"a setting of its network is {_short(value)}, and {whose} {most} values; train it again")


class _Room(TorchFunctionMode):
    """Counts the values that tensors are made for, before they are."""

    def __init__(self, values: int, whose: str) -> None:
        super().__init__()
        self.values, self.whose = values, whose

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "").startswith(_FACTORIES):
            self.values -= _values([a for a in args if not isinstance(a, Tensor)] or [(kwargs or {}).get("size", ())])
            if self.values < 0:
                raise InputError(f"it describes more weights than {self.whose}; import or train it again")
        return func(*args, **(kwargs or {}))


def _values(args: Sequence[Any]) -> int:
    """Values of a tensor that is made with these arguments: empty((2, 3)) or empty(2, 3)."""
    sizes = args[0] if isinstance(args[0], (list, tuple)) else list(takewhile(lambda a: isinstance(a, int), args))
    return math.prod(sizes)


def _short(value: int) -> str:
    """A number of a file in a sentence: Python refuses to write out one of thousands of digits."""
    return str(value) if abs(value) < 10**12 else "a number of more than 12 digits"
