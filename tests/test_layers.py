"""The three floors: what may import what, read from the source and not from what a run happens to load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trio_agent

PACKAGE = Path(trio_agent.__file__).resolve().parent
SOURCE = Path(__file__).resolve().parent.parent / "trio_agent"

# Each knows one Trio trick and nothing of agents.
MECHANISMS = {
    "_ancestry",
    "_cancellation",
    "_delivery",
    "_file_line",
    "_file_locks",
    "_interrupts",
    "_jobs",
    "_mailbox",
    "_settlement",
    "_threads",
}
KERNEL = {
    "__init__",
    "_agent",
    "_asking",
    "_compaction",
    "_decoding",
    "_run",
    "_stream",
    "_tool_call",
    "_tool_context",
    "_tool_phase",
    "_tools",
}
# Packages above the kernel, and those of them that each may use.
ON_TOP: dict[str, set[str]] = {
    "providers": set(),
    "tools": set(),
    "session": set(),
    "testing": set(),
    "cli": {"providers", "tools", "session", "testing"},
    "__main__": {"cli"},
}
# What a mechanism may not know, not even through others.
AGENTS = {"_messages", "_events", "_chunks", "_lifecycle", "_state", "_hooks", "_tools", "_provider", "_request"}
WAITING = (ast.Await, ast.AsyncFor, ast.AsyncWith)
IO = {"trio", "httpx", "httpx2", "h11", "anyio", "socket", "ssl", "subprocess", "threading"}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


MODULES = {name_of(path): ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def floor_of(module: str) -> str:
    top = module.split(".")[0]
    if top in ON_TOP:
        return "on top"
    if module in KERNEL:
        return "kernel"
    return "mechanism" if module in MECHANISMS else "pure"


FLOORS = ["pure", "mechanism", "kernel", "on top"]
PURE = [module for module in MODULES if floor_of(module) == "pure"]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports_of(module: str) -> set[str]:
    """What a module imports when it runs, inside of functions too, ours by their names within the package."""
    found: set[str] = set()
    ahead: list[ast.AST] = [MODULES[module]]
    while ahead:
        node = ahead.pop()
        if is_type_checking(node):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("trio_agent.") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= resolved(module, node)
        ahead += ast.iter_child_nodes(node)
    return found


def resolved(module: str, node: ast.ImportFrom) -> set[str]:
    parts = module.split(".")
    if parts[-1] != "__init__":
        parts[-1] = "__init__"
    if node.level == 0:
        return {(node.module or "").removeprefix("trio_agent.")}
    package = parts[: len(parts) - node.level]
    base = [*package, *((node.module or "").split(".") if node.module else [])]
    if node.module and ".".join(base) in MODULES:
        return {".".join(base)}
    if node.module:  # a package of ours
        return {".".join([*base, "__init__"])}
    named = {".".join([*base, alias.name]) for alias in node.names}
    # `from .. import Agent` takes a name from the package itself
    return {name if name in MODULES else ".".join([*base, "__init__"]) for name in named}


def ours(modules: set[str]) -> set[str]:
    return {module for module in modules if module in MODULES}


def closure(module: str) -> set[str]:
    """Everything of ours that a module imports, also through others."""
    found: set[str] = set()
    ahead = [module]
    while ahead:
        for imported in ours(imports_of(ahead.pop())) - found:
            found.add(imported)
            ahead.append(imported)
    return found


def test_every_import_of_ours_is_understood() -> None:
    """The walk finds what is there: each relative import leads to a module of the package."""
    for module in MODULES:
        for node in ast.walk(MODULES[module]):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert resolved(module, node) <= set(MODULES), f"{module}: {ast.unparse(node)}"
    assert {"_events", "_run", "_state"} <= closure("_agent")


def test_every_module_has_a_floor() -> None:
    """The lists of this test name modules that exist, and the kernel's and the mechanisms' do not overlap."""
    assert set(MODULES) >= MECHANISMS | KERNEL
    assert not MECHANISMS & KERNEL


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_lives_in_it(module: str) -> None:
    """A module opens with its jurisdiction."""
    docstring = ast.get_docstring(MODULES[module])
    assert docstring
    assert docstring.split("\n")[0].endswith((".", "?"))


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_does_no_io_and_never_waits(module: str) -> None:
    """No trio, no httpx, no await on the ground floor."""
    assert not {imported.split(".")[0] for imported in imports_of(module)} & IO
    waits = [node.lineno for node in ast.walk(MODULES[module]) if isinstance(node, WAITING)]
    assert waits == [], f"{module} awaits in line {waits}"


@pytest.mark.parametrize("module", MODULES)
def test_arrows_point_down_only(module: str) -> None:
    """A module imports from its own floor or from one below, never from one above."""
    floor = FLOORS.index(floor_of(module))
    above = [imported for imported in ours(imports_of(module)) if FLOORS.index(floor_of(imported)) > floor]
    assert above == [], f"{module} ({FLOORS[floor]}) imports {above}"


@pytest.mark.parametrize("module", sorted(MECHANISMS))
def test_a_mechanism_knows_nothing_of_agents(module: str) -> None:
    """What a mechanism imports, also through others, has no message, event or state in it."""
    assert not closure(module) & AGENTS


@pytest.mark.parametrize("module", [module for module in MODULES if floor_of(module) == "on top"])
def test_what_is_on_top_stands_alone(module: str) -> None:
    """Providers, tools, session and testing are usable without each other; only the command line uses them all."""
    own = module.split(".")[0]
    others = {imported.split(".")[0] for imported in ours(imports_of(module))} & set(ON_TOP)
    assert others <= ON_TOP[own] | {own}


@pytest.mark.parametrize("module", [module for module in MODULES if floor_of(module) != "on top"])
def test_no_modules_import_each_other_in_a_circle(module: str) -> None:
    """Within the floors of the kernel nothing imports itself through others, not even inside a function."""
    assert module not in closure(module)


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=PACKAGE.parent, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.real_time
def test_importing_the_package_does_not_import_httpx() -> None:
    """Who brings a provider of their own needs no HTTP client."""
    loaded = run_python("import sys, trio_agent; print([name for name in sys.modules if name.startswith('http')])")
    assert "httpx" not in loaded


@pytest.mark.real_time
def test_importing_the_package_costs_little_beyond_trio() -> None:
    """`import trio_agent` takes less than 0.3 seconds of processor time once Trio is there."""
    code = "import time, trio; began = time.process_time(); import trio_agent; print(time.process_time() - began)"
    seconds = [float(run_python(code)) for _ in range(3)]
    assert min(seconds) < 0.3, seconds
