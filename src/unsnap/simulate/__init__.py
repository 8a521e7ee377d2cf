"""From a video to the scene that a coded camera would have recorded, and a built-in video to begin with."""

from unsnap.simulate.camera import Noise, chain, gaussian, quantise, saturate, shot, simulate
from unsnap.simulate.rendered import render

__all__ = ["Noise", "chain", "gaussian", "quantise", "render", "saturate", "shot", "simulate"]
