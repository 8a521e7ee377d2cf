"""Every file once: what a second run, a lost part, a changed file, a full disk or another run's folder do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from disk import largest_file
from unsnap import Scene, save_scene
from unsnap.campaign.cluster import Cluster, connected
from unsnap.campaign.folder import Folder
from unsnap.campaign.run import Campaign, Entry, prepare
from unsnap.campaign.summary import write_summary
from unsnap.campaign.task import MOST_DEATHS, VERSIONS, Outcome, Task, perform
from unsnap.cli.common import Reading, Running
from unsnap.cli.film_options import Film
from unsnap.cli.reconstruct import each
from unsnap.cli.work import Work
from unsnap.errors import InputError
from unsnap.io import budget
from unsnap.masks import bernoulli
from unsnap.run import Result
from unsnap.simulate import render

WORK = Work("gap-tv", Reading(), Running(iterations=3, tol=1.0), None, Film(), (), True, 10.0, True)


class Here:
    """A pool of one worker, which is this process; it can die of a task before or after it is done."""

    def __init__(self, work: Work, dies: Callable[[Task], bool] = lambda task: False) -> None:
        self.work, self.dies, self.tasks, self.all = work, dies, [], []

    def room(self) -> int:
        return 3 - len(self.tasks)

    def submit(self, task: Task) -> None:
        self.tasks.append(task)
        self.all.append(task)

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        done, self.tasks = self.tasks, []
        return [(task, self._answer(task)) for task in reversed(done)]

    def _answer(self, task: Task) -> Outcome:
        outcome = perform(self.work, task, VERSIONS, "here")
        return Outcome(died=True) if self.dies(task) else outcome

    def avoid(self, worker: str) -> bool:
        return False


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    masks = bernoulli(4, 16, 16, generator=torch.Generator().manual_seed(0))
    for k in range(4):
        count = 3 if k == 1 else 1
        film = render(4 * count, 16, 16, seed=k).reshape(count, 4, 16, 16)
        save_scene(tmp_path / f"s{k}.npz", Scene.of(film, masks))
    return [tmp_path / f"s{k}.npz" for k in range(4)]


def jobs(files: list[Path], out: str) -> list[tuple[Path, Path]]:
    return [(file, file.parent / out / file.name) for file in files]


def free(target: Path) -> None:
    if target.exists():
        raise InputError(f"{target} exists")


def run(files: list[Path], out: str, work: Work = WORK, **options: object) -> tuple[dict[str, Entry], Here]:
    """What became of every file, and the pool that worked."""
    pool = Here(work, options.pop("dies", lambda task: False))  # type: ignore[arg-type]
    tasks, entries = prepare(work, jobs(files, out), free, **options)  # type: ignore[arg-type]
    entries += Campaign(tasks, pool).run()
    return {entry.file.name: entry for entry in entries}, pool


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.npz")}


@pytest.fixture
def serial(files: list[Path]) -> dict[str, bytes]:
    for _, result in each(lambda file, target: WORK(file, target, False), jobs(files, "serial")):
        assert isinstance(result, Result)
    return contents(files[0].parent / "serial")


def test_every_byte_is_that_of_a_serial_run_and_the_second_run_does_nothing(
    files: list[Path], serial: dict[str, bytes]
) -> None:
    died: set[str] = set()

    def once(task: Task) -> bool:
        """Every task is done, and its worker dies before it can say so."""
        return task.key not in died and not died.add(task.key)  # type: ignore[func-returns-value]

    entries, pool = run(files, "out", dies=once)
    out = files[0].parent / "out"
    assert contents(out) == serial
    assert {task.part for task in pool.all if task.file == files[1]} == {None, 0, 1, 2}
    assert entries["s1.npz"].result is not None
    assert entries["s1.npz"].result.psnr == pytest.approx(WORK(files[1], None, False).psnr)
    assert not [path for path in Folder(out).parts.iterdir() if path.suffix != ".json"], "parts are gone"

    again, pool = run(files, "out")
    assert not pool.all
    assert all(entry.earlier for entry in again.values())


def test_only_what_changed_or_is_missing_is_done_again(files: list[Path], serial: dict[str, bytes]) -> None:
    run(files, "out")
    out = files[0].parent / "out"
    (out / "s2.npz").unlink()
    files[3].write_bytes(files[0].read_bytes())
    _, pool = run(files, "out")
    assert {task.file for task in pool.all} == {files[2], files[3]}
    assert contents(out) == {**serial, "s3.npz": serial["s0.npz"]}


def test_a_part_that_is_there_is_not_done_again(files: list[Path]) -> None:
    tasks, _ = prepare(WORK, jobs(files[1:2], "out"), free)
    assert perform(WORK, tasks[0], VERSIONS).missing == (0, 1, 2)
    perform(WORK, replace(tasks[0], part=1), VERSIONS)
    assert perform(WORK, tasks[0], VERSIONS).missing == (0, 2)


# Read as a whole and cut; or read window by window, as all of it would take 10 MB.
@pytest.mark.parametrize(("memory", "side"), [(None, 72), (5_000_000, 400)], ids=["--tile", "--memory"])
def test_tiles_are_tasks_of_their_own(tmp_path: Path, memory: int | None, side: int) -> None:
    """A picture that is cut: every tile a task, done once, whoever dies; the bytes are those of one process."""
    masks = bernoulli(2, side, side, generator=torch.Generator().manual_seed(0))
    large = save_scene(tmp_path / "large.npz", Scene.of(render(2, side, side)[None], masks))
    work = replace(WORK, method="gap-tv3d", tile=None if memory else 40)
    with budget.memory(memory):
        alone = work(large, tmp_path / "alone.npy", False)
    died: set[str] = set()

    def once(task: Task) -> bool:
        return task.key not in died and not died.add(task.key)  # type: ignore[func-returns-value]

    pairs = [(large, tmp_path / "out" / "large.npy")]
    tasks, _ = prepare(work, pairs, free, memory=memory)
    pool = Here(work, once)
    place = Folder(tmp_path / "out").parts
    assert perform(work, tasks[0], VERSIONS).missing == (0,), "first what all tiles must agree on"
    perform(work, replace(tasks[0], part=0), VERSIONS)
    tiles = perform(work, tasks[0], VERSIONS).missing
    assert len(tiles) >= 4
    perform(work, replace(tasks[0], part=tiles[1]), VERSIONS)
    assert perform(work, tasks[0], VERSIONS).missing == (tiles[0], *tiles[2:])

    (entry,) = Campaign(prepare(work, pairs, free, memory=memory)[0], pool).run()
    assert {task.part for task in pool.all} == {None, tiles[0], *tiles[2:]}, "what was done is not done again"
    assert (tmp_path / "out" / "large.npy").read_bytes() == (tmp_path / "alone.npy").read_bytes()
    assert entry.result is not None
    assert entry.result.psnr == alone.psnr
    assert [path.name for path in place.iterdir() if path.suffix != ".json"] == [], "tiles are gone"


def test_bad_files_stop_nobody(files: list[Path], serial: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "bad.npz").write_bytes(b"PK nothing")
    deadly = files[0]
    tasks, _ = prepare(WORK, jobs([*files, tmp_path / "bad.npz"], "out"), free)
    for _ in range(MOST_DEATHS):  # as many began with it, and were never heard of again
        Folder(tmp_path / "out").tried(tasks[0].key)
    found = list(Campaign(tasks, Here(WORK)).run())
    errors = {entry.file.name: entry.error for entry in found if entry.error}
    assert set(errors) == {"s0.npz", "bad.npz"}
    assert f"{deadly} was given up: {MOST_DEATHS} workers died" in str(errors["s0.npz"])
    assert contents(tmp_path / "out") == {name: serial[name] for name in ("s1.npz", "s2.npz", "s3.npz")}
    assert not run(files, "out")[0]["s0.npz"].error, "the next run tries it again"

    write_summary(tmp_path / "out", found, "unsnap reconstruct =1+1 -o out", 1.0)
    page = (tmp_path / "out" / "summary.html").read_text()
    assert "2 failed" in page
    assert "unsnap reconstruct =1+1 -o out" in page
    assert "was given up" in (tmp_path / "out" / "summary.csv").read_text()


@dataclass(frozen=True)
class Disturbed(Work):
    """Somebody writes to one file while it is read, and one disk fills."""

    def read(self, file: Path) -> Scene:
        scene = super().read(file)
        if file.name == "s0.npz":
            with file.open("ab") as more:
                more.write(b"more")
        return scene

    def write(self, scene: Scene, video: Tensor, result: Result, target: Path, overwrite: bool) -> Result:
        with largest_file(1000) if target.name == "s2.npz" else nullcontext():
            return super().write(scene, video, result, target, overwrite)


def test_a_file_that_changes_and_a_full_disk_are_sentences(files: list[Path], serial: dict[str, bytes]) -> None:
    entries, _ = run(files, "out", Disturbed(**vars(WORK)))
    assert "changed while it was being read" in str(entries["s0.npz"].error)
    assert "s2.npz cannot be written, the file would be larger than allowed" in str(entries["s2.npz"].error)
    assert str(entries["s2.npz"].error).endswith("(on here)"), "on which machine somebody has to tidy up"
    assert contents(files[0].parent / "out") == {name: serial[name] for name in ("s1.npz", "s3.npz")}


def test_a_video_that_could_not_be_written_gives_no_right_to_its_name(files: list[Path]) -> None:
    run(files, "out", Disturbed(**vars(WORK)))
    mine = files[0].parent / "out" / "s2.npz"
    mine.write_bytes(b"mine")
    with pytest.raises(InputError, match=r"s2\.npz exists"):
        run(files, "out", Disturbed(**vars(WORK)))
    assert mine.read_bytes() == b"mine"


def test_the_last_worker_of_a_cluster_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that all of them share is full for each: the reason is wanted, not a wait for others."""
    cluster = object.__new__(Cluster)
    said: list[str] = []
    cluster.threads, cluster.avoided, cluster.say = {"a": 1, "b": 1}, set(), said.append
    assert [cluster.avoid(name) for name in ("a", "b", "b")] == [True, False, False]
    assert cluster.threads == {"b": 1}
    assert len(said) == 1


