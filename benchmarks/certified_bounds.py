"""How loose is the T of the certified layers? T over the least one of its shape, for both ways to it.

    python benchmarks/certified_bounds.py [--model guided-certified]

The least one is found by power iteration on the zero-padded convolution, an estimate from below that has settled; 1 is
exact. The weights were trained with one of the two bounds, but either bound can be computed of them.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d

from unsnap import zoo
from unsnap.networks import Certified
from unsnap.networks.certified import _inverse

SIDE, STEPS = 64, 200


def squared_norm(kernel: Tensor) -> float:
    """‖K‖² on an image, by power iteration on KᵀK."""
    wide = kernel.shape[-1] > 1
    padding = (1, kernel.shape[-1] // 2)
    v = torch.randn(1, kernel.shape[1], SIDE, SIDE if wide else 1, generator=torch.Generator().manual_seed(0)).double()
    for _ in range(STEPS):
        v = v / v.norm()
        v = conv_transpose2d(conv2d(v, kernel, padding=padding), kernel, padding=padding)
    return float(v.norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="guided-certified")
    network = zoo.equilibrium(parser.parse_args().model).network
    if not isinstance(network, Certified):
        raise SystemExit(f"{type(network).__name__} has no certified layers")
    network.double().requires_grad_(False)
    for axis, blocks in (("space", network.space), ("time", network.time)):
        for k, block in enumerate(blocks):
            rows = [block.weight * _inverse(block.weight, block.log_q, tight).sqrt().reshape(-1, 1, 1, 1)
                    for tight in (False, True)]  # fmt: skip
            loose = [1 / squared_norm(kernel) for kernel in rows]
            print(f"{axis}.{k}: row sums {loose[0]:.2f}, frequencies {loose[1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
