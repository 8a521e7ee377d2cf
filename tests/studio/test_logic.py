"""What the studio decides without a browser: turns, remedies, archives, jobs, the figures of the equations."""

from __future__ import annotations

import os
import stat
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cli.processes import forked
from studio.children import failing, sleeping
from unsnap.cli import studio as command
from unsnap.doctor import examine
from unsnap.errors import InputError
from unsnap.io import save_scene
from unsnap.simulate.recording import Recording
from unsnap.studio import cards, equations, work
from unsnap.studio.core import simulate_line
from unsnap.studio.jobs import Job, warm_up
from unsnap.studio.reading import TURNS, Reading, clicks, reconstruct_line, remedy_of
from unsnap.studio.sessions import Sessions
from unsnap.studio.turns import Turns
from unsnap.studio.uploads import unpacked


def test_people_take_turns_however_many_each_has_asked_for() -> None:
    turns = Turns(1)
    greedy = [turns.ask("a") for _ in range(4)]
    other, third = turns.ask("b"), turns.ask("c")
    served = [greedy[0]]
    for _ in range(5):
        turns.leave(served[-1])
        served.append(next(t for t in (*greedy, other, third) if t not in served and turns.ahead(t) == 0))
    assert [ticket.who for ticket in served] == ["a", "b", "c", "a", "a", "a"]


def test_so_many_run_at_a_time_and_who_leaves_the_queue_holds_nobody_up() -> None:
    turns = Turns(2)
    first, second, third, fourth = (turns.ask(who) for who in "abcd")
    assert [turns.ahead(t) for t in (first, second, third, fourth)] == [0, 0, 1, 2]
    turns.leave(third)
    assert turns.ahead(fourth) == 1
    turns.leave(first)
    assert turns.ahead(fourth) == 0


@pytest.fixture
def scene_file(tmp_path: Path) -> Path:
    return save_scene(tmp_path / "scene.npz", Recording(size="64x64", snapshots=2).of())


@pytest.mark.parametrize("turn", [*TURNS, "transposed"])
def test_the_remedy_for_masks_that_lie_otherwise_makes_the_doctor_content(turn: str, scene_file: Path) -> None:
    """Whatever the masks have suffered, one click finds its way back."""
    scene = work.read(scene_file, Reading(), anyway=False)
    whole = np.ascontiguousarray(scene.masks.numpy())
    undo = {"turned by a quarter to the left": TURNS["turned by a quarter to the right"],
            "turned by a quarter to the right": TURNS["turned by a quarter to the left"],
            "transposed": lambda m: np.swapaxes(m, -1, -2)}  # fmt: skip
    spoilt = np.ascontiguousarray(undo.get(turn, TURNS.get(turn, lambda m: m))(whole))
    save_scene(scene_file, replace(scene, masks=torch.from_numpy(spoilt), truth=scene.truth))
    found = examine(scene_file).to_dict()["findings"]
    remedies = list(clicks(found).values())
    assert len(remedies) == 1, "what follows from it waits"
    reading = remedies[0].applied(Reading())
    if remedies[0].turn:
        masks = scene_file.with_name("masks.npz")
        work.turned(lambda message: None, scene_file, reading, remedies[0].turn, masks)
        reading = replace(reading, masks=masks)
    again = work.read(scene_file, reading, anyway=False)
    torch.testing.assert_close(again.masks, scene.masks)


@pytest.mark.parametrize(
    ("finding", "options"),
    [
        (("warning", "forward model", "y ≈ 2·Φx", "divide it by 2, or give --scale 510"), {"scale": 510.0}),
        (("warning", "offset", "no mask opens measure 2.5 …", "subtract it with --offset 12.5 …"), {"offset": 12.5}),
        (("warning", "saturation", "9 pixels sit exactly at the maximum", "set their masks"), {"saturated": "exclude"}),
        (("warning", "hot pixels", "2 hot pixels, brighter: (3, 4), (10, 2)", "set"), {"bad_pixels": "3,4;10,2"}),
        (("warning", "forward model", "time is axis 1, not 0", "give --time-axis 1"), {"time_axis": 1}),
    ],
)  # fmt: skip
def test_a_click_sets_the_option_that_the_sentence_names(finding: tuple[str, ...], options: dict[str, Any]) -> None:
    found = dict(zip(("level", "subject", "text", "remedy"), finding, strict=True))
    remedy = remedy_of(found)
    assert remedy is not None
    assert remedy.applied(Reading()) == Reading(**options)
    assert remedy_of({**found, "level": "ok"}) is None


