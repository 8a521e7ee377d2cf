"""What `import unsnap` costs beyond `import torch`: median of five fresh processes each.

python benchmarks/import_time.py [--json PATH]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median

from common import finish, show

STATEMENTS = ("import torch", "import torch, unsnap", "import torch, unsnap; unsnap.reconstruct, unsnap.load_scene")


def seconds(statement: str) -> float:
    """Time of the statement in a fresh interpreter, without the interpreter's own start."""
    code = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    seconds(STATEMENTS[-1])  # files into the page cache
    runs = {statement: median(seconds(statement) for _ in range(5)) for statement in STATEMENTS}
    torch_alone = runs["import torch"]
    rows = [
        {"statement": statement, "s": t, "beyond torch, s": t - torch_alone, "ratio to torch": t / torch_alone}
        for statement, t in runs.items()
    ]
    show("Import time, median of 5 fresh processes", rows)
    finish(arguments.json, rows)


if __name__ == "__main__":
    main()
