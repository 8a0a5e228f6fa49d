"""A server of the page for this machine alone."""

from __future__ import annotations

import errno
import json
import sys
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from feat2vec.errors import FailedError, UserError
from feat2vec.explore.atlas import Atlas
from feat2vec.explore.page import page

ADDRESS = "127.0.0.1"


class Server(ThreadingHTTPServer):
    """Answers the page's questions; `serve_forever` runs until it is interrupted. Port 0 is any that is free."""

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # there it would share a port that is in use

    def __init__(self, atlas: Atlas, port: int = 0) -> None:
        self.atlas = atlas
        self.page = page(atlas).encode()
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OverflowError:
            raise UserError(f"--port: expected 0 to 65535; received {port}") from None
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "is in use" if error.errno == errno.EADDRINUSE else "is not for everyone"
            raise UserError(f"--port: {port} {why}; choose another, or 0 for any that is free") from None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader who closes the page is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "feat2vec", ""

    def do_GET(self) -> None:
        # A page from elsewhere whose name leads here (DNS rebinding) says its own name.
        port = self.server.server_port
        if self.headers.get("Host") not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            self._send(403, "text/plain", b"this server is for its own page")
            return
        asked = urlsplit(self.path)
        if asked.path == "/":
            self._send(200, "text/html", self.server.page)
        elif asked.path.startswith("/api/"):
            self._send(*self._answer(asked.path.removeprefix("/api/"), asked.query))
        else:
            self._send(404, "text/plain", b"not found")

    def _answer(self, path: str, query: str) -> tuple[int, str, bytes]:
        status, facts = 200, {}
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
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: the terminal is the reader's."""


__all__ = ["ADDRESS", "Server"]
