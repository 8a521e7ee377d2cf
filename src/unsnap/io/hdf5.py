"""HDF5 through h5py: numeric datasets at any depth, of this file alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from unsnap.errors import InputError
from unsnap.io.budget import address_space, claim
from unsnap.io.checks import HARMLESS, MAX_ARRAYS, Array, check_inflated, is_numeric, reading

_DEEPEST = 32
_DEFLATE = 1


def read(path: Path) -> dict[str, Array]:
    """Every numeric dataset at any depth, named by its path ("scene/meas")."""
    with reading(path, "an HDF5 file"), opened(path, lambda file, name, node: is_numeric(node.dtype)) as nodes:
        return {name: np.asarray(node[()]) for name, node in nodes.items()}


@contextmanager
def opened(path: Path, wanted: Callable[[Any, str, Any], bool]) -> Iterator[dict[str, Any]]:
    """The datasets with wanted(file, name, node), announced and ready to be read."""
    import h5py

    with ExitStack() as stack:
        # The structure: a header may state a size of gigabytes, which HDF5 would allocate.
        with address_space(max(2**28, 4 * path.stat().st_size)):
            file = stack.enter_context(h5py.File(path, "r"))
            nodes = {name: node for name, node in datasets(path, file) if wanted(file, name, node)}
        announce(path, nodes)
        yield nodes


def datasets(path: Path, file: Any) -> Iterator[tuple[str, Any]]:
    """Name and node of every dataset with a shape that lies in this file; soft links are not followed.

    External links, external storage and virtual datasets name other files, whose bytes are nobody's measurement.
    """
    import h5py

    groups, seen, count = [("", file, 0)], set(), 0
    while groups:
        prefix, group, depth = groups.pop()
        count += len(group)
        if count > MAX_ARRAYS or depth > _DEEPEST:
            raise InputError(
                f"{path} has more than {MAX_ARRAYS} entries, or groups in {_DEEPEST} groups; keep measurement and masks"
            )
        for key in group:
            link, name = group.get(key, getlink=True), f"{prefix}{key}"
            if isinstance(link, h5py.ExternalLink):
                raise _elsewhere(path, name)
            node = group[key] if isinstance(link, h5py.HardLink) else None
            # A group may hold itself, and a dataset go by two names.
            address = None if node is None else h5py.h5o.get_info(node.id).addr
            if node is None or address in seen:
                continue
            seen.add(address)
            if isinstance(node, h5py.Group):
                groups.append((f"{name}/", node, depth + 1))
            elif isinstance(node, h5py.Dataset):
                # Asking a virtual dataset for its shape may open the files that it names.
                if node.is_virtual or node.external:
                    raise _elsewhere(path, name)
                if node.shape is not None:
                    yield name, node


def _elsewhere(path: Path, name: str) -> InputError:
    return InputError(
        f"{path}: {name!r} lies in another file, which is not opened; copy the data into this one (h5repack does)"
    )


def announce(path: Path, nodes: dict[str, Any]) -> None:
    """Claim what reading these datasets takes: their values, one chunk at a time, and the other byte order."""
    total = 0
    for node in nodes.values():
        total += (1 if node.dtype.isnative else 2) * math.prod(node.shape) * node.dtype.itemsize
        if node.chunks is not None:
            total += max(2**20, 2 * math.prod(node.chunks) * node.dtype.itemsize)
    claim(path, total)
    for node in nodes.values():
        if node.chunks is not None:
            check_chunks(path, node)


def check_chunks(path: Path, node: Any) -> None:
    """libhdf5 inflates a chunk to whatever size it has, not to that of a chunk."""
    pipeline = node.id.get_create_plist()
    if _DEFLATE not in [pipeline.get_filter(k)[0] for k in range(pipeline.get_nfilters())]:
        return
    large = []
    size = math.prod(node.chunks) * node.dtype.itemsize
    node.id.chunk_iter(lambda info: large.append(info.chunk_offset) if info.size >= HARMLESS else None)
    for offset in large:
        check_inflated(path, node.id.read_direct_chunk(offset)[1], size + 4)


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
