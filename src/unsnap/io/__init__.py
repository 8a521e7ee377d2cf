"""Files in and out: arrays, videos and reports; every write is atomic, every bad file one sentence."""

from unsnap.io.atomic import atomic_file, atomic_folder, write_json, write_text
from unsnap.io.budget import memory
from unsnap.io.files import ARRAY_OUTPUTS, read_arrays, save_arrays, sha256
from unsnap.io.outputs import claim_output
from unsnap.io.scene_file import load_scene, save_scene
from unsnap.io.video import VIDEO_OUTPUTS, read_cube, read_video, save_video

__all__ = [
    "ARRAY_OUTPUTS",
    "VIDEO_OUTPUTS",
    "atomic_file",
    "atomic_folder",
    "claim_output",
    "load_scene",
    "memory",
    "read_arrays",
    "read_cube",
    "read_video",
    "save_arrays",
    "save_scene",
    "save_video",
    "sha256",
    "write_json",
    "write_text",
]