def test_the_folder_of_another_run_is_refused(files: list[Path]) -> None:
    run(files, "out")
    other = replace(WORK, fps=20.0)
    with pytest.raises(InputError, match=r"out holds another run \(fps was 10.0 and is 20.0\)"):
        run(files, "out", other)
    _, pool = run(files, "out", other, force=True)
    assert len({task.file for task in pool.all}) == 4


def test_masks_that_change_end_the_campaign(files: list[Path], tmp_path: Path) -> None:
    masks = tmp_path / "mask.npz"
    masks.write_bytes(files[0].read_bytes())
    work = replace(WORK, reading=Reading(masks=masks))
    tasks, _ = prepare(work, jobs(files[:1], "out"), free)
    masks.write_bytes(files[1].read_bytes())
    assert "another input beside" in str(perform(work, tasks[0], VERSIONS).error)


def test_what_is_not_ours_is_kept(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "s2.npz").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"s2\.npz exists"):
        run(files, "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["s2.npz"]

    (tmp_path / "out" / "s2.npz").unlink()
    tasks, _ = prepare(WORK, jobs(files, "out"), free)
    (tmp_path / "out" / "s2.npz").write_bytes(b"mine, a moment later")
    errors = [entry.error for entry in Campaign(tasks, Here(WORK)).run() if entry.error]
    assert len(errors) == 1
    assert (tmp_path / "out" / "s2.npz").read_bytes() == b"mine, a moment later"


def test_another_version_and_another_folder_are_refused(files: list[Path]) -> None:
    tasks, _ = prepare(WORK, jobs(files[:1], "out"), free)
    refused = perform(WORK, tasks[0], {**VERSIONS, "unsnap": "9.9"}, "tcp://far:1")
    assert refused.refused
    assert "this run needs" in str(refused.error)
    elsewhere = replace(tasks[0], target=files[0].parent / "local" / "s0.npz")
    assert "is not the folder of this run" in str(perform(WORK, elsewhere, VERSIONS).error)


@pytest.mark.parametrize(
    ("address", "why"), [("/", "no address"), ("tcp://a b:1", "no address"), ("tcp://h:1", "answers")]
)
def test_a_scheduler_that_is_not_there_is_a_sentence(address: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="needs Dask")

    def late(*_: object, **__: object) -> None:
        raise AssertionError  # as Dask does if its own thread has not started within ten seconds

    monkeypatch.setattr(distributed, "Client", late)
    with pytest.raises(InputError, match=why), connected(WORK, address):
        pass
