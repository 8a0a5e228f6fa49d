"""A server of the explorer while a test runs, and requests to it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from feat2vec.pages.explore import Atlas, Server


@contextmanager
def serving(atlas: Atlas, **options: Any) -> Iterator[Server]:
    with Server(atlas, **options) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def get(server: Server, path: str, host: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    is_json = str(response.getheader("Content-Type")).startswith("application/json")
    return response.status, json.loads(body) if is_json else body


def ask(server: Server, request: bytes) -> bytes:
    """All that is answered to these bytes."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(request)
        answered = b""
        with suppress(ConnectionResetError):  # the rest of a request that is refused is not read
            while part := connection.recv(1 << 16):
                answered += part
    return answered
