"""Names for what is being written, and the removal of what a killed process left of it.

`.unsnap-PID-START-HOST-TOKEN`: process, the moment it began (process numbers are used again), machine, and chance.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

LOCK = ".unsnap-lock"
OLD = "-old"
"""Ends the name of a hidden folder in which another one was set aside under its own name."""
_NAME = re.compile(r"\.unsnap-(\d+)-(\d+)-([0-9a-f]{8})-[0-9a-f]{12}(-old|\..*)?", re.DOTALL)
_DAY = 24 * 3600


def beside(target: Path, end: str) -> Path:
    """A new hidden name in the folder of `target`, which says who writes there."""
    owner = f"{os.getpid()}-{began(os.getpid())}-{_host()}"
    return target.with_name(f".unsnap-{owner}-{secrets.token_hex(6)}{end}")


def sweep(folder: Path) -> None:
    """Remove what killed processes left in a folder, and bring back what they had set aside and not yet replaced."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            path = folder / entry.name
            if entry.name.startswith(LOCK):
                _remove_lock(path)
            elif (match := _NAME.fullmatch(entry.name)) and _abandoned(path, *match.group(1, 2, 3)):
                _remove(path, match[4] == OLD)


def _abandoned(path: Path, pid: str, then: str, host: str) -> bool:
    """Its process has ended; of another machine's processes nobody here knows, so those get a day."""
    if os.name == "posix" and host == _host():
        return not alive(int(pid), then)
    try:
        return time.time() - path.lstat().st_mtime > _DAY
    except OSError:
        return False


def _remove(path: Path, aside: bool) -> None:
    with suppress(OSError):
        if aside:
            for moved in list(path.iterdir()):
                with suppress(OSError):  # the new folder stands there already, and is not empty
                    moved.rename(path.parent / moved.name)
                if moved.exists() and not (path.parent / moved.name).exists():
                    return
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _remove_lock(path: Path) -> None:
    """A lock that nobody holds any more."""
    with suppress(OSError):
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if try_lock(file) and os.path.samestat(os.fstat(file), os.stat(path)):  # noqa: PTH116
                path.unlink()
        finally:
            os.close(file)


def try_lock(file: int) -> bool | None:
    """Lock an open file for as long as it is open; False: somebody else has it, None: there are no locks here.

    Linux keeps this lock on local disks and, as a lock of the whole range, on the server of NFS, where other machines
    see it too. Mounts that keep locks to themselves (local_lock=flock, Lustre without -o flock) show other machines
    nothing: there two machines can hold one lock, and only two processes of one machine are kept apart.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def alive(pid: int, then: str) -> bool:
    """Whether the process of this number is still the one that began then."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        pass
    now = began(pid)
    return now == then or "0" in (now, then)


def began(pid: int) -> str:
    """In ticks since the machine began; "0" if the system does not tell, "" if only its parent has not noticed yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return "0"
    return "" if fields[0] in b"ZX" else fields[19].decode()


@functools.cache
def _host() -> str:
    """Eight digits for this machine; containers number their processes anew and count as machines of their own."""
    space = ""
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]
