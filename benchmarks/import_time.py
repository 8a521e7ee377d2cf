"""What `import unsnap` costs beyond `import torch`: median of five fresh processes.

python benchmarks/import_time.py [--json PATH]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

from common import finish, show

# One after the other in the same process, so that the load of the machine cannot turn the difference around.
STATEMENTS = ("import torch", "import unsnap", "unsnap.reconstruct, unsnap.load_scene, unsnap.save_video")


def seconds() -> list[float]:
    """Time of each statement in a fresh interpreter, without the interpreter's own start."""
    lines = ["import json, time", "times = [time.perf_counter()]"]
    for statement in STATEMENTS:
        lines += [statement, "times.append(time.perf_counter())"]
    lines.append("print(json.dumps([b - a for a, b in zip(times, times[1:])]))")
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, capture_output=True, text=True)
    times: list[float] = json.loads(run.stdout)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    seconds()  # files into the page cache
    medians = [median(times) for times in zip(*(seconds() for _ in range(5)), strict=True)]
    rows = [
        {"statement": statement, "s": t, "ratio to torch": t / medians[0]}
        for statement, t in zip(STATEMENTS, medians, strict=True)
    ]
    show("Import time, each after the one above, median of 5 fresh processes", rows)
    finish(arguments.json, rows)


if __name__ == "__main__":
    main()
