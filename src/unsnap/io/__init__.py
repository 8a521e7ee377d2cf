"""Files in and out: arrays, videos and reports; every write is atomic, every bad file one sentence."""

from unsnap.io.atomic import atomic_file, atomic_folder, write_json, write_text
from unsnap.io.claim import claim
from unsnap.io.files import ARRAY_OUTPUTS, read_arrays, save_arrays, sha256
from unsnap.io.scene_file import load_scene, save_scene
from unsnap.io.video import VIDEO_OUTPUTS, read_video, save_video

__all__ = [
    "ARRAY_OUTPUTS",
    "VIDEO_OUTPUTS",
    "atomic_file",
    "atomic_folder",
    "claim",
    "load_scene",
    "read_arrays",
    "read_video",
    "save_arrays",
    "save_scene",
    "save_video",
    "sha256",
    "write_json",
    "write_text",
]
