"""Train a small DE-GAP by implicit gradients: no layers to count, constant memory, seconds on one core.

    python examples/06_train_an_equilibrium.py [--steps 60]

A CNN learns a little denoising first, so that GAP with it comes to rest at all. Then it is trained for the very point
where that happens, by differentiating the equation x = f(x) that the point satisfies; equations are numbered as on
docs/cookbook/index.md.
"""

import sys

import torch
from torch import Tensor

from unsnap import GAP, Equilibrium, Snapshot, psnr
from unsnap.fixed_point import implicit
from unsnap.masks import bernoulli
from unsnap.networks import CNN
from unsnap.simulate import render

FRAMES, SIZE, BATCH = 4, 32, 2
STEPS = int(sys.argv[2]) if sys.argv[1:2] == ["--steps"] else 60
torch.manual_seed(0)
seed = torch.Generator().manual_seed(0)
clips = torch.stack([render(FRAMES, SIZE, SIZE, seed=1000 + k) for k in range(16)])


def draw() -> Tensor:
    return clips[torch.randint(len(clips), (BATCH,), generator=seed)]


network = CNN(layers=3, channels=12, bias=True)  # D(x) = x − net(x)
optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
for _ in range(30):
    clean = draw()
    noisy = clean + 0.1 * torch.randn(clean.shape, generator=seed)
    optimiser.zero_grad()
    (network(noisy) - clean).square().mean().backward()
    optimiser.step()

# The same network inside x = D(project(x)). Both solves, forward and backward, go to a relative residual of 1e-3.
model = Equilibrium(GAP(), network, backward=implicit(tol=1e-3, max_iter=40), tol=1e-3, max_iter=40)
optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
unseen, camera = render(FRAMES, SIZE, SIZE, seed=4), Snapshot(bernoulli(FRAMES, SIZE, SIZE, generator=seed))


def report(step: int) -> None:
    with torch.no_grad():
        solution = model(camera.A(unseen)[None], camera)
    loss = float((solution.x[0] - unseen).square().mean() / 2)
    quality = float(psnr(solution.x[0], unseen).mean())
    print(f"step {step:2d}: unseen clip, loss {loss:.5f}, PSNR {quality:.2f} dB, ", end="")
    print(f"residual {float(solution.best):.1e} after {solution.evaluations} evaluations")


report(0)
for step in range(1, STEPS + 1):
    truth, phi = draw(), Snapshot(bernoulli(FRAMES, SIZE, SIZE, generator=seed))  # fresh masks each time
    solution = model(phi.A(truth), phi)
    loss = (solution.x - truth).square().mean() / 2  # (17)
    optimiser.zero_grad()
    loss.backward()  # (18), (19)
    optimiser.step()
    if step % max(STEPS // 4, 1) == 0:
        report(step)
