"""Fused kernels are used where they may be, and step aside where derivatives or wrappers are about."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import laws
from laws import close, uniform
from unsnap.kernels import data, tv
from unsnap.kernels.dispatch import array, usable
from unsnap.operators import Snapshot
from unsnap.priors import TV


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels called, in order."""
    seen: list[str] = []

    def spy(module: object, name: str) -> None:
        original: Callable[..., object] = getattr(module, name)

        def recorded(*args: object, **settings: object) -> object:
            seen.append(name)
            return original(*args, **settings)

        monkeypatch.setattr(module, name, recorded)

    for module, name in ((data, "forward"), (data, "step"), (tv, "denoise")):
        spy(module, name)
    return seen


def use_all(x: Tensor, y: Tensor, masks: Tensor) -> list[Tensor]:
    phi = Snapshot(masks)
    return [phi.A(x), phi.project(x, y), phi.prox_l2(x, y, 0.5), TV()(x, 0.1)]


MASKS, X, Y = uniform(3, 6, 5), uniform(2, 3, 6, 5, seed=1), uniform(2, 6, 5, seed=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_serve_plain_cpu_tensors(calls: list[str], dtype: torch.dtype) -> None:
    use_all(X.to(dtype), Y.to(dtype), MASKS.to(dtype))
    assert calls == ["forward", "step", "step", "denoise"]


def test_kernels_serve_learnable_tensors_while_nothing_is_recorded(calls: list[str]) -> None:
    with torch.no_grad():
        results = use_all(X.clone().requires_grad_(), Y, MASKS)
    assert len(calls) == 4
    assert not any(r.requires_grad for r in results)
    with torch.inference_mode():
        use_all(X, Y, MASKS)
    assert len(calls) == 8


def test_kernels_step_aside_for_gradients(calls: list[str]) -> None:
    for inputs in ((X.clone().requires_grad_(), Y, MASKS), (X, Y, MASKS.clone().requires_grad_())):
        results = use_all(*inputs)
        assert all(r.requires_grad for r in results[:3])
    assert calls == ["denoise"]  # of an x without gradient


def test_kernels_step_aside_for_other_types(calls: list[str]) -> None:
    use_all(X.bfloat16(), Y.bfloat16(), MASKS.bfloat16())
    elsewhere = Snapshot(MASKS).to("meta")
    assert elsewhere.project(X.to("meta"), Y.to("meta")).device.type == "meta"
    assert TV()(X.to("meta"), 0.1).device.type == "meta"
    assert calls == []


def test_mixed_precision_is_promoted(calls: list[str]) -> None:
    mixed = use_all(X.float(), Y, MASKS)
    assert calls == ["denoise"]
    assert [m.dtype for m in mixed[:3]] == [torch.float64] * 3
    for a, b in zip(mixed, use_all(X, Y, MASKS), strict=True):
        close(a, b, 1e-6)


@laws.forward_mode
def test_kernels_step_aside_for_function_transforms(calls: list[str]) -> None:
    torch.func.vmap(lambda x, y: use_all(x, y, MASKS)[-1])(X, Y)
    torch.func.grad(lambda x: sum(r.sum() for r in use_all(x, Y, MASKS)))(X)
    torch.func.jvp(lambda x: use_all(x, Y, MASKS)[-1], (X,), (X,))
    assert calls == []
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X, torch.ones_like(X))
        slope = torch.autograd.forward_ad.unpack_dual(Snapshot(MASKS).A(dual)).tangent
    assert calls == []
    close(slope, Snapshot(MASKS).A(torch.ones_like(X)))


def test_usable_names_the_conditions() -> None:
    assert usable(X, Y)
    assert usable(torch.nn.Parameter(X, requires_grad=False))
    assert not usable(X, Y.float())
    assert not usable(X.half())
    assert not usable(X.clone().requires_grad_())

    class Special(Tensor): ...

    assert not usable(X.as_subclass(Special))


def test_array_shares_memory_when_it_can() -> None:
    assert array(X).ctypes.data == X.data_ptr()
    assert array(X, -1, 6, 5).shape == (6, 6, 5)
    assert (array(X.mT) == X.mT.numpy()).all()
