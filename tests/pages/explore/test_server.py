"""The server: what it answers, whom it refuses, and malformed, large, silent or very many requests."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from feat2vec.pages.explore import Atlas, Server
from tests.pages.explore.elements import PageElements
from tests.pages.explore.requests import ask, get, serving


def test_the_server_answers_what_the_file_holds(server: Server, folder: Path) -> None:
    answers_of_file = PageElements((folder / "page.html").read_text(encoding="utf-8")).data
    for path in ("points/1", "map/2/pca", "colour/0/4", "near/1/3"):
        assert get(server, f"/api/{path}") == (200, json.loads(answers_of_file[path]))
    status, page = get(server, "/")
    assert status == 200
    assert "connect-src 'self'" in PageElements(page).policy
    assert set(PageElements(page).data) == {"facts"}
    key = get(server, "/api/points/1")[1]["keys"][3]
    assert get(server, f"/api/find/1?key={quote(key)}") == (200, {"id": 3})
    status, answer = get(server, "/api/find/1?key=w999")
    assert status == 400
    assert "the group 'who' has no 'w999'; did you mean" in answer["error"]


@pytest.mark.parametrize(
    "path",
    [
        "points/9",
        "points/-1",
        "points/x",
        "points/1/2",
        "map/1/none",
        "colour/1/99",
        "neighbours/1/99999999",
        "near/1/9",
        "neighbours/1/" + "9" * 5000,
        "",
        "../x",
        "facts",
    ],
)
def test_what_is_not_there_is_not_found(server: Server, path: str) -> None:
    assert get(server, f"/api/{path}")[0] == 404


def test_the_server_is_for_its_own_page(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    port = server.server_port
    assert get(server, "/", f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}", ""):
        assert get(server, "/", host)[0] == 403
        assert get(server, "/api/points/1", host)[0] == 403
    assert get(server, "/etc/passwd")[0] == 404
    assert get(server, "/../../etc/passwd")[0] == 404


def test_a_failure_is_told_on_the_page_and_in_the_terminal(
    server: Server, atlas: Atlas, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(atlas, "near", lambda *_: 1 / 0)
    assert get(server, "/api/near/1/1") == (500, {"error": "ZeroDivisionError: division by zero"})
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET http://[ HTTP/1.1", 400),
        (b"GET", 400),
        (b"GET / HTTP/1.1 more", 400),
        (b"GET / HTTP/x", 400),
        (b"GET / HTTP/3.0", 505),
        (b"GET / HTTP/9.9", 505),
        (b"GET / HTTP/1.x", 400),
        (b"PRI * HTTP/2.0", 505),
        (b"\0\0\0", 400),
        (b"\x16\x03\x01\x02\xff\xfe", 400),
        (b"GET /nothing HTTP/0.9", 404),
        (b"POST / HTTP/1.1", 501),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1", 414),
    ],
)
def test_a_malformed_request_is_answered(
    server: Server, request_line: bytes, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    answered = ask(server, request_line + f"\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
    assert answered.startswith(f"HTTP/1.0 {status} ".encode())
    assert b"\r\nX-Content-Type-Options: nosniff\r\n" in answered
    assert b"<" not in answered
    assert get(server, "/api/points/1")[0] == 200
    assert capfd.readouterr().err == ""


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "headers",
    [b"X: " + b"x" * 70_000, b"\r\n".join(b"X%d: " % i + b"x" * 2000 for i in range(90)), b"X: x\r\n" * 200],
    ids=["long", "large", "many"],
)
def test_large_headers_are_refused(server: Server, headers: bytes) -> None:
    assert b" 431 " in ask(server, b"GET / HTTP/1.1\r\n" + headers + b"\r\n\r\n")
    assert get(server, "/api/points/1")[0] == 200


def test_a_silent_connection_is_closed(atlas: Atlas) -> None:
    with serving(atlas, timeout=0.05) as server:
        assert ask(server, b"") == b""
        assert ask(server, b"GET / HT") == b""


def test_a_flood_of_silent_connections_leaves_room(atlas: Atlas) -> None:
    with serving(atlas, timeout=60, connections=4) as server, ExitStack() as opened:
        address = ("127.0.0.1", server.server_port)
        silent = [opened.enter_context(socket.create_connection(address, timeout=20)) for _ in range(200)]
        assert get(server, "/api/points/1")[0] == 200
        assert get(server, "/api/points/1")[0] == 200
        assert all(connection.recv(1) == b"" for connection in silent[:196]), "closed, the oldest first"
        silent[-1].sendall(b"GET /nothing HTTP/1.1\r\n\r\n")
        assert b" 403 " in silent[-1].recv(1 << 16), "the latest is still open"


def test_while_all_are_answered_one_more_is_refused(atlas: Atlas, monkeypatch: pytest.MonkeyPatch) -> None:
    is_asked, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> dict[str, Any]:
        is_asked.set()
        assert go_on.wait(20)
        return {}

    monkeypatch.setattr(atlas, "answer", slow)
    with serving(atlas, connections=1) as server:
        answers: list[tuple[int, Any]] = []
        first_request = threading.Thread(target=lambda: answers.append(get(server, "/api/points/1")))
        first_request.start()
        assert is_asked.wait(20)
        assert ask(server, b"").startswith(b"HTTP/1.0 503 ")
        go_on.set()
        first_request.join()
        assert answers == [(200, {})]


@pytest.mark.slow
def test_it_serves_until_it_is_interrupted(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        sys.executable,
        "-c",
        "from feat2vec.cli import main; main()",
        "explore",
        str(folder / "run"),
        "--port",
        str(port),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == f"http://127.0.0.1:{port}/  (Ctrl-C ends it)\n"
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/api/points/0")
        assert json.loads(connection.getresponse().read())["total"] > 0
        connection.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("", "ended\n", 0)
