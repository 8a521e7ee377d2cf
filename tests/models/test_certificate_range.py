"""The certificate at the edges of its stated range; `benchmarks/certificate_edges.py` tries a thousand such cases."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from snippets import script
from unsnap import GAP, Equilibrium
from unsnap.fixed_point import picard
from unsnap.models.stability import certify
from unsnap.networks import Certified


@pytest.fixture(scope="module")
def edges() -> ModuleType:
    return script("benchmarks/certificate_edges.py")


@pytest.mark.parametrize("seed", range(5000, 5020))
def test_at_the_edge_of_the_range_nothing_is_nan_and_nothing_late(edges: ModuleType, seed: int) -> None:
    found = edges.outcome(seed)
    assert found.filled <= 1
    assert found.kept, found


def test_the_range_is_where_rounding_takes_half_of_the_tolerance() -> None:
    model = Equilibrium(GAP(), Certified(blocks=1, contraction=0.8), solver=picard(), tol=1e-4)
    certificate = certify(model)
    assert certificate.range(1e-4) == pytest.approx(5e-5 * 0.2 / 2**-23 - 2)
    assert certificate.range(1e-7) is None
    assert certificate.within(1e-4) == certificate.evaluations(5e-5)
    longer = certificate.range(1e-4, torch.float64)
    assert longer is not None
    assert longer > 1e9
    assert f"in float32 within {certificate.within(1e-4)} for snapshots" in certificate.statement
    model.tol = 1e-7
    assert "float32 is too coarse" in certify(model).statement


def test_without_a_contraction_there_is_no_range() -> None:
    assert certify(Equilibrium(GAP(), Certified(blocks=1, contraction=None))).range(1e-4) is None
