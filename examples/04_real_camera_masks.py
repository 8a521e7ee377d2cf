"""Masks as cameras have them: grey, shifted, blurred, in odd units, with dead pixels and noise; the call is the same.

python examples/04_real_camera_masks.py
"""

import torch

from unsnap import diagnose, reconstruct, score
from unsnap.masks import bernoulli, gray, shifted, statistics
from unsnap.simulate import chain, quantise, render, saturate, shot, simulate

video = render(8, 64, 64, seed=4)
seed = torch.Generator().manual_seed(0)

# A sensor with a full well of 8 whites, photon and read noise, and a 12-bit converter.
sensor = chain(shot(photons=2000, read=5), saturate(8.0), quantise(12, full_scale=8.0))

cameras = {
    "ideal 0/1 masks": simulate(video, bernoulli(8, 64, 64, generator=seed)),
    "one mask, shifted": simulate(video, shifted(8, 64, 64, step=(1, 0), generator=seed)),
    "grey masks, blurred": simulate(video, gray(8, 64, 64, blur=0.7, generator=seed)),
    "masks 0 to 255": simulate(video, gray(8, 64, 64, high=255.0, generator=seed)),
    "2 % dead pixels": simulate(video, bernoulli(8, 64, 64, generator=seed), generator=seed, dead=0.02),
    "noisy sensor": simulate(video, bernoulli(8, 64, 64, generator=seed), noise=sensor, generator=seed),
}
for name, scene in cameras.items():
    solution = reconstruct(scene.measurement, scene.masks)
    numbers = statistics(scene.masks)
    print(f"{name:20s} PSNR {score(solution.x, scene.truth).psnr:6.2f} dB", end="   ")
    print(f"Σm² / Σm up to {numbers.ratio_max:.3g}, unmeasured pixels {numbers.dead}")

print("\nWhat the doctor says of the masks in 0 to 255:")
for finding in diagnose(cameras["masks 0 to 255"]):
    print(f"  {finding.level}: {finding.text}")

# Code that divides by Σm instead of Σm² is right for 0/1 masks only. Here it leaves the finite world:
scene = cameras["masks 0 to 255"]
y, m = scene.measurement[0], scene.masks
x = torch.zeros_like(m)
for _ in range(5):
    x = x + m * ((y - (m * x).sum(0)) / m.sum(0))
print(f"\nfive data steps with Σm: misfit grew by a factor of {float((y - (m * x).sum(0)).norm() / y.norm()):.1e}")
x = m * (y / m.square().sum(0))
print(f"one data step with Σm²:  misfit is {float((y - (m * x).sum(0)).norm() / y.norm()):.1e} of the snapshot")
