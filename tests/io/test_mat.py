"""MATLAB files: every version gives the same variables, in MATLAB's order and class; scipy is the oracle."""

from __future__ import annotations

import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from unsnap.errors import InputError
from unsnap.io import load_scene, read_arrays, save_arrays

VARIABLES = {
    "meas": np.arange(30.0).reshape(5, 6),
    "mask": (np.arange(120).reshape(5, 6, 4) % 3 == 0),
    "orig": np.arange(120, dtype=np.uint8).reshape(5, 6, 4),
    "single": np.float32([[0.5, 1.5]]),
    "long": np.array([[2**40, -3]], dtype=np.int64),
    "wave": np.array([[1 + 2j, 3 - 4j]]),
    "one": np.array([[7.0]]),
}
STRUCT = {"gain": np.array([[2.0, 3.0]]), "note": "text"}


def write_v73(path: Path) -> None:
    """What MATLAB writes: reversed axes, the class as an attribute, complex as a pair, cells as references."""
    classes = {"bool": "logical", "float64": "double", "float32": "single", "complex128": "double"}
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in VARIABLES.items():
            stored = value.T.astype(np.uint8) if value.dtype == bool else value.T
            if value.dtype.kind == "c":
                pair = np.zeros(stored.shape, [("real", "f8"), ("imag", "f8")])
                pair["real"], pair["imag"] = stored.real, stored.imag
                stored = pair
            file[name] = stored
            file[name].attrs["MATLAB_class"] = np.bytes_(classes.get(str(value.dtype), str(value.dtype)))
        file["s/gain"], file["s/note"] = STRUCT["gain"].T, np.frombuffer(b"t\0e\0x\0t\0", np.uint16)[:, None]
        file["s/note"].attrs["MATLAB_class"] = np.bytes_("char")
        file["#refs#/a"] = np.eye(2)
        file["cell"] = np.array([[file["#refs#/a"].ref]], dtype=h5py.ref_dtype)
        file["cell"].attrs["MATLAB_class"] = np.bytes_("cell")
        file["empty"] = np.array([0, 3], np.uint64)
        file["empty"].attrs["MATLAB_class"], file["empty"].attrs["MATLAB_empty"] = np.bytes_("double"), 1
        sparse = file.create_group("sparse")
        sparse.attrs["MATLAB_sparse"] = 3
        sparse["jc"] = np.arange(4)


def expected() -> dict[str, np.ndarray]:
    return {**VARIABLES, "s/gain": STRUCT["gain"], "empty": np.empty((0, 3))}


def write_v5(path: Path, compressed: bool) -> None:
    extra = {"s": STRUCT, "cell": np.array([1, "a"], object), "empty": np.empty((0, 3)), "text": "abc"}
    extra["sparse"] = scipy.sparse.csc_matrix(np.eye(3))
    scipy.io.savemat(path, {**VARIABLES, **extra}, do_compression=compressed)


@pytest.mark.parametrize("version", ["v5", "v7", "v7.3"])
def test_every_version_gives_the_same_variables(tmp_path: Path, version: str) -> None:
    path = tmp_path / "scene.mat"
    if version == "v7.3":
        write_v73(path)
    else:
        write_v5(path, compressed=version == "v7")
    arrays = read_arrays(path)
    assert arrays.keys() == expected().keys()
    for name, value in expected().items():
        np.testing.assert_array_equal(arrays[name], value, err_msg=name)
        assert arrays[name].dtype == value.dtype, name


@pytest.mark.parametrize("version", ["v5", "v7", "v7.3"])
def test_cells_are_named_where_something_is_missing(tmp_path: Path, version: str) -> None:
    path = tmp_path / "scene.mat"
    if version == "v7.3":
        write_v73(path)
        with h5py.File(path, "a") as file:
            file["s/mask"] = file.pop("cell")
            for name in ("mask", "orig"):
                del file[name]
    else:
        frames = np.empty((1, 4), object)
        frames[0] = [np.eye(5, 6) for _ in range(4)]
        stored = {"meas": VARIABLES["meas"], "s": {"mask": frames}}
        scipy.io.savemat(path, stored, do_compression=version == "v7")
    said = r"the cell array 's\.mask' is not read: save the pictures as one array, such as cat\(3, s\.mask\{:\}\)"
    for key in (None, "s/mask"):
        with pytest.raises(InputError, match=said):
            load_scene(path, masks_key=key)
    save_arrays(tmp_path / "y.npz", meas=VARIABLES["meas"])
    with pytest.raises(InputError, match=said):
        load_scene(tmp_path / "y.npz", masks=path, masks_key="mask")


