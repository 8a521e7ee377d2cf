"""All or nothing: whatever goes wrong while writing, the old file is intact and no debris remains."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import platform
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import torch

from disk import largest_file
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
from unsnap.io.leftovers import beside, sweep
from unsnap.io.lock import folder_lock, locked

VIDEO = torch.rand(8, 48, 48, generator=torch.Generator().manual_seed(0))
OUTPUTS = [f"a{suffix}" for suffix in VIDEO_OUTPUTS if suffix not in ("", ".hdr")] + ["frames"]


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


# ---------------------------------------------------------------------- power cuts, kills and other processes


def test_bytes_reach_the_disk_before_their_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut only what was synced is certain: a name must never come before its content."""
    calls: list[tuple[str, str]] = []

    def name(path: Path) -> str:
        return re.sub(r"\.unsnap-[-\w]*", "new", str(path.relative_to(tmp_path.parent)))

    def fsync(real: Callable[[int], None], file: int) -> None:
        calls.append(("sync", name(Path(f"/proc/self/fd/{file}").readlink())))
        real(file)

    def place(real: Callable[[Path, Path], None], source: Path, target: Path) -> None:
        calls.append((name(source), name(target)))
        real(source, target)

    monkeypatch.setattr(os, "fsync", partial(fsync, os.fsync))
    for rename in ("replace", "rename", "link"):
        monkeypatch.setattr(os, rename, partial(place, getattr(os, rename)))
    here = tmp_path.name
    write_text(tmp_path / "a.txt", "x")
    with atomic_file(tmp_path / "deep/b.txt", overwrite=False):
        pass
    file = [("sync", f"{here}/new.txt"), (f"{here}/new.txt", f"{here}/a.txt"), ("sync", here)]
    linked = [
        ("sync", f"{here}/deep/new.txt"),
        (f"{here}/deep/new.txt", f"{here}/deep/b.txt"),
        ("sync", f"{here}/deep"),
    ]
    assert calls == [*file, ("sync", here), *linked]  # the folder that was made has its name on the disk, too

    calls.clear()
    save_video(tmp_path / "f", VIDEO[:2])
    frames = [("sync", f"{here}/new/frame_000{k}.png") for k in (1, 2)]
    assert calls == [*frames, ("sync", f"{here}/new"), (f"{here}/new", f"{here}/f"), ("sync", here)]
    calls.clear()
    save_video(tmp_path / "f", VIDEO[:1])
    swap = [(f"{here}/f", f"{here}/new/f"), (f"{here}/new", f"{here}/f")]
    assert calls == [frames[0], ("sync", f"{here}/new"), *swap, ("sync", here)]


def dead_owner(path: Path) -> Path:
    """The name that another process, which has ended since, would have used."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return path / beside(path, "").name.replace(f"-{os.getpid()}-", f"-{process.pid}-", 1)


def test_leftovers_of_the_dead_are_swept_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    dead, alive = dead_owner(tmp_path), beside(tmp_path / "x", ".mp4")
    elsewhere = dead.with_name(re.sub(r"-[0-9a-f]{8}-", "-00000000-", dead.name))
    old = elsewhere.with_name(elsewhere.name + ".mp4")
    foreign = [tmp_path / name for name in (".unsnap-notes", ".unsnap-1-2-3", "unsnap-1")]
    for path in (dead.with_name(dead.name + ".mp4"), alive, elsewhere, old, *foreign):
        path.write_text("x")
    os.utime(old, (0, 0))
    dead.mkdir()
    (dead / "frame_0001.png").write_text("x")
    write_text(tmp_path / "a.txt", "x")
    assert sorted(tmp_path.iterdir()) == sorted([alive, elsewhere, *foreign, tmp_path / "a.txt"])


def test_a_number_that_is_used_again_does_not_protect_the_dead(tmp_path: Path) -> None:
    mine = beside(tmp_path / "x", "")
    earlier = mine.with_name(re.sub(r"-\d+-", "-1-", mine.name, count=1))  # began when the machine did
    assert earlier != mine
    mine.touch()
    earlier.touch()
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [mine]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_set_aside_by_the_dead_comes_back_unless_replaced(tmp_path: Path, replaced: bool) -> None:
    aside = dead_owner(tmp_path).with_name(dead_owner(tmp_path).name + "-old")
    (aside / "frames").mkdir(parents=True)
    (aside / "frames/frame_0001.png").write_text("old")
    if replaced:
        (tmp_path / "frames").mkdir()
        (tmp_path / "frames/frame_0001.png").write_text("new")
    write_text(tmp_path / "a.txt", "x")
    assert not aside.exists()
    assert (tmp_path / "frames/frame_0001.png").read_text() == ("new" if replaced else "old")


@pytest.mark.parametrize("overwrite", [False, True])
def test_of_two_writers_of_one_folder_one_wins_and_the_other_is_told(tmp_path: Path, overwrite: bool) -> None:
    target = tmp_path / "frames"
    with pytest.raises(InputError, match="written by another process in the meantime"), monkey_swap(target, VIDEO[:3]):
        save_video(target, VIDEO[:2], overwrite=overwrite)
    torch.testing.assert_close(read_video(target), VIDEO[:3], rtol=0, atol=0.003)
    assert list(tmp_path.iterdir()) == [target]


@contextmanager
def monkey_swap(target: Path, video: torch.Tensor) -> Iterator[None]:
    """Just before a folder gets its place, another writer takes it."""
    real = os.rename

    def late(source: Path, place: Path) -> None:
        os.rename = real
        save_video(target, video)
        real(source, place)

    os.rename = late  # type: ignore[assignment]
    try:
        yield
    finally:
        os.rename = real


def test_without_hard_links_the_name_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", unsupported)
    for content in ("first", "second"):
        with suppress(InputError), atomic_file(tmp_path / "a.txt", overwrite=False) as temporary:
            temporary.write_text(content)
    assert (tmp_path / "a.txt").read_text() == "first"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.txt"]


# ---------------------------------------------------------------------- locks


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lock_names_its_owner_and_outlives_only_him(tmp_path: Path) -> None:
    run = tmp_path / "run"
    fork = multiprocessing.get_context("fork")
    holds = fork.Event()

    def hold() -> None:
        with locked(folder_lock(run), Path("run")):
            holds.set()
            time.sleep(1800)

    owner = fork.Process(target=hold)
    owner.start()
    try:
        assert holds.wait(600)
        who = f"process {owner.pid} on {platform.node()}"
        with pytest.raises(InputError, match=f"run is in use by {who}"), locked(folder_lock(run), Path("run")):
            pytest.fail("two at once")
        write_text(run / "a.txt", "x")
        assert folder_lock(run).exists(), "others may write there, and leave the lock alone"
    finally:
        owner.kill()
        owner.join()
    with locked(folder_lock(run), Path("run")) as found:
        assert found is not None
        assert f"left by {who}" in found
        with locked(folder_lock(run), Path("run")) as again:
            assert again is None
    with locked(folder_lock(run), Path("run")) as found:
        assert found is None
    assert [p.name for p in run.iterdir()] == ["a.txt"]
    folder_lock(run).write_text("{}")
    write_text(run / "a.txt", "x")
    assert not folder_lock(run).exists(), "nobody holds it"
