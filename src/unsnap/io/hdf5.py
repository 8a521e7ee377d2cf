"""HDF5 through h5py: numeric datasets at any depth."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from unsnap.io.checks import Array, check_size, is_numeric, reading


def read(path: Path) -> dict[str, Array]:
    """Every numeric dataset at any depth, named by its path ("scene/meas")."""
    import h5py

    found: dict[str, Any] = {}

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.shape is not None and is_numeric(node.dtype):
            found[name] = node

    with reading(path, "an HDF5 file"), h5py.File(path, "r") as file:
        file.visititems(visit)
        check_size(path, sum(math.prod(node.shape) * node.dtype.itemsize for node in found.values()))
        return {name: np.asarray(node[()]) for name, node in found.items()}


def write(path: Path, arrays: dict[str, Array]) -> None:
    import h5py

    # Built in memory: libhdf5 does not survive a disk that fills up under an open file.
    with h5py.File("image", "w", driver="core", backing_store=False) as file:
        for name, array in arrays.items():
            file.create_dataset(
                name, data=array, **({"compression": "gzip", "compression_opts": 1} if array.size > 1 else {})
            )
        file.flush()
        image = file.id.get_file_image()
    path.write_bytes(image)
