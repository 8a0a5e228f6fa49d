"""A server of the page for this machine alone."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import sys
import threading
import traceback
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any
from urllib.parse import parse_qs, urlsplit

from feat2vec.errors import FailedError, UserError
from feat2vec.pages.explore.atlas import Answer, Atlas
from feat2vec.pages.explore.page import page

ADDRESS = "127.0.0.1"
TIMEOUT = 10.0  # seconds that a connection may be silent, or take to receive an answer
CONNECTIONS = 32  # that are open at a time, each of which has a thread
REQUEST_BYTES = 1 << 16  # of a request's line, and of its headers


class Server(ThreadingHTTPServer):
    """Answers the page's questions; `serve_forever` runs until it is interrupted. Port 0 is any that is free.

    At most `connections` are open at a time. One more takes the place of the one that has been waiting for its request
    for the longest time; while every other one is being answered, it is refused.
    """

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = sys.platform != "win32"  # there it would share a port that is in use

    def __init__(
        self, atlas: Atlas, port: int = 0, *, timeout: float = TIMEOUT, connections: int = CONNECTIONS
    ) -> None:
        self.atlas = atlas
        self.page = page(atlas).encode()
        self.silence, self.max_connections = timeout, connections
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}  # those whose request is not read yet, the oldest first
        self._answered: set[socket.socket] = set()
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OverflowError:
            raise UserError(f"--port: expected 0 to 65535; received {port}") from None
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            reason = "is in use" if error.errno == errno.EADDRINUSE else "is not for everyone"
            raise UserError(f"--port: {port} {reason}; choose another, or 0 for any that is free") from None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, if there is room for it."""
        with self._lock:
            has_room = len(self._waiting) + len(self._answered) < self.max_connections or self._close_oldest()
            if has_room:
                self._waiting[request] = None
        if has_room:
            super().process_request(request, client_address)
        else:
            with suppress(OSError):
                request.sendall(b"HTTP/1.0 503 Service Unavailable\r\n\r\n")
            self.shutdown_request(request)

    def _close_oldest(self) -> bool:
        """Close the connection that has been waiting the longest; False if none is."""
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        del self._waiting[oldest]
        with suppress(OSError):  # its thread reads the end of the request, and ends
            oldest.shutdown(socket.SHUT_RDWR)
        return True

    def begin_answer(self, request: socket.socket) -> None:
        """The request of a connection is read: it is not closed for another one."""
        with self._lock:
            if request in self._waiting:
                del self._waiting[request]
                self._answered.add(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._waiting.pop(request, None)
            self._answered.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who closes the page, or takes no answer, is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Lines:
    """A request as the lines that it is read by, up to a number of bytes."""

    def __init__(self, file: BufferedIOBase, max_bytes: int) -> None:
        self.file, self.bytes_left = file, max_bytes

    def readline(self, size: int) -> bytes:
        """At most `size` bytes of a line."""
        line = self.file.readline(min(size, self.bytes_left + 1))
        self.bytes_left -= len(line)
        if self.bytes_left < 0:
            raise http.client.LineTooLong("request")
        return line


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "feat2vec", ""
    default_request_version = "HTTP/1.0"  # of a request that names none that is known: an answer has a status line

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.silence)

    def parse_request(self) -> bool:
        """The request's line and headers; the headers have a bound as a whole."""
        unbounded, self.rfile = self.rfile, _Lines(self.rfile, REQUEST_BYTES)  # type: ignore[assignment]
        try:
            return super().parse_request()
        finally:
            self.rfile = unbounded
            self.server.begin_answer(self.connection)

    def do_GET(self) -> None:
        # A page from elsewhere whose name leads here (DNS rebinding) says its own name.
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            self._send(403, "text/plain", b"this server is for its own page")
            return
        try:
            address = urlsplit(self.path)
        except ValueError:  # such as `GET http://[ HTTP/1.1`
            self._send(400, "text/plain", b"this is no address")
            return
        if address.path == "/":
            self._send(200, "text/html", self.server.page)
        elif address.path.startswith("/api/"):
            self._send(*self._answer(address.path.removeprefix("/api/"), address.query))
        else:
            self._send(404, "text/plain", b"not found")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that cannot be read, as the base class asks for; with the headers of other answers."""
        status = HTTPStatus(code)
        self._send(status, "text/plain", (explain or message or status.phrase).encode())

    def _answer(self, path: str, query: str) -> tuple[int, str, bytes]:
        status = 200
        facts: Answer = {}
        try:
            facts = self.server.atlas.answer(path, parse_qs(query).get("key", [""])[0])
        except (UserError, FailedError) as error:
            status, facts = 400, {"error": str(error)}
        except LookupError:
            status, facts = 404, {"error": f"there is no {path}"}
        except Exception as error:  # the page says that it failed, the terminal says why
            traceback.print_exc()
            status, facts = 500, {"error": f"{type(error).__name__}: {error}"}
        return status, "application/json", json.dumps(facts, ensure_ascii=False).encode()

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.request_version = self.default_request_version  # to one that says HTTP/0.9 no status line would be sent
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: the terminal is the reader's."""


__all__ = ["ADDRESS", "Server"]
