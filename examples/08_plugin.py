"""A plug-in: a network and a prior of your own, trained, saved in a model file, loaded again and used.

    python examples/08_plugin.py [FOLDER]

writes a scene and a model file into FOLDER (default: a temporary one). The plug-in is my_plugin.py beside this script;
`import my_plugin` would do as well, and on the command line it is `--plugin my_plugin.py`.
"""

import sys
import tempfile
from pathlib import Path

import torch

import unsnap
from unsnap.masks import bernoulli
from unsnap.models import Batch
from unsnap.simulate import render, simulate

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
plugin = unsnap.load_plugin(Path(__file__).with_name("my_plugin.py"))
torch.manual_seed(0)
masks = bernoulli(8, 32, 32, generator=torch.Generator().manual_seed(0))
capture = unsnap.save_scene(folder / "capture.npz", simulate(render(8, 32, 32, seed=4), masks))
scene = unsnap.load_scene(capture)


def report(name: str, solution: unsnap.Solution) -> None:
    print(f"{name}: PSNR {float(unsnap.psnr(solution.x, scene.truth).mean()):.2f} dB")


# The prior: accelerated GAP with it is a method called gap-NAME.
report("gap-median", unsnap.reconstruct(scene.measurement, scene.masks, "gap-median"))

# The network: three stages of GAP with weights of their own, trained for some seconds on other clips.
model = unsnap.Unfolded(unsnap.GAP(), [plugin.Conv3dNet(channels=6) for _ in range(3)], [0.1, 0.05, 0.02])
clips, phi = torch.stack([render(8, 32, 32, seed=100 + k) for k in range(8)]), unsnap.Snapshot(masks)
report("untrained model", unsnap.reconstruct(scene.measurement, scene.masks, model))
optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(30):
    truth = clips[[step % 8, (step + 3) % 8]]
    optimiser.zero_grad()
    model.loss(Batch(truth, phi.A(truth), phi)).value.backward()
    optimiser.step()

# The file holds weights, settings, start and sigmas, and the name "my-conv3d": who loads it needs the plug-in.
file = unsnap.save(folder / "my-model.safetensors", model)
again = unsnap.load(file)
report("trained model, from its file", unsnap.reconstruct(scene.measurement, scene.masks, file))
assert torch.equal(again(scene.measurement, phi).x, model(scene.measurement, phi).x)


# A network that is not registered works just the same, but cannot be saved.
class Unregistered(plugin.Conv3dNet):
    pass


try:
    unsnap.save(folder / "other.safetensors", unsnap.Unfolded(unsnap.GAP(), Unregistered(), [0.1]))
except unsnap.InputError as error:
    print("not saved:", error)