def test_a_file_of_cells_alone_says_so(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "m.mat", {"mask": np.array([np.eye(3), 1], object)})
    with pytest.raises(InputError, match="the cell array 'mask' is not read"):
        read_arrays(tmp_path / "m.mat")


def test_v4_is_read(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "old.mat", {"meas": VARIABLES["meas"], "text": "abc"}, format="4")
    arrays = read_arrays(tmp_path / "old.mat")
    assert list(arrays) == ["meas"]
    np.testing.assert_array_equal(arrays["meas"], VARIABLES["meas"])


def test_doubles_stored_as_bytes_stay_doubles(tmp_path: Path) -> None:
    """MATLAB packs integral doubles into bytes; their class, not their packing, is what the reader must return."""
    path = tmp_path / "packed.mat"
    scipy.io.savemat(path, {"mask": np.uint8([[1, 0, 1, 1, 0, 0, 1, 0, 1]])})
    content = bytearray(path.read_bytes())
    content[128 + 16] = 6  # array class: uint8 -> double; the stored type stays uint8
    path.write_bytes(content)
    mask = read_arrays(path)["mask"]
    assert mask.dtype == np.float64
    np.testing.assert_array_equal(mask, [[1, 0, 1, 1, 0, 0, 1, 0, 1]])


def test_scipys_own_collection_agrees() -> None:
    """About a hundred files written by MATLAB 4 to 7.4 and Octave on three kinds of machine."""
    folder = Path(scipy.io.__file__).parent / "matlab" / "tests" / "data"
    files = sorted(folder.glob("test*.mat"))
    if not files:
        pytest.skip("this scipy comes without its test data")
    compared = 0
    for path in files:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                content = scipy.io.loadmat(path)
        except NotImplementedError:
            continue
        numeric = {k: v for k, v in content.items() if isinstance(v, np.ndarray) and v.dtype.kind in "biufc" and v.size}
        arrays = read_arrays(path) if numeric else {}
        for name, value in numeric.items():
            if not name.startswith("__"):
                np.testing.assert_array_equal(arrays[name], value, err_msg=f"{path.name}: {name}")
                compared += 1
    assert compared > 30


def test_save_arrays_is_what_scipy_reads(tmp_path: Path) -> None:
    arrays = {name: VARIABLES[name] for name in ("meas", "orig", "wave")}
    content = scipy.io.loadmat(save_arrays(tmp_path / "scene.mat", **arrays))
    for name, value in arrays.items():
        np.testing.assert_array_equal(content[name], value)


@pytest.mark.parametrize("tag", [b"\x08\x00", b"\xff\x7f"])
def test_a_damaged_type_tag_is_one_sentence(tmp_path: Path, tag: bytes) -> None:
    """scipy's reader takes the whole process down on such files."""
    path = tmp_path / "damaged.mat"
    scipy.io.savemat(path, {"a": np.eye(3)})
    content = bytearray(path.read_bytes())
    content[176:178] = tag
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"damaged\.mat cannot be read as a MATLAB file \(numbers of the unknown type"):
        read_arrays(path)


def test_a_v4_matrix_that_is_not_there_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    path = tmp_path / "old.mat"
    scipy.io.savemat(path, {"meas": np.ones((4, 4)), "mask": np.ones((4, 8))}, format="4")
    sound = path.read_bytes()
    assert set(read_arrays(path)) == {"meas", "mask"}
    path.write_bytes(sound[:4] + (2**30).to_bytes(4, "little") + sound[8:])
    with pytest.raises(InputError, match="cut short"):
        read_arrays(path)


@pytest.mark.parametrize("version", ["5", "7.3"])
def test_structs_in_structs_are_read_three_deep(tmp_path: Path, version: str) -> None:
    values, path = np.arange(6.0).reshape(2, 3), tmp_path / "nested.mat"
    if version == "5":
        scipy.io.savemat(path, {"a": {"b": {"m": values, "c": {"m": values, "d": {"m": values}}}}})
    else:
        with h5py.File(path, "w", userblock_size=512) as file:
            for name in ("a/b/m", "a/b/c/m", "a/b/c/d/m"):
                file[name] = values.T
    arrays = read_arrays(path)
    assert set(arrays) == {"a/b/m", "a/b/c/m"}
    np.testing.assert_array_equal(arrays["a/b/m"], values)
