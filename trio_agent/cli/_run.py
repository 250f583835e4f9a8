"""`trio-agent run`: one run of an agent, from the options to the exit code.

Here lives the order of things. Each of them is elsewhere: options in `_arguments.py`, what they name in `_setup.py`,
what is shown in `_lines.py` and `_story.py`, Ctrl-C in `_interrupt.py`.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final

import attrs
import trio

from .._agent import Agent
from .._events import Event, Outcome
from .._policies import Limits
from .._result import RunResult
from .._tools import Tool
from ._arguments import RunOptions
from ._interrupt import ABORTED, Interrupt
from ._lines import Lines
from ._output import Output, leave_stdout_alone, stdout
from ._pen import pen
from ._session import OpenSession, open_session
from ._setup import load_tools, open_provider, read_prompt
from ._story import Story
from ._usage import complain, one_line, worded

_EXIT_CODES: Final[dict[Outcome, int]] = {"completed": 0, "stopped": 0, "error": 1, "aborted": ABORTED}


@attrs.frozen(kw_only=True)
class _Job:
    options: RunOptions
    prompt: str
    tools: tuple[Tool, ...]
    session: OpenSession
    output: Output
    interrupt: Interrupt


def run(options: RunOptions) -> int:
    """Run an agent to idle. Returns the exit code; raises `UsageError`, and whatever keeps a provider from starting."""
    interrupt = Interrupt()
    with interrupt.installed(), _log_on_stderr(options.debug):
        prompt, tools = read_prompt(options), load_tools(options)
        with open_session(options.session, trace=options.trace) as session:
            output = stdout(exclusive=options.json)
            job = _Job(options=options, prompt=prompt, tools=tools, session=session, output=output, interrupt=interrupt)
            code = trio.run(_converse, job)
    if output.failure is not None:
        leave_stdout_alone()
        complain("error", f"stdout cannot be written to ({output.failure.strerror}), so the run was aborted")
        return 1
    return ABORTED if interrupt.happened else code


async def _converse(job: _Job) -> int:
    with trio.CancelScope() as scope:
        job.interrupt.calls(scope.cancel)
        async with open_provider(job.options) as provider:
            agent = Agent(
                provider,
                model=job.options.model_name,
                system_prompt=job.options.system,
                tools=job.tools,
                messages=job.session.messages,
                limits=Limits(max_turns=job.options.max_turns),
                reasoning=job.options.reasoning,
                settings=job.options.settings,
            )
            return await _prompt(job, agent)
    return ABORTED


async def _prompt(job: _Job, agent: Agent) -> int:
    job.session.attend(agent)
    story = None if job.options.json else Story(job.output, pen())
    listener: Callable[[Event], Awaitable[None]] = story or Lines(job.output)
    agent.subscribe(listener)
    job.interrupt.calls(lambda: agent.abort("interrupted by Ctrl-C"))
    job.output.when_closed(lambda: agent.abort("stdout cannot be written to"))
    async with trio.open_nursery() as nursery:
        if job.options.timeout is not None:
            nursery.start_soon(_abort_after, agent, job.options.timeout)
        result = await agent.prompt(job.prompt)
        nursery.cancel_scope.cancel()
    if story is not None:
        story.end(result)
    _tell_error(result, job.options.debug)
    return _EXIT_CODES[result.outcome]


async def _abort_after(agent: Agent, seconds: float) -> None:
    await trio.sleep(seconds)
    agent.abort(f"timeout after {seconds:g} s")


def _tell_error(result: RunResult, debug: bool) -> None:
    if result.outcome != "error":
        return
    if debug and result.error is not None:
        traceback.print_exception(result.error)
    complain("error", worded(result.error) if result.error is not None else result.reason or "the run failed")


class _OneLine(logging.Formatter):
    """A record as one line, its traceback left out."""

    def format(self, record: logging.LogRecord) -> str:
        return f"trio-agent: {record.levelname.lower()}: {one_line(record.getMessage())}"


@contextmanager
def _log_on_stderr(debug: bool) -> Generator[None]:
    handler = logging.StreamHandler(sys.stderr)
    if not debug:
        handler.setFormatter(_OneLine())
    logger = logging.getLogger("trio_agent")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
