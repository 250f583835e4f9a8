"""A chat service on 127.0.0.1 for other processes to talk to: it answers what it was told to, in order.

Here live the server, which runs in threads of its own, and short forms for answers. It speaks Chat Completions as a
stream, and nothing else.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

# A delta, a finish reason, an HTTP status to fail with, or an event to wait for.
Part: TypeAlias = dict[str, Any] | str | int | threading.Event


def text(said: str) -> list[Part]:
    """An answer in text, a character at a time."""
    return [*[{"content": char} for char in said], "stop"]


def call(name: str, /, **arguments: Any) -> list[Part]:
    """An answer that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [{"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}, "tool_calls"]


class ChatServer:
    """The running server: `url`, what was asked (`bodies`, `headers`), and `hung_up`, set when a client left early."""

    def __init__(self, url: str, answers: list[list[Part]]) -> None:
        self.url = url
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.hung_up = threading.Event()
        self.answers = answers


@contextmanager
def chat_server(*answers: list[Part]) -> Generator[ChatServer]:
    """Serve these answers. A status in one is an error, and an event is waited for before what follows is sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            server.bodies.append(body)
            server.headers.append(dict(self.headers))
            answer = server.answers.pop(0)
            if isinstance(answer[0], int):
                self._fail(answer[0])
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            try:
                for part in answer:
                    self._send(part)
                self._data({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}})
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:
                server.hung_up.set()

        def _send(self, part: Any) -> None:
            if isinstance(part, threading.Event):
                while not part.wait(0.05):
                    self.wfile.write(b": still there\n\n")
                    self.wfile.flush()
            elif isinstance(part, str):
                self._data({"choices": [{"index": 0, "delta": {}, "finish_reason": part}]})
            else:
                self._data({"choices": [{"index": 0, "delta": part}]})

        def _data(self, event: Any) -> None:
            self.wfile.write(f"data: {json.dumps({'id': 'x', 'model': 'm', **event})}\n\n".encode())
            self.wfile.flush()

        def _fail(self, status: int) -> None:
            body = json.dumps({"error": {"message": f"no, {self.headers.get('authorization')}"}}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        server = ChatServer(f"http://127.0.0.1:{listener.server_address[1]}/v1", list(answers))
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()
