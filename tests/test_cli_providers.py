"""`trio-agent run` over each of the four APIs, as a process against a server that plays recorded bodies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from tests.wire_files import recorded
from tests.wire_server import Reply, WireServer, tcp_server
from trio_agent.testing import check_trace

ROOT = Path(__file__).parent.parent
KEY = "sk-very-secret-key-0123456789"
TOOLS = '''
def get_weather(location: str = "", city: str = "") -> str:
    """Tell the weather."""
    return f"sunny in {location or city}"

def get_time(timezone: str = "") -> str:
    """Tell the time."""
    return f"noon in {timezone}"

def get_current_weather(location: str) -> str:
    """Tell the weather."""
    return f"sunny in {location}"

def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b

'''
pytestmark = pytest.mark.real_time


@attrs.frozen
class API:
    """An API on the command line: recorded answers with tool calls and without, and what is asked where."""

    name: str
    folder: str
    calling: str
    answering: str
    result: str  # of a tool, in the second request
    path: str
    key: tuple[str, str]
    dials: dict[str, Any]  # what --reasoning low, --temperature 0.5 and --max-output-tokens 4000 become

    def body(self, name: str) -> bytes:
        (file,) = [file for file in recorded(self.folder) if file.name == name]
        return file.body

    @property
    def text(self) -> str:
        (file,) = [file for file in recorded(self.folder) if file.name == self.answering]
        return str(file.expected["text"])

    @property
    def calls(self) -> list[str]:
        (file,) = [file for file in recorded(self.folder) if file.name == self.calling]
        return [call["name"] for call in file.expected["tool_calls"]]


APIS = [
    API(
        "openai-chat",
        "openai_chat",
        "openai-parallel-tools.sse",
        "openai-text-usage.sse",
        "sunny in Boston",
        "/v1/chat/completions",
        ("authorization", f"Bearer {KEY}"),
        {"reasoning_effort": "low", "temperature": 0.5, "max_tokens": 4000},
    ),
    API(
        "openai-responses",
        "openai_responses",
        "openai-tool.sse",
        "openai-text.sse",
        "2869461",
        "/v1/responses",
        ("authorization", f"Bearer {KEY}"),
        {"reasoning": {"effort": "low", "summary": "auto"}, "max_output_tokens": 4000},
    ),
    API(
        "anthropic",
        "anthropic_messages",
        "parallel-tools.sse",
        "text.sse",
        "noon in America/New_York",
        "/v1/messages",
        ("x-api-key", KEY),
        # this API has no temperature while a model thinks
        {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 4000},
    ),
    API(
        "gemini",
        "gemini",
        "parallel-tools.sse",
        "text.sse",
        "sunny in New Delhi",
        "/v1/models/some-model:streamGenerateContent?alt=sse",
        ("x-goog-api-key", KEY),
        {},
    ),
]
each_api = pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mytools.py").write_text(TOOLS)
    return tmp_path


async def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    clean = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    return await trio.run_process(
        [sys.executable, "-m", "trio_agent", "run", "Do it.", "--no-builtin-tools", *arguments],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
    )


async def run_over(
    api: API, folder: Path, replies: Iterable[Reply], *arguments: str
) -> tuple[subprocess.CompletedProcess[bytes], WireServer]:
    service = ["--provider", api.name, "--model", "some-model", "--api-key-env", "MY_KEY"]
    tools = [f"--tool=mytools:{name}" for name in ("get_weather", "get_current_weather", "get_time", "multiply")]
    async with tcp_server(replies) as (server, url):
        done = await run(folder, *service, "--base-url", url, *tools, *arguments, MY_KEY=KEY)
    return done, server


def answers(api: API) -> list[Reply]:
    return [Reply([api.body(name)]) for name in (api.calling, api.answering)]


@each_api
async def test_tools_run_and_the_answer_is_printed(api: API, folder: Path) -> None:
    """Calls and answer as a service sent them; the results go back; the key goes where the API wants it."""
    done, server = await run_over(api, folder, answers(api))
    assert (done.returncode, done.stdout.decode().splitlines()[-1]) == (0, api.text.splitlines()[-1])
    told = done.stderr.decode()
    for name in api.calls:
        assert f"→ {name} " in told
    assert "completed · 2 turns" in told
    assert [(request.method, request.target) for request in server.requests] == [("POST", api.path)] * 2
    assert [request.headers[api.key[0]] for request in server.requests] == [api.key[1]] * 2
    assert api.result in server.requests[1].body.decode()
    assert "very-secret" not in told + done.stdout.decode()


@each_api
async def test_the_events_are_the_same_kind_of_story(api: API, folder: Path) -> None:
    """`--json` gives a lawful trace, whatever the API, with the provider's name in its messages."""
    done, _ = await run_over(api, folder, answers(api), "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert check_trace(lines, complete=True) == []
    ends = [event for event in map(json.loads, lines) if event["type"] == "message_end"]
    assert {end["message"]["provider"] for end in ends if end["message"]["role"] == "assistant"} == {api.name}


@each_api
async def test_the_dials_of_the_model_are_options(api: API, folder: Path) -> None:
    """`--reasoning`, `--temperature` and `--max-output-tokens` reach the request in the API's own words."""
    dials = ["--reasoning", "low", "--temperature", "0.5", "--max-output-tokens", "4000"]
    done, server = await run_over(api, folder, answers(api)[1:], *dials)
    assert done.returncode == 0
    body = server.requests[0].json()
    assert {name: body.get(name) for name in api.dials} == api.dials
    if api.name == "gemini":
        config = body["generationConfig"]
        assert (config["temperature"], config["maxOutputTokens"]) == (0.5, 4000)


@each_api
async def test_a_service_that_refuses_is_one_line(api: API, folder: Path) -> None:
    """A refused key, which the service quotes, is hidden; exit code 1."""
    refusal = {"error": {"message": f"bad key {KEY}", "type": "authentication_error", "status": "UNAUTHENTICATED"}}
    reply = Reply([json.dumps(refusal).encode()], 401, {"content-type": "application/json"})
    done, _ = await run_over(api, folder, [reply], "--json")
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert line.startswith("trio-agent: error: authentication: HTTP 401")
    assert "bad key [key hidden]" in line


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("openai-chat", ("OPENAI_BASE_URL", "OPENAI_API_KEY")),
        ("openai-responses", ("OPENAI_BASE_URL", "OPENAI_API_KEY")),
        ("anthropic", ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")),
        ("gemini", ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY")),
    ],
)
async def test_the_usual_variables_are_enough(provider: str, variables: tuple[str, str], folder: Path) -> None:
    """Address and key come from where the makers' own clients take them."""
    (api,) = [api for api in APIS if api.name == provider]
    async with tcp_server(answers(api)[1:]) as (server, url):
        environment = dict(zip(variables, (url, KEY), strict=True))
        done = await run(folder, "--provider", provider, "--model", "some-model", **environment)
    assert done.returncode == 0
    assert server.requests[0].headers[api.key[0]] == api.key[1]


@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses", "anthropic", "gemini"])
async def test_a_key_stays_with_its_maker(provider: str, folder: Path) -> None:
    """A key in the environment is not sent to another address, and the maker's own is not asked without one."""
    (api,) = [api for api in APIS if api.name == provider]
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), KEY)
    async with tcp_server(answers(api)[1:]) as (server, url):
        done = await run(folder, "--provider", provider, "--model", "some-model", "--base-url", url, **keys)
    assert done.returncode == 0
    assert KEY not in str(server.requests[0].headers)
    done = await run(folder, "--provider", provider, "--model", "some-model")
    variable = {"anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}.get(provider, "OPENAI_API_KEY")
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"wants a key; set {variable}, or name another variable by --api-key-env" in done.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--provider", "anthropic"], "--provider anthropic needs --model"),
        (["--provider", "gemini"], "--provider gemini needs --model"),
        (["--reasoning", "very"], "argument --reasoning: invalid choice: 'very'"),
        (["--temperature", "-1"], "argument --temperature: '-1' is no number from 0 on"),
        (["--temperature", "nan"], "argument --temperature: 'nan' is no number from 0 on"),
        (["--max-output-tokens", "0"], "argument --max-output-tokens: '0' is no whole number from 1 on"),
    ],
)
async def test_wrong_usage_is_one_line(arguments: list[str], line: str, folder: Path) -> None:
    """Exit code 2, before anything is asked."""
    done = await run(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert line in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
