"""DnCNN: Zhang et al., *Beyond a Gaussian denoiser*, IEEE Trans. Image Process. 2017."""

from __future__ import annotations

from unsnap.networks.cnn import CNN


class DnCNN(CNN):
    """17 layers (20 for the blind network) of 64 maps with biases, predicting the noise, frame by frame.

    Batch normalisation, where a published network has it, is folded into the convolutions when its file is read: the
    same function, and one whose output does not depend on the rest of the batch.
    """

    def __init__(self, layers: int = 17, channels: int = 64) -> None:
        super().__init__(layers, channels, bias=True)
        self.settings = {"layers": layers, "channels": channels}
