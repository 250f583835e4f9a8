"""File locks under random calls, spellings, cancellations and changes of the files (T8)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from trio_agent._ancestry import Origin, snapshot
from trio_agent._file_locks import FileLocks, FileLockStatistics, HeldByAncestor

IDLE = FileLockStatistics(held=0, waiting=0, keys=0)
NAMES = ("a", "b", "new", "sub/../a", "link", "chain", "hard", "dangling", "here/a", "here/new", "made/new", "other")


@contextmanager
def folder() -> Iterator[Path]:
    """Two files and what else leads to them, and to one that is not there yet."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for file in ("a", "b"):
            (root / file).write_text("x")
        (root / "sub").mkdir()
        for link, target in (("link", "a"), ("chain", "link"), ("dangling", "new"), ("here", ".")):
            (root / link).symlink_to(target)
        os.link(root / "b", root / "hard")
        yield root


def entry(path: str) -> str:
    """The directory entry that a path ends at, links on the way resolved."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def are_same(one: str, other: str) -> bool:
    """The truth of this moment, asked of the disk and not of the keys."""
    if {entry(one), os.path.realpath(one)} & {entry(other), os.path.realpath(other)}:
        return True
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


# What a holder does to its own files. None of it makes two holders share a file that did not share one before.


def nothing(paths: tuple[str, ...], spare: str) -> None:
    pass


def write(paths: tuple[str, ...], spare: str) -> None:
    for path in paths:
        os.makedirs(os.path.dirname(os.path.realpath(path)), exist_ok=True)
        Path(os.path.realpath(path)).write_text("written")


def replace(paths: tuple[str, ...], spare: str) -> None:
    write(paths, spare)
    for path in paths:
        Path(spare).write_text("replaced")
        os.replace(spare, os.path.realpath(path))


def replace_the_links(paths: tuple[str, ...], spare: str) -> None:
    for path in paths:
        if os.path.islink(path):
            Path(spare).write_text("no link any more")
            os.replace(spare, entry(path))


def remove(paths: tuple[str, ...], spare: str) -> None:
    for path in paths:
        if os.path.exists(path):
            os.remove(os.path.realpath(path))


def retarget(paths: tuple[str, ...], spare: str) -> None:
    """The first path becomes a link to the last one."""
    target = os.path.realpath(paths[-1])
    if target != entry(paths[0]) and os.path.isdir(os.path.dirname(entry(paths[0]))):
        os.symlink(target, spare)
        os.replace(spare, entry(paths[0]))


def link_hard(paths: tuple[str, ...], spare: str) -> None:
    """The last path becomes a hard link of the first one."""
    write(paths, spare)
    one, other = os.path.realpath(paths[0]), os.path.realpath(paths[-1])
    if one != other:
        os.link(one, spare)
        os.replace(spare, other)


Action = Callable[[tuple[str, ...], str], None]


@attrs.frozen
class Plan:
    """One call: which files, when it takes its ticket, how long it holds, when it is cancelled, what it does."""

    names: list[str]
    start: int
    hold: int
    patience: float
    action: Action


ACTIONS: list[Action] = [nothing, write, replace, replace_the_links, remove, retarget, link_hard]
PLANS = st.lists(
    st.builds(
        Plan,
        names=st.lists(st.sampled_from(NAMES), max_size=3),
        start=st.integers(0, 3),
        hold=st.integers(0, 4),
        patience=st.one_of(st.just(float("inf")), st.integers(0, 6)),
        action=st.sampled_from(ACTIONS),
    ),
    min_size=2,
    max_size=8,
)


class Watch:
    """Looks on while the calls of some plans run, and knows the rules."""

    def __init__(self, root: Path) -> None:
        self.table = FileLocks()
        self.holding: dict[int, tuple[str, ...]] = {}
        self.waiting: dict[int, tuple[str, ...]] = {}
        self.behind: dict[int, set[int]] = {}
        self.acquired = 0
        self._root = root

    async def run(self, plans: list[Plan]) -> None:
        async with trio.open_nursery() as nursery:
            for at, plan in sorted(enumerate(plans), key=lambda item: item[1].start):
                await trio.sleep_until(plan.start)
                self.take(nursery, at, plan)

    def take(self, nursery: trio.Nursery, at: int, plan: Plan) -> None:
        paths = tuple(f"{self._root}/{name}" for name in plan.names)
        ticket = self.table.ticket(paths)
        self.behind[at] = {other for other, theirs in self.waiting.items() if self.clash(paths, theirs)}
        self.waiting[at] = paths

        async def call() -> None:
            try:
                with trio.move_on_after(plan.patience):
                    await ticket.acquire()
                    self.begin(at, paths)
                    await trio.sleep(plan.hold / 2)
                    if paths:
                        plan.action(paths, f"{self._root}/spare{at}")
                    self.check_exclusion()
                    await trio.sleep(plan.hold / 2)
            finally:
                self.waiting.pop(at, None)
                self.holding.pop(at, None)
                ticket.release()

        nursery.start_soon(call)

    def begin(self, at: int, paths: tuple[str, ...]) -> None:
        del self.waiting[at]
        self.holding[at] = paths
        self.acquired += 1
        self.check_exclusion()
        overtaken = [n for n in self.behind[at] & self.waiting.keys() if self.clash(paths, self.waiting[n])]
        assert not overtaken, f"{at} went before {overtaken}"

    def check_exclusion(self) -> None:
        for one, paths in self.holding.items():
            for other, theirs in self.holding.items():
                assert one == other or not self.clash(paths, theirs), f"{one} and {other} hold one file"

    @staticmethod
    def clash(paths: tuple[str, ...], others: tuple[str, ...]) -> bool:
        return any(are_same(one, other) for one in paths for other in others)


@settings(max_examples=300)
@given(plans=PLANS, scheduler=st.random_module())
def test_t8_random_calls_never_share_a_file_and_never_deadlock(plans: list[Plan], scheduler: object) -> None:
    """At no time two holders of one file, granted in ticket order, everybody gets through, the table is empty after."""

    async def main() -> None:
        with folder() as root:
            watch = Watch(root)
            with trio.fail_after(1000):
                await watch.run(plans)
            assert watch.acquired >= sum(plan.patience == float("inf") for plan in plans)
            assert watch.table.statistics() == IDLE

    trio.run(main, clock=MockClock(autojump_threshold=0))


# -- calls inside calls -------------------------------------------------------------------------------------------


@attrs.frozen
class Tree:
    """A call that holds some files while it runs others inside."""

    names: list[str]
    delay: int
    hold: int
    inner: list[Tree]


def _calls(inner: st.SearchStrategy[list[Tree]]) -> st.SearchStrategy[Tree]:
    names = st.lists(st.sampled_from(["a", "b", "link", "hard", "new"]), max_size=2)
    return st.builds(Tree, names=names, delay=st.integers(0, 3), hold=st.integers(0, 3), inner=inner)


LEAVES = _calls(st.just([]))
MIDDLE = _calls(st.lists(LEAVES, max_size=2))
FOREST = st.lists(_calls(st.lists(st.one_of(LEAVES, MIDDLE), max_size=3)), min_size=1, max_size=4)


@attrs.define(eq=False)
class Call:
    name: str
    origin: Origin | None = None


class Forest:
    """Runs trees of calls, and looks at who is let in and who is refused."""

    def __init__(self, root: Path) -> None:
        self.table = FileLocks()
        self.holding: dict[str, tuple[str, ...]] = {}
        self.waiting: set[str] = set()
        self.over: list[str] = []
        self._root = root

    async def run(self, prefix: str, trees: list[Tree]) -> None:
        async with trio.open_nursery() as nursery:
            for at, tree in enumerate(trees):
                nursery.start_soon(self.call, f"{prefix}{at}.", tree)

    async def call(self, name: str, tree: Tree) -> None:
        await trio.sleep(tree.delay)
        call = Call(name, snapshot())
        paths = tuple(f"{self._root}/{path}" for path in tree.names)
        ticket = self.table.ticket(paths, call)
        self.waiting.add(name)
        try:
            await ticket.acquire()
            self.waiting.discard(name)
            self.begin(name, paths)
            await trio.sleep(tree.hold)
            await self.run(name, tree.inner)
        except HeldByAncestor as refusal:
            self.waiting.discard(name)
            self.check_refusal(name, refusal)
        finally:
            self.holding.pop(name, None)
            ticket.release()
            self.over.append(name)

    def begin(self, name: str, paths: tuple[str, ...]) -> None:
        for other, theirs in self.holding.items():
            assert not Watch.clash(paths, theirs), f"{name} and {other} hold one file"
        self.holding[name] = paths

    def check_refusal(self, name: str, refusal: HeldByAncestor) -> None:
        """Who is refused really was inside the one named, and that one, or what waits inside it, had the file."""
        assert name.startswith(refusal.awaited_name)
        assert name != refusal.awaited_name
        assert Watch.clash((refusal.path,), self.holding[refusal.holder_name])
        if refusal.holder_name != refusal.awaited_name:
            assert any(other.startswith(refusal.holder_name) for other in self.waiting)


X_OUTER = Tree(["a"], 0, 1, [Tree(["b"], 1, 1, [])])
Y_OUTER = Tree(["b"], 0, 1, [Tree(["a"], 2, 1, [])])


@settings(max_examples=300)
@given(trees=FOREST, scheduler=st.random_module())
@example(trees=[X_OUTER, Y_OUTER], scheduler=None)
@example(trees=[X_OUTER, Tree(["a", "b"], 1, 1, [])], scheduler=None)
def test_t8_calls_inside_calls_never_deadlock(trees: list[Tree], scheduler: object) -> None:
    """However calls with locks are nested, each gets its files or is told why not, and all of them end."""

    def count(trees: list[Tree]) -> int:
        return sum(1 + count(tree.inner) for tree in trees)

    async def main() -> None:
        with folder() as root:
            forest = Forest(root)
            with trio.fail_after(1000):
                await forest.run("", trees)
            assert len(forest.over) <= count(trees)
            assert forest.table.statistics() == IDLE

    trio.run(main, clock=MockClock(autojump_threshold=0))
