"""The studio in a real Chromium: everything that a person does, on one server, and what stays behind: nothing."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ports import free_port
from unsnap.cli.app import app
from unsnap.io import save_scene, save_video
from unsnap.simulate import render
from unsnap.simulate.recording import Recording

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api", reason="the studio's page is tested where playwright is")
# Looked for, not imported: the studio's own process does that, and it takes seconds in each that collects this file.
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="the studio's page is tested where Chromium is"),
    pytest.mark.skipif(find_spec("gradio") is None, reason="the studio needs gradio"),
]

PATIENCE = 240_000
"""Milliseconds that a step may take on a busy machine; none takes a tenth of it on an idle one."""


def until(holds: Callable[[], bool]) -> bool:
    """Wait for what comes soon, or on a busy machine later."""
    deadline = time.monotonic() + PATIENCE / 1000
    while not (found := holds()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


@dataclass
class Server:
    process: subprocess.Popen[str]
    address: str
    folder: Path
    browser: Any = None
    outside: list[str] = field(default_factory=list)

    def page(self) -> Any:
        """A person with a page of his own."""
        page = self.browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: self._heard(request.url))
        page.goto(self.address)
        page.wait_for_selector("#go")
        return page

    def _heard(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "blob:")):
            self.outside.append(url)

    def processes(self, kind: bytes = b"") -> int:
        """How many there are of the studio and what it has started, with this word in their command."""
        count = 0
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
                words = entry.with_name("cmdline").read_bytes()
            except OSError:
                continue
            count += fields[3] == str(self.process.pid) and fields[0] != "Z" and kind in words
        return count

    def temporary(self) -> list[str]:
        """What lies in its folder for temporary files. (os.walk passes over folders that go meanwhile; rglob fails.)"""
        found = (Path(folder, name) for folder, _, names in os.walk(self.folder) for name in names)
        return sorted(str(path) for path in found if path.is_file())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    port = free_port()
    temporary = Path(tempfile.mkdtemp(prefix="us-"))  # short, as a socket's name must be
    process = subprocess.Popen(
        [sys.executable, "-m", "unsnap", "studio", "--no-browser", "--port", str(port)],
        stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert f"http://127.0.0.1:{port}" in said, said
        server = Server(process, f"http://127.0.0.1:{port}/", temporary)
        with playwright.sync_playwright() as driver:
            server.browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            yield server
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()  # closes the pipe
        shutil.rmtree(temporary, ignore_errors=True)
        process.wait()


def test_a_capture_becomes_a_video(server: Server, tmp_path: Path) -> None:
    scene = Recording(size="64x64").of()
    file = save_scene(tmp_path / "my capture.npz", replace(scene, masks=scene.masks.mT.contiguous()))
    page = server.page()
    findings_and_remedy(page, file)
    run_and_download(page, file, tmp_path)
    other = server.page()
    stop_while_another_waits(page, other, server)
    compare(page)
    camera(other, tmp_path)
    equations_by_keyboard(page)
    phone(page)
    hostile(other, tmp_path)
    nothing_else_is_served(page, server)
    assert server.outside == []
    other.context.close()
    nothing_stays(page, server)


def findings_and_remedy(page: Any, file: Path) -> None:
    page.set_input_files("#capture input[type=file]", file)
    button = page.locator("#findings .card.fatal button")
    button.wait_for()
    assert "transposed" in page.locator("#findings .card.fatal").inner_text()
    button.focus()
    page.keyboard.press("Enter")
    page.locator("#findings .applied").wait_for()
    assert "--transpose-masks" in page.locator("#findings .applied").inner_text()
    assert page.locator("#findings .card.fatal").count() == 0


def choose(page: Any, method: str) -> None:
    page.locator("#method input").click()
    page.get_by_role("option", name=re.compile(rf"^\W*{re.escape(method)} ·")).click()
    page.wait_for_selector("#about dl")


def run_and_download(page: Any, file: Path, folder: Path) -> None:
    choose(page, "gap-tv")
    assert re.search(r"about [\d.]+ s \(an estimate\)", page.locator("#about").inner_text())
    page.evaluate(
        """() => { window.live = 0; new MutationObserver(() => {
             if (document.querySelector('#progress .live img')) window.live += 1; })
           .observe(document.querySelector('#progress'), {childList: true, subtree: true, attributes: true}); }"""
    )
    page.click("#go")
    page.wait_for_selector("unsnap-film canvas")
    assert page.evaluate("window.live") > 0, "frames were shown while it ran"
    assert "PSNR" in page.locator("#progress").inner_text()
    before = picture(page)
    page.locator("unsnap-film input[name=frame]").fill("5")
    assert picture(page) != before, "another frame is another picture"
    page.locator("unsnap-film select[name=right]").select_option("error of gap-tv ×4")
    page.locator("unsnap-film input[name=wipe]").fill("0")
    page.wait_for_function("document.querySelector('#film unsnap-film').state.wipe === 0")
    page.get_by_label("stretched").check()
    page.wait_for_function("document.querySelector('#downloads code').textContent.includes('--contrast auto')")
    line = page.locator("#downloads code").inner_text()
    for kind in ("mp4", "gif", "tif", "npz"):
        with page.expect_download() as waiting:
            page.locator("#downloads a", has_text=kind.upper()).click()
        there = folder / f"there.{kind}"
        waiting.value.save_as(there)
        here = by_command_line(line, kind, folder)
        assert there.read_bytes() == here.read_bytes(), f"{kind}: the page and `{line}` agree to the last byte"


def by_command_line(line: str, kind: str, folder: Path) -> Path:
    words = shlex.split(line.replace(".mp4", f".{kind}"))[1:]
    target = folder / words[-1]
    words = [str(folder / word) if word.endswith((f".{kind}", ".npz")) else word for word in words]
    result = CliRunner().invoke(app, [*words, "--quiet", "--force"])
    assert result.exit_code in (0, 3), result.output
    return target if result.exit_code == 0 else target.with_name(f"{target.stem}-unconverged{target.suffix}")


def picture(page: Any) -> str:
    """What the film shows, once its pictures have arrived."""
    return str(
        page.wait_for_function(
            """() => { const film = document.querySelector('#film unsnap-film');
                 return film?.shadowRoot && Object.values(film.images).every((image) => image.complete)
                   && film.shadowRoot.querySelector('canvas').toDataURL(); }"""
        ).json_value()
    )


def stop_while_another_waits(page: Any, other: Any, server: Server) -> None:
    """One computes long, the other waits and is told so; the first stops, and the second is served."""
    choose(page, "desci")
    page.click("#go")
    page.wait_for_function("document.querySelector('#progress .running:not(.done)')")
    other.click("#built-in")
    other.get_by_text("Waiting: 1 computation of others").wait_for()
    assert server.processes(b"forkserver") > 1
    page.click("#stop")
    page.get_by_text("Stopped. Nothing is kept of it.").wait_for()
    other.wait_for_selector("#findings .verdict")
    assert "my capture" not in other.locator("#findings").inner_text(), "nobody sees another's file"
    assert until(lambda: server.processes(b"forkserver") == 1), "the computation has ended, not only its display"


def compare(page: Any) -> None:
    page.get_by_role("tab", name="Compare").click()
    page.get_by_label("shift-wnnm · ").uncheck()
    page.click("#compare-go")
    page.wait_for_selector("#compare-progress .command")
    assert page.locator("#compare-table tbody tr").count() == 2
    assert page.locator("#compare-plot img").count() == 1
    assert page.locator("#compare-film unsnap-film canvas").count() == 1
    page.get_by_role("tab", name="Reconstruct").click()


def camera(page: Any, folder: Path) -> None:
    """A clip, noise and bits become the snapshot that the command line takes, to the last byte, and then a film."""
    page.get_by_role("tab", name="Camera").click()
    page.set_input_files("#clip input[type=file]", save_video(folder / "clip.npz", render(16, 32, 32)))
    page.locator("#clip").get_by_text("KB").wait_for()
    for label, value in (("Gaussian noise", "0.05"), ("Bits of the converter", "8")):
        number = page.get_by_label(re.compile(f"number input for {label}"))
        number.fill(value)
        number.press("Tab")
    page.click("#simulate")
    line = page.locator("#camera-seen code").inner_text()
    assert line.endswith("--noise 0.05 --bits 8")
    with page.expect_download() as waiting:
        page.locator("#camera-seen a").click()
    waiting.value.save_as(folder / "there.npz")
    words = [str(folder / word) if word.endswith(".npz") else word for word in shlex.split(line)[1:]]
    assert CliRunner().invoke(app, [*words, "--quiet"]).exit_code == 0
    assert (folder / "there.npz").read_bytes() == (folder / "clip-scene.npz").read_bytes()
    page.click("#camera-go")
    page.wait_for_selector("#camera-film unsnap-film canvas")
    assert "PSNR" in page.locator("#camera-progress").inner_text()
    page.get_by_role("tab", name="Reconstruct").click()


def equations_by_keyboard(page: Any) -> None:
    page.get_by_role("tab", name="Equations").click()
    page.get_by_text("Anderson: damping").click()
    page.get_by_text("The page's example does not converge").first.wait_for()
    page.locator("#points input[type=range]").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.get_by_text("The page's example converges").first.wait_for()
    page.get_by_role("tab", name="Reconstruct").click()


def hostile(page: Any, folder: Path) -> None:
    """One sentence on the page, without a traceback and without our folders."""
    evil, garbage = folder / "evil.zip", folder / "garbage.mat"
    with zipfile.ZipFile(evil, "w") as zipped:
        zipped.writestr("../../outside.npy", b"1")
    garbage.write_bytes(b"MATLAB 5.0 MAT-file" + bytes(range(256)) * 20)
    page.set_input_files("#capture input[type=file]", evil)
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").inner_text().startswith("evil.zip holds '../../outside.npy'")
    page.locator("#capture").get_by_label("Clear").click()
    page.set_input_files("#capture input[type=file]", garbage)
    page.locator("#findings .card.fatal").wait_for()
    said = page.locator("body").inner_text()
    assert "Traceback" not in said
    assert str(folder) not in said
    assert page.locator("#go").is_disabled()


def nothing_else_is_served(page: Any, server: Server) -> None:
    secret = page.locator("#downloads a").first.get_attribute("href")
    token = secret.split("/")[1]
    for path in (
        "gradio_api/file=/etc/passwd",
        "gradio_api/file=%2Fetc%2Fpasswd",
        "gradio_api/file=../../etc/passwd",
        f"gradio_api/file={server.folder}/x",
        f"gradio_api/file={Path(__file__)}",
        "gradio_api/file=http://example.org/",
        f"studio/{token}/extra/1/..%2f..%2f..%2fetc%2fpasswd",
        f"studio/{token}/film/1/..%2f..%2fplain/mp4",
        f"studio/{token[:-1]}x/{secret.split('/', 2)[2]}",
    ):
        answer = page.request.get(server.address + path)
        assert answer.status in (403, 404), f"{path}: {answer.status}"
    posted = page.request.post(
        f"{server.address}gradio_api/queue/join",
        data={"data": [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}, None], "fn_index": 0,
              "session_hash": "stranger"},
    )  # fmt: skip
    told = page.request.get(f"{server.address}gradio_api/queue/data?session_hash=stranger").text()
    assert posted.ok
    assert "root:" not in told
    assert '"success":false' in told.replace(" ", "")


def phone(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for name in ("Compare", "Camera", "Equations", "Models", "Reconstruct"):
        tab = page.get_by_role("tab", name=name)
        if not tab.is_visible():
            page.get_by_role("button", name="More").or_(page.locator(".overflow-menu button")).first.click()
            tab = page.locator(".overflow-dropdown button", has_text=name)
        tab.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, f"{name} fits on a phone"
    page.set_viewport_size({"width": 1200, "height": 900})


def nothing_stays(page: Any, server: Server) -> None:
    """What was uploaded goes with its page, and everything with the studio."""
    assert any(path.endswith("video.npy") for path in server.temporary())
    page.context.close()
    assert until(lambda: not server.temporary()), server.temporary()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE / 1000) == 130
    assert list(server.folder.iterdir()) == []
    assert until(lambda: server.processes() == 0)
