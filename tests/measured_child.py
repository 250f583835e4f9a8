"""A program: runs another program of this project under coverage, where nothing in the environment may say so.

Here lives what `branch_coverage.py` puts before programs that are started with `-I` or `-S`. It has no import of the
project's and leaves the environment as it is, so that what the program starts sees nothing of it.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(library: str, data: str, program: str, *arguments: str) -> None:
    sys.path.append(library)
    import coverage

    sources = [str(ROOT / "trio_agent"), str(ROOT / "tests")]
    measuring = coverage.Coverage(data, data_suffix=True, config_file=str(ROOT / "pyproject.toml"), source=sources)
    measuring.set_option("run:patch", [])  # it would say so in the environment
    measuring.set_option("run:sigterm", False)
    sys.argv = [program, *arguments]
    measuring.start()
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        measuring.stop()
        measuring.save()


if __name__ == "__main__":
    main(*sys.argv[1:])
