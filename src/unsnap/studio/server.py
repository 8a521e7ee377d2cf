"""The server: one page, local files only, nothing left behind."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import webbrowser
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from unsnap.errors import InputError
from unsnap.io import budget
from unsnap.io.leftovers import beside, sweep
from unsnap.studio import films
from unsnap.studio.core import Studio
from unsnap.studio.jobs import warm_up

Scope = MutableMapping[str, Any]
Handler = Callable[[Scope, Any, Any], Awaitable[None]]

_HERE = Path(__file__).parent
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; "
    "connect-src 'self' blob: data:; frame-ancestors 'self'; form-action 'self'; base-uri 'self'"
)
"""The browser itself refuses whatever would come from, or go to, another place."""


class Guard:
    """Around Gradio: our own addresses, headers on every answer, and no fetching from elsewhere."""

    def __init__(self, app: Handler, studio: Studio) -> None:
        self.app, self.studio = app, studio

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = unquote(scope["path"])

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                more = [(b"content-security-policy", _POLICY.encode()), (b"x-content-type-options", b"nosniff")]
                message["headers"] = [*message.get("headers", []), *more, (b"referrer-policy", b"no-referrer")]
            await send(message)

        if re.search(r"(file|proxy)=?/?[a-z][a-z0-9+.-]*:/", path, re.IGNORECASE) or "/proxy=" in path:
            await _answer(403, b"not served here", "text/plain")(scope, receive, sending)
        elif path.startswith("/studio/"):
            from starlette.concurrency import run_in_threadpool

            response = await run_in_threadpool(self.respond, path, scope.get("query_string", b"").decode())
            await response(scope, receive, sending)
        else:
            await self.app(scope, receive, sending)

    def respond(self, path: str, query: str) -> Any:
        """A layer of a film, a download, or a file that a command of ours names; 404 for all else."""
        from starlette.responses import FileResponse

        parts = path.split("/")[2:]
        session = self.studio.sessions.by_token(parts[0]) if len(parts) == 4 + ("/film/" in path) else None
        look = query.removeprefix("look=").replace("plain", "")
        try:
            run = None if session is None else session.runs.get(int(parts[2]))
            if (
                run is not None
                and parts[1] == "layer"
                and parts[3] in ("video.png", "truth.png", "error.png", "snapshot.png")
            ):
                return _answer(200, films.layer(run, parts[3].removesuffix(".png"), look), "image/png")
            if session is not None and run is not None and parts[1] == "film":
                file = films.download(session, run, parts[4], parts[3].replace("plain", ""))
                return FileResponse(file, filename=file.name)
            if session is not None and parts[1] == "extra" and (extra := session.offered.get((parts[2], parts[3]))):
                return FileResponse(extra, filename=extra.name)
        except (InputError, OSError, ValueError):
            pass
        return _answer(404, b"there is no such thing (any more)", "text/plain")


def _answer(code: int, body: bytes, kind: str) -> Any:
    from starlette.responses import Response

    return Response(body, code, media_type=kind, headers={"cache-control": "private, max-age=600"})


def serve(host: str, port: int | None, *, browser: bool, workers: int, told: Callable[[str], None]) -> None:
    """Run the studio until somebody ends it; its folder is gone afterwards, whatever happens."""
    sweep(Path(tempfile.gettempdir()))
    root = beside(Path(tempfile.gettempdir()) / "studio", "")
    root.mkdir(mode=0o700)
    for name, value in _quiet(root).items():
        os.environ[name] = value
    studio = Studio(root, workers, budget.named())
    try:
        warm_up()
        blocks, address = _launch(studio, host, port, root)
        told(f"unsnap studio: {address}   (Ctrl-C ends it)")
        studio.measure_speed()
        if browser:
            webbrowser.open(address)
        try:
            threading.Event().wait()
        finally:
            blocks.close(verbose=False)
    finally:
        studio.sessions.close_all()
        shutil.rmtree(root, ignore_errors=True)


def _quiet(root: Path) -> dict[str, str]:
    """No telemetry, no look for newer versions, all temporary files in our folder."""
    return {
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_TEMP_DIR": str(root / "uploads"),
        "GRADIO_EXAMPLES_CACHE": str(root / "cache"),
        "GRADIO_NODE_SERVER": "False",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
        "MPLBACKEND": "agg",
    }


def _launch(studio: Studio, host: str, port: int | None, root: Path) -> tuple[Any, str]:
    from starlette.middleware import Middleware

    from unsnap.studio.page import page, theme

    room = min(budget.left(), shutil.disk_usage(root).free // 2)
    blocks = page(studio)
    try:
        _, address, _ = blocks.launch(
            server_name=host,
            server_port=port,
            inbrowser=False,
            share=False,
            quiet=True,
            prevent_thread_lock=True,
            show_error=False,
            ssr_mode=False,
            footer_links=[],
            run_history=False,
            max_file_size=room,
            strict_cors=True,
            enable_monitoring=False,
            theme=theme(),
            css=(_HERE / "style.css").read_text(encoding="utf-8"),
            head=f"<script>{(_HERE / 'film.js').read_text(encoding='utf-8')}</script>",
            app_kwargs={"middleware": [Middleware(Guard, studio=studio)], "docs_url": None, "redoc_url": None},
        )
    except OSError as error:
        raise InputError(
            f"the studio cannot be opened at {host}:{port or 'a free port'} ({error}); choose another --port"
        ) from error
    return blocks, str(address)
