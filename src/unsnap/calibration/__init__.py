"""What is wrong with this camera, and the camera that puts it right."""

from unsnap.calibration.camera import Camera
from unsnap.calibration.search import calibrate

__all__ = ["Camera", "calibrate"]
