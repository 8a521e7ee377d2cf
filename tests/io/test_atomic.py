"""All or nothing: whatever goes wrong while writing, the old file is intact and no debris remains."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch

from unsnap.errors import InputError
from unsnap.io import (
    ARRAY_OUTPUTS,
    VIDEO_OUTPUTS,
    atomic_file,
    atomic_folder,
    read_video,
    save_arrays,
    save_video,
    write_json,
    write_text,
)

VIDEO = torch.rand(8, 48, 48, generator=torch.Generator().manual_seed(0))
OUTPUTS = [f"a{suffix}" for suffix in VIDEO_OUTPUTS if suffix] + ["frames"]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let the system refuse writes beyond `size` bytes: a real failure inside every library, as on a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_success_replaces_and_cleans_up(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_file(path) as temporary:
        assert (temporary.parent, temporary.suffix) == (path.parent, ".txt")
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def fail_after_writing(path: Path, error: type[BaseException]) -> None:
    path.write_text("half")
    raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_failure_inside_the_block_changes_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    path, folder = tmp_path / "a.txt", tmp_path / "frames"
    path.write_text("old")
    folder.mkdir()
    (folder / "frame_0001.png").write_text("old")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error), atomic_file(path) as temporary:
        fail_after_writing(temporary, error)
    with pytest.raises(error), atomic_folder(folder) as temporary:
        fail_after_writing(temporary / "frame_0001.png", error)
    assert sorted(tmp_path.rglob("*")) == before
    assert path.read_text() == (folder / "frame_0001.png").read_text() == "old"


@pytest.mark.parametrize(("name", "fails_at"), [*((name, 1) for name in OUTPUTS), ("frames", 2)])
def test_failure_of_the_final_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fails_at: int) -> None:
    """A file is renamed once; a folder twice (old away, new in), and the old one must come back."""
    old = VIDEO[:2]
    path = save_video(tmp_path / name, old)
    before, content = sorted(tmp_path.rglob("*")), read_video(path)
    calls = []

    def failing(real: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == fails_at:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        real(source, target)

    for rename in ("replace", "rename"):
        monkeypatch.setattr(os, rename, partial(failing, getattr(os, rename)))
    with pytest.raises(InputError, match=f"{name} cannot be written, permission denied"):
        save_video(path, VIDEO)
    monkeypatch.undo()
    assert sorted(tmp_path.rglob("*")) == before
    torch.testing.assert_close(read_video(path), content)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOSPC, "the disk is full: free some space"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "check the free space"),
    ],
)
def test_the_reason_becomes_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str) -> None:
    def fsync(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(InputError, match=rf"a\.json cannot be written, .*{remedy}"):
        write_json(tmp_path / "a.json", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [*OUTPUTS, *(f"scene{suffix}" for suffix in ARRAY_OUTPUTS)])
def test_every_format_survives_a_disk_that_fills_up(tmp_path: Path, name: str) -> None:
    save = save_video if name in OUTPUTS else lambda path, video: save_arrays(path, a=video.numpy())
    with pytest.raises(InputError, match=f"{name} cannot be written"), largest_file(500):
        save(tmp_path / name, VIDEO)
    assert list(tmp_path.iterdir()) == []


def test_the_umask_decides_the_mode(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "a.txt", "ä")
        save_video(tmp_path / "frames", VIDEO[:1])
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "frames").stat().st_mode) == 0o750
    assert (tmp_path / "a.txt").read_bytes() == "ä".encode()


def test_links_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link = tmp_path / "a.txt"
    link.symlink_to(tmp_path / "far" / "b.txt")
    write_text(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "far/b.txt").read_text() == "new"


def test_foreign_folders_and_files_in_the_way_are_kept(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/frame_0001.png").write_text("x")
    (tmp_path / "mine/thesis.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"holds thesis\.tex"), atomic_folder(tmp_path / "mine"):
        pytest.fail("the block must not start")
    with pytest.raises(InputError, match="is a file where a folder"), atomic_folder(tmp_path / "file"):
        pytest.fail("the block must not start")
    with pytest.raises(InputError, match="is a folder where a file"), atomic_file(tmp_path / "mine"):
        pytest.fail("the block must not start")
    with pytest.raises(InputError, match="not a folder"), atomic_file(tmp_path / "file/a.txt"):
        pytest.fail("the block must not start")
    assert sorted(tmp_path.rglob("*")) == before


def test_json_is_standard(tmp_path: Path) -> None:
    path = tmp_path / "new/a.json"
    write_json(path, {"psnr": None, "name": "Tür", "values": [1, 2.5]})
    assert json.loads(path.read_text(encoding="utf-8")) == {"psnr": None, "name": "Tür", "values": [1, 2.5]}
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"psnr": float("nan")})
    assert json.loads(path.read_text(encoding="utf-8"))["psnr"] is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="permission denied"):
        write_text(tmp_path / "a.txt", "x")
    with pytest.raises(InputError, match="write-protected"):
        save_video(tmp_path / "a.mp4", VIDEO)
    tmp_path.chmod(0o700)
