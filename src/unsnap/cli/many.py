"""Several files at once: on processes of this machine (--workers) or a Dask cluster (--cluster)."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unsnap.campaign.folder import Folder
from unsnap.campaign.local import processes
from unsnap.campaign.run import Campaign, Entry, Pool, prepare
from unsnap.campaign.summary import SUMMARIES, write_summary
from unsnap.cli.common import err, remark
from unsnap.cli.learning import alone
from unsnap.cli.work import Work, say
from unsnap.errors import InputError
from unsnap.io import budget, claim_output, sha256
from unsnap.io.checks import is_there
from unsnap.io.lock import folder_lock
from unsnap.models.file import SUFFIX
from unsnap.plugins import LOADED
from unsnap.run import Result


def spread(
    work: Work,
    files: Sequence[Path],
    targets: Sequence[Path | None],
    claim: Callable[[Path], None],
    workers: int | None,
    cluster: str | None,
    *,
    force: bool,
    json: bool,
    quiet: bool,
) -> list[Result | InputError]:
    """What became of every file, in their order; OUT/summary.csv and .html say it, too."""
    if workers is not None and cluster is not None:
        raise InputError("--workers and --cluster exclude one another; a cluster has workers of its own")
    jobs = [(file, target) for file, target in zip(files, targets, strict=True) if target is not None]
    if not jobs:
        raise InputError("--workers and --cluster keep what they have done in a folder; give one with -o FOLDER/")
    folder = Folder(jobs[0][1].parent.absolute())
    work = _portable(work)
    ours = folder.settings() is not None
    for name in SUMMARIES:
        claim_output(folder.out / name, (Path(name).suffix,), inputs=files, force=force or ours)
    started = time.monotonic()
    with alone(folder_lock(folder.parts), folder.out, quiet):
        memory = budget.named()
        share = None if memory is None else memory // (workers or 1)
        tasks, entries = prepare(work, jobs, claim, force=force, memory=share, inputs=work.reading.inputs)
        if entries:
            remark(f"{len(entries)} of {len(files)} files were done earlier.", quiet)
        names = {file.absolute(): file for file in files}
        if tasks:
            work = _with_model(work, folder)
            with _pool(work, workers, cluster, quiet) as pool, _bar(len(tasks), quiet) as tell:
                for found in Campaign(tasks, pool).run():
                    entry = _as_given(found, names[found.file], jobs[0][1].parent)
                    entries.append(entry)
                    say(entry.file, _result(entry), json)
                    for warning in () if entry.result is None else entry.result.warnings:
                        remark(f"{entry.file}: Warning: {warning}", quiet)
                    tell(entry)
        entries = [_as_given(entry, entry.file, jobs[0][1].parent) for entry in entries]
        order = {file: k for k, file in enumerate(files)}
        entries.sort(key=lambda entry: order[entry.file])
        command = shlex.join(["unsnap", *sys.argv[1:]])
        write_summary(folder.out, entries, command, time.monotonic() - started)
    remark(f"Summary: {jobs[0][1].parent / 'summary.html'}", quiet)
    if any(entry.error for entry in entries):
        remark("The same command repeats only what failed.", quiet)
    return [_result(entry) for entry in entries]


def _as_given(entry: Entry, file: Path, folder: Path) -> Entry:
    """With the names that the user gave: workers know absolute ones."""
    found = entry.result
    if found is not None and found.output is not None:
        found = replace(found, output=str(folder / Path(found.output).name))
    return replace(entry, file=file, result=found)


def _result(entry: Entry) -> Result | InputError:
    return InputError(entry.error or "nothing is known of it") if entry.result is None else entry.result


def _portable(work: Work) -> Work:
    """With absolute paths, for processes that stand elsewhere, and without a display."""
    held: dict[str, Any] = {
        name: type(value)(Path(value).absolute())
        for name, value in vars(work.reading).items()
        if value in work.reading.inputs and is_there(value)
    }
    method = str(Path(work.method).absolute()) if work.method.endswith(SUFFIX) else work.method
    named = work.recipe.name if work.method.endswith(SUFFIX) else None
    return replace(
        work, reading=replace(work.reading, **held), quiet=True, plugins=tuple(LOADED), method=method, named=named
    )


def _with_model(work: Work, folder: Folder) -> Work:
    """With a model file that every worker sees, and reads once."""
    if not work.method.endswith(SUFFIX):
        return work
    return replace(work, method=str(folder.share(Path(work.method), sha256(work.method))))


@contextmanager
def _pool(work: Work, workers: int | None, cluster: str | None, quiet: bool) -> Iterator[Pool]:
    def said(text: str) -> None:
        remark(text, quiet)

    chosen: AbstractContextManager[Pool]
    if cluster is None:
        chosen = processes(work, workers or 1)
    else:
        from unsnap.campaign.cluster import connected

        chosen = connected(work, cluster, said)
    with chosen as pool:
        yield pool


@contextmanager
def _bar(total: int, quiet: bool) -> Iterator[Callable[[Entry], None]]:
    """Files done, failures, files and snapshots per second, time left."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    started, failed, snapshots = time.monotonic(), 0, 0
    shown = not quiet and err.is_terminal
    with Progress(*columns, console=err, transient=True, disable=not shown, refresh_per_second=4) as bar:
        task = bar.add_task("files", total=total, text="")

        def tell(entry: Entry) -> None:
            nonlocal failed, snapshots
            failed += entry.result is None
            snapshots += 0 if entry.result is None else entry.result.snapshots
            rate = snapshots / (time.monotonic() - started)
            bar.update(task, advance=1, text=f"{rate:.2f} snapshots/s, {failed} failed")

        yield tell