def test_hot_pixels_that_are_not_all_named_have_no_click() -> None:
    many = {"level": "warning", "subject": "hot pixels", "text": "9 hot pixels: (1, 2), (3, 4), (5, 6) …", "remedy": ""}
    assert remedy_of(many) is None


def test_a_line_is_what_a_shell_takes() -> None:
    reading = Reading(masks=Path("folder/my masks.npz"), scale=2.5, transpose_masks=True)
    line = reconstruct_line("a $b.mat", reading, "gap-tv", "a.mp4")
    assert line == (
        "unsnap reconstruct 'a $b.mat' --masks 'my masks.npz' --transpose-masks --scale 2.5 --method gap-tv -o a.mp4"
    )
    assert simulate_line(None, Recording(frames=4, noise=0.01), "s.npz") == (
        "unsnap simulate -o s.npz --frames 4 --noise 0.01"
    )


def test_text_from_outside_is_nothing_but_text() -> None:
    hostile = "<img src=x onerror=alert(1)>${alert(1)}{{value}}\x1b[2J"
    assert not set('<>{}$"') & set(cards.safe(hostile))


# ---------------------------------------------------------------------- archives


def archive(path: Path, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in files.items():
            zipped.writestr(name, data)
    return path


def entry(name: str, mode: int = 0) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    ("member", "rule"),
    [
        (entry("../outside.npy"), "leads elsewhere"),
        (entry("a/../../outside.npy"), "leads elsewhere"),
        (entry("/etc/outside.npy"), "leads elsewhere"),
        (entry("C:\\outside.npy"), "leads elsewhere"),
        (entry("meas.npy", stat.S_IFLNK | 0o777), "a link or device"),
        (entry("meas.npy", stat.S_IFIFO | 0o644), "a link or device"),
        (entry("/".join("abcdefghij")), "too deep"),
    ],
    ids=lambda value: getattr(value, "filename", None),
)
def test_an_archive_that_leads_elsewhere_is_refused_before_anything_is_unpacked(
    tmp_path: Path, member: zipfile.ZipInfo, rule: str
) -> None:
    path = tmp_path / "inner" / "folder.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("good.npy", b"good")
        zipped.writestr(member, b"/etc/passwd")
    with pytest.raises(InputError, match=rule):
        unpacked(path)
    assert [p.name for p in tmp_path.rglob("*")] == ["inner", "folder.zip"]


