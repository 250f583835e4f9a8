"""Imports a module and prints one JSON object: the processor time of this process so far, and what is installed for it.

Run as `python -c`, in the environment of whom it measures: sys.argv is the module, then the distributions to follow.
"""

import importlib
import json
import re
import sys
import time

importlib.import_module(sys.argv[1])
seconds = time.process_time()

from importlib import metadata  # noqa: E402  # only what the package imports itself shall count
from pathlib import Path  # noqa: E402

# Requirements of extras, of other systems and of older versions of Python.
ELSEWHERE = re.compile(r"extra ==|win32|Windows|os_name ==|python_version <|python_full_version <|PyPy")
found: dict[str, int] = {}
ahead = list(sys.argv[2:])
while ahead:
    name = re.sub(r"[-_.]+", "-", ahead.pop()).lower()
    if name in found:
        continue
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        project = Path("pyproject.toml")  # ours, run from its checkout
        requires: list[str] = []
        files: list[Path] = []
        if name == "trio-agent" and project.exists():
            import tomllib

            requires = tomllib.loads(project.read_text("utf-8"))["project"]["dependencies"]
            files = list(Path("trio_agent").rglob("*.py"))
        elif name not in sys.argv[2:]:
            continue  # for another platform or version
    else:
        requires = distribution.requires or []
        files = [Path(str(file.locate())) for file in distribution.files or []]
    found[name] = sum(file.stat().st_size for file in files if file.exists() and "__pycache__" not in file.parts)
    here = [requirement for requirement in requires if not ELSEWHERE.search(requirement)]
    ahead += [re.split(r"[\s\[;<>=!~(]", requirement.strip())[0] for requirement in here]
print(json.dumps({"seconds": seconds, "distributions": len(found), "megabytes": sum(found.values()) / 1e6}))
