"""From a file to a video: read what a camera (or a colleague) wrote, check it, reconstruct it, score it, save it.

    python examples/01_reconstruct_a_file.py [FOLDER]

writes a small .mat file as the field keeps them, and the video made from it, into FOLDER (default: a temporary one).
"""

import sys
import tempfile
from pathlib import Path

import torch

import unsnap
from unsnap.io import save_arrays
from unsnap.masks import bernoulli
from unsnap.simulate import render

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())

# A file of the usual kind: H×W×T, 8-bit units, two snapshots of eight frames in `meas`, the true video in `orig`.
video = 255 * render(16, 96, 96, seed=4)
masks = bernoulli(8, 96, 96, generator=torch.Generator().manual_seed(0))
meas = torch.stack([(masks * part).sum(0) for part in video.split(8)])
capture = save_arrays(
    folder / "capture.mat",
    meas=meas.permute(1, 2, 0).numpy(),
    mask=masks.permute(1, 2, 0).numpy(),
    orig=video.permute(1, 2, 0).numpy(),
)

# Reading decides which array is what, where time is, and what white is; the decisions are on record.
scene = unsnap.load_scene(capture)
print(f"{capture.name}: {scene.snapshots} snapshots of {scene.frames} frames")
for note in scene.meta["notes"]:
    print("  note:", note)
for finding in unsnap.diagnose(scene):
    print(f"  {finding.level}: {finding.subject}: {finding.text}")

# All snapshots of the file at once; the result is (N, T, H, W) in [0, 1].
solution = unsnap.reconstruct(scene.measurement, scene.masks, "gap-tv3d")
score = unsnap.score(solution.x, scene.truth)
print(f"gap-tv3d: PSNR {score.psnr:.2f} dB, SSIM {score.ssim:.3f}, converged: {solution.converged.tolist()}")

# One video: the snapshots follow one another in time.
print("wrote", unsnap.save_video(folder / "capture.mp4", solution.x, fps=8))
print("wrote", unsnap.save_video(folder / "capture.gif", solution.x, fps=8))