def test_a_bomb_is_refused_by_what_its_size_justifies(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("meas.npy", b"small")
        zipped.filelist[0].file_size = 2**30
    with pytest.raises(InputError, match="of memory, and such a file may use"):
        unpacked(path)
    assert not (tmp_path / "bomb").exists()


def test_an_entry_larger_than_it_says_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "lie.zip"
    with zipfile.ZipFile(path, "w") as zipped:
        zipped.writestr("meas.npy", b"x" * 1000)
        zipped.filelist[0].file_size = 10
    with pytest.raises(InputError, match=r"lie\.zip"):
        unpacked(path)
    assert not (tmp_path / "lie").exists()


@pytest.mark.parametrize(("files", "rule"), [({}, "no file"), ({"a.mat": b"1", "A.mat": b"2"}, "twice")])
def test_archives_without_one_capture(tmp_path: Path, files: dict[str, bytes], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        unpacked(archive(tmp_path / "folder.zip", **files))


def test_garbage_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "folder.zip"
    path.write_bytes(b"PK\x03\x04 garbage")
    with pytest.raises(InputError, match=r"folder\.zip"):
        unpacked(path)


def test_a_zipped_folder_is_the_folder(tmp_path: Path) -> None:
    path = archive(tmp_path / "capture.zip", **{"mine/meas.npy": b"1", "mine/mask.npy": b"2", "__MACOSX/x": b"3"})
    assert unpacked(path) == tmp_path / "capture" / "mine"
    assert (tmp_path / "capture" / "mine" / "mask.npy").read_bytes() == b"2"
    assert not path.exists()


# ---------------------------------------------------------------------- jobs and pages


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_stopping_ends_the_process(tmp_path: Path) -> None:
    warm_up()
    job = Job(sleeping)
    messages = job.messages()
    pid = next(message for message in messages if message)["pid"]
    assert alive(pid)
    began = time.monotonic()
    job.stop()
    assert time.monotonic() - began < 300, "not after the ten minutes that it would have slept"
    assert list(messages) == []
    assert not alive(pid)
    for how, rule in (("input", "is no capture"), ("dies", "exit code 9"), ("else", r"unforeseen happened \(KeyError")):
        with pytest.raises(InputError, match=rule):
            list(Job(failing, how, tmp_path / how).messages())
    assert "Traceback" in (tmp_path / "else").read_text(), "whoever runs the studio can see what happened"


def test_a_page_that_closes_leaves_nothing(tmp_path: Path) -> None:
    pages = Sessions(tmp_path / "pages")
    upload = tmp_path / "uploads" / "hash" / "a.mat"
    upload.parent.mkdir(parents=True)
    upload.write_bytes(b"data")
    received, others = upload.parent.parent / "tmpabc", upload.parent.parent / "tmpdef"
    received.write_bytes(b"data")
    others.write_bytes(b"data")
    session, other = pages.of("one"), pages.of("two")
    path = session.take(upload, session.new_folder())
    other.take(upload, other.new_folder())
    session.begin(path, "a.mat")
    assert session.spoken(f"{path} is broken") == "a.mat is broken"
    pages.close("one")
    assert not session.folder.exists()
    assert upload.exists(), "another page has the same file"
    assert pages.by_token(session.token) is None
    assert pages.by_token(other.token) is other
    pages.close_all()
    assert not upload.exists()
    os.utime(received, (0, 0))
    pages.sweep()
    assert not received.exists(), "Gradio's copy"
    assert others.exists(), "of somebody who is still uploading"
    assert list((tmp_path / "pages").iterdir()) == []


def test_a_temporary_folder_whose_name_is_too_long_for_a_socket_is_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    with forked(["studio", "--no-browser"], tmp_path, {"TMPDIR": str(folder)}) as (process, stderr):
        said = stderr.readline()
        assert "too long" in said
        assert "TMPDIR" in said
        assert stderr.read() == "", "one line, and no process that goes on serving"
        process.join(600)
        assert process.exitcode == 2
    assert list(folder.iterdir()) == []


def test_without_gradio_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'unsnap\[studio\]'"):
        command.command()


# ---------------------------------------------------------------------- equations


def test_damping_or_memory_save_the_page_s_example_which_the_plain_iteration_leaves() -> None:
    facts = {key: equations.mixing(*key)[1] for key in ((1.0, 1), (0.4, 1), (1.0, 6))}
    assert not facts[1.0, 1]["converged"]
    assert facts[0.4, 1]["converged"]
    assert facts[1.0, 6]["converged"]
    assert facts[1.0, 6]["evaluations"] < facts[0.4, 1]["evaluations"]


@pytest.mark.parametrize("factor", [0.5, 0.95])
def test_the_measured_rate_is_the_predicted_one(factor: float) -> None:
    figure, facts = equations.rate(factor)
    assert facts["measured"] == pytest.approx(facts["predicted"], rel=0.005)
    assert figure.axes


def test_a_denoiser_too_strong_diverges_as_its_spectral_radius_says() -> None:
    mild, strong = (equations.strength(amount)[1] for amount in (0.4, 2.5))
    assert mild["radius"] < 1 < strong["radius"]
    assert mild["epsilon"] < strong["epsilon"]
    assert mild["last"] < 1e-2 * mild["first"]
    assert strong["last"] > 0.5 * strong["first"]


def test_every_penalty_draws_the_default_beside_it() -> None:
    figure = equations.penalty(1.0, iterations=5)
    assert [len(axes.lines) for axes in figure.axes] == [2, 2]
