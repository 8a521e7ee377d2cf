"""A convergence certificate, and an attempt to break it: absurd masks, snapshots and starts.

python examples/07_certificate.py
"""

from itertools import pairwise

import torch

from unsnap import GAP, Equilibrium, Snapshot
from unsnap.fixed_point import anderson, picard
from unsnap.masks import bernoulli, gray
from unsnap.models.stability import certify, lipschitz
from unsnap.networks import CNN, Certified

torch.manual_seed(0)
seed = torch.Generator().manual_seed(0)
FRAMES, SIZE = 4, 32

# Proven, whatever the weights are: they are random here, and made a hundred times larger to be sure.
network = Certified(blocks=3, channels=16, hidden=16)
with torch.no_grad():
    for weight in network.parameters():
        weight.mul_(100).add_(torch.randn(weight.shape, generator=seed))
model = Equilibrium(GAP(), network, solver=picard(), tol=1e-5, max_iter=2000)
certificate = certify(model)
print(f"certified: {certificate.certified}, {certificate.statement}")
for layer in certificate.evidence["layers"]:
    print(f"  {layer['layer']}: squared norm {layer['squared_norm']:.7f}, bound {layer['bound']:.4g}")

attacks = {
    "0/1 masks": bernoulli(FRAMES, SIZE, SIZE, generator=seed),
    "masks 0 to 255": gray(FRAMES, SIZE, SIZE, high=255.0, generator=seed),
    "all masks closed": torch.zeros(FRAMES, SIZE, SIZE),
    "all masks open": torch.ones(FRAMES, SIZE, SIZE),
}
for name, masks in attacks.items():
    phi = Snapshot(masks)
    y = 100 * torch.randn(1, SIZE, SIZE, generator=seed)  # a snapshot of nothing
    x = torch.randn(1, FRAMES, SIZE, SIZE, generator=seed)
    f = model.bind(y, phi)
    with torch.no_grad():
        solution = model(y, phi, state=(x,))
        sizes = []
        for _ in range(30):
            value = f((x,))[0]
            sizes.append(float((value - x).norm()))
            x = value
    rises = sum(late > early * (1 + 1e-5) for early, late in pairwise(sizes))
    local = lipschitz(lambda z, f=f: f((z,))[0], solution.x, generator=seed)
    print(f"{name:17s} {solution.reason[0]} after {solution.evaluations} evaluations; ", end="")
    print(f"residual rose {rises} times; measured Lipschitz constant {local:.4f} <= {certificate.bound:g}")

# An ordinary network has no certificate, and is told so.
plain = Equilibrium(GAP(), CNN(layers=3, channels=8), solver=anderson(), max_iter=50)
phi = Snapshot(attacks["0/1 masks"])
print(f"CNN: {certify(plain, phi.A(torch.rand(1, FRAMES, SIZE, SIZE, generator=seed)), phi).statement}")
