"""The page to look at a run: its maps, colours and neighbours, its server, and that nothing in a table harms it."""

from __future__ import annotations

import base64
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import feat2vec
from feat2vec.cli import feat2vec as command_line
from feat2vec.errors import UserError
from feat2vec.pages.explore import Atlas, Server, write_page
from feat2vec.pages.explore import atlas as atlas_module
from feat2vec.pages.explore import page as page_module
from feat2vec.pages.explore.maps import draw, pca, unit
from feat2vec.run import train

IMAGE, SCRIPT, QUOTES = "<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "a \"b\" 'c' & {{facts}}"
ROWS = 240


def table() -> pa.Table:
    rng = np.random.default_rng(0)
    who = [IMAGE, SCRIPT, QUOTES, *(f"w{i}" for i in range(30))]
    return pa.table(
        {
            "id": [f"r{i}" for i in range(ROWS)],
            "who": [None if i % 17 == 0 else who[min(rng.zipf(1.3), len(who)) - 1] for i in range(ROWS)],
            "tags": ["|".join(f"t{x % 40}" for x in rng.zipf(1.4, 1 + i % 3)) for i in range(ROWS)],
            "title": [f"the {rng.integers(0, 9)} of {rng.integers(0, 5)}" for _ in range(ROWS)],
            "year": [None if i % 13 == 0 else int(rng.integers(1900, 2000)) for i in range(ROWS)],
            "day": pa.array([i if i % 7 else None for i in range(ROWS)], pa.date32()),
            "good": [bool(x) for x in rng.integers(0, 2, ROWS)],
            "kinds": [[f"k{x}" for x in rng.integers(0, 12, i % 4)] for i in range(ROWS)],
            "vector": pa.array([[0.0, 1.0]] * ROWS, pa.list_(pa.float32(), 2)),
        }
    )


SCHEMA: dict[str, Any] = {
    "version": 1, "name": "<b>people</b>", "id": "id", "model": {"ranks": [3, 6]},
    "groups": {
        "who": {"column": "who"},
        "a <group>": {"column": "tags", "extractor": {"type": "lookup", "split": "|"}},
        "title": {"column": "title", "extractor": {"type": "text_cnn", "token_dim": 4, "filters": 4}},
    },
    "training": {"epochs": 2, "batch_size": 80},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, its rows, and a page of it."""
    folder = tmp_path_factory.mktemp("explore")
    run = train(SCHEMA, table(), folder / "run", quiet=True)
    pq.write_table(table(), folder / "rows.parquet")
    write_page(Atlas(run, data=str(folder / "rows.parquet")), folder / "page.html")
    return folder


@pytest.fixture(scope="module")
def atlas(folder: Path) -> Atlas:
    return Atlas(feat2vec.load(folder / "run"), data=str(folder / "rows.parquet"))


def unpacked(text: str, kind: str) -> Any:
    return np.frombuffer(base64.b64decode(text), kind)


# --- maps -----------------------------------------------------------------------------------------------------------


def test_pca_is_that_of_a_singular_value_decomposition() -> None:
    vectors = np.random.default_rng(0).normal(size=(300, 7), scale=np.arange(1, 8)).astype(np.float32)
    xy, share = pca(vectors)
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    left, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(axes[np.arange(7), np.abs(axes).argmax(axis=1)])
    np.testing.assert_allclose(xy, (left * sizes * signs)[:, :2], atol=1e-4)
    assert share == pytest.approx((sizes[:2] ** 2).sum() / (sizes**2).sum())


@pytest.mark.parametrize("shape", [(1, 4), (5, 1), (4, 3)])
def test_pca_of_little(shape: tuple[int, int]) -> None:
    vectors = np.ones(shape, np.float32)
    found = draw(vectors, "pca")
    assert found.xy.shape == (shape[0], 2)
    assert np.isfinite(found.xy).all()
    assert (unit(np.zeros((2, 3), np.float32)) == 0).all()


def clusters() -> Any:
    rng = np.random.default_rng(0)
    return np.repeat(rng.normal(size=(3, 8)), 20, axis=0).astype(np.float32) + rng.normal(0, 0.05, (60, 8))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tsne", "umap"])
def test_maps_keep_clusters_and_are_the_same_each_time(kind: Any) -> None:
    vectors = clusters().astype(np.float32)
    xy = draw(vectors, kind, seed=1).xy
    np.testing.assert_array_equal(xy, draw(vectors, kind, seed=1).xy)
    apart = np.linalg.norm(xy[:, None] - xy[None], axis=2) + np.eye(60) * 1e9
    assert (apart.argmin(axis=1) // 20 == np.arange(60) // 20).mean() > 0.95
    with pytest.raises(UserError, match=f"--map {kind}: needs 8 vectors or more, received 7; use pca"):
        draw(vectors[:7], kind)


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, atlas: Atlas) -> None:
    for module in ("sklearn.manifold", "plotly.offline"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=r"scikit-learn is not installed: `pip install 'feat2vec\[explore\]'`"):
        draw(clusters(), "tsne")
    with pytest.raises(UserError, match=r"plotly is not installed: `pip install 'feat2vec\[explore\]'`"):
        Server(atlas)


# --- points and colours ---------------------------------------------------------------------------------------------


def test_points_are_all_values_or_the_most_frequent(atlas: Atlas, folder: Path) -> None:
    run = feat2vec.load(folder / "run")
    assert atlas.names == ["row", "who", "a <group>", "title"]
    for name in atlas.names[1:]:
        vectors, points = run.vectors(name), atlas.points(name)
        assert points.keys == vectors.index_to_key
        assert points.counts.tolist() == vectors.counts.tolist()
        assert points.levels.tolist() == vectors.levels.tolist()
    few = Atlas(run, data=str(folder / "rows.parquet"), limit=5)
    title, counts = few.points("title"), run.vectors("title").counts
    assert sorted(title.counts.tolist()) == sorted(counts.tolist())[-5:]
    assert title.total == len(counts)
    assert title.keys == [run.vectors("title").index_to_key[i] for i in title.places]
    rows = few.points("row")
    assert (len(rows.keys), rows.total) == (5, ROWS)
    assert rows.keys == [f"r{i}" for i in rows.places]
    assert few.map("row", "pca").xy.shape == (5, 2)
    assert [Atlas(run, kind="umap", limit=limit).kinds("who") for limit in (5, 50)] == [["pca"], ["pca", "umap"]]


def test_colours_are_the_mean_or_the_most_frequent_of_the_rows(atlas: Atlas) -> None:
    data = table().to_pylist()
    keys: dict[str, Callable[[dict[str, Any]], list[Any]]] = {
        "row": lambda row: [row["id"]],
        "who": lambda row: [row["who"]],
        "a <group>": lambda row: row["tags"].split("|"),
    }
    for name, keys_of in keys.items():
        points = atlas.points(name).keys
        rows = {key: [row for row in data if key in keys_of(row)] for key in points}
        years = {key: [row["year"] for row in some if row["year"] is not None] for key, some in rows.items()}
        wanted = [np.mean(years[key]) if years[key] else np.nan for key in points]
        np.testing.assert_allclose(unpacked(answer(atlas, name, "year")["values"], "<f4"), wanted, rtol=1e-6)
        for column, items_of in (("good", lambda row: [str(row["good"]).lower()]), ("kinds", lambda row: row["kinds"])):
            overall = Counter(item for row in data for item in set(items_of(row)))
            found = answer(atlas, name, column)
            for key, code in zip(points, unpacked(found["codes"], "<i1").tolist(), strict=True):
                seen = Counter(item for row in rows[key] for item in set(items_of(row)))
                best = max(((n, overall[item]) for item, n in seen.items()), default=None)
                among = {item for item, n in seen.items() if (n, overall[item]) == best}
                if code < 0:
                    assert not seen
                elif found["rest"] and code == len(found["names"]) - 1:
                    assert not among <= set(found["names"])
                else:
                    assert found["names"][code] in among


def answer(atlas: Atlas, name: str, column: str) -> dict[str, Any]:
    return atlas.answer(f"colour/{atlas.names.index(name)}/{atlas.columns.index(column)}")


def test_colours_of_other_columns(atlas: Atlas, folder: Path, tmp_path: Path) -> None:
    assert atlas.columns == ["id", "who", "tags", "title", "year", "day", "good", "kinds"]
    day = answer(atlas, "row", "day")
    ends = np.quantile([i for i in range(ROWS) if i % 7], [0.02, 0.98])
    assert day["labels"] == tuple(
        f"{sign} {np.datetime64(int(end), 'D')}" for sign, end in zip("≤≥", ends, strict=True)
    )
    kinds = answer(atlas, "row", "kinds")
    assert (len(kinds["names"]), kinds["names"][-1]) == (7, "6 others")
    tags = answer(atlas, "row", "tags")
    assert all("|" not in name for name in tags["names"])  # as the schema splits them
    (tmp_path / "rows.csv").write_text("id,who,n,mixed,empty\na,w0,1.5,2,\nb,w1,NA,x,\n")
    text = Atlas(feat2vec.load(folder / "run"), data=str(tmp_path / "rows.csv"), colour="n")
    assert text.facts()["colour"] == 2
    assert unpacked(answer(text, "row", "n")["values"], "<f4")[0] == 1.5
    assert answer(text, "row", "mixed")["names"] == ["2", "x"]
    assert answer(text, "row", "empty")["names"] == []


# --- neighbours -----------------------------------------------------------------------------------------------------


def test_neighbours_are_those_of_similar(atlas: Atlas, folder: Path) -> None:
    run = feat2vec.load(folder / "run")
    for i, name in enumerate(atlas.names):
        vectors = run.row_vectors(table()) if name == "row" else run.vectors(name)
        points = atlas.points(name)
        for place, key in list(enumerate(points.keys))[::7]:
            found = atlas.answer(f"neighbours/{i}/{place}")
            assert (found["keys"], found["counts"]) == ([key], [points.counts[place]])
            assert [atlas.names[to["group"]] for to in found["groups"]] == atlas.targets(name)
            for to in found["groups"]:
                other = atlas.names[to["group"]]
                hits = vectors.search([key], topn=10, to=None if other == name else other)
                assert list(zip(to["keys"], to["scores"], to["counts"], strict=True)) == [
                    (hit.key, hit.score, hit.count) for hit in hits
                ]


def test_the_file_has_the_same_neighbours(atlas: Atlas) -> None:
    for i, name in enumerate(atlas.names):
        places = atlas.points(name).places
        for to in atlas.targets(name):
            j = atlas.names.index(to)
            near = atlas.answer(f"near/{i}/{j}")
            ids = unpacked(near["ids"], "<i4").reshape(-1, near["width"])
            scores = unpacked(near["scores"], "<f4").reshape(-1, near["width"])
            for place in places.tolist():
                alone = next(x for x in atlas.answer(f"neighbours/{i}/{place}")["groups"] if x["group"] == j)
                assert ids[place].tolist() == alone["ids"]
                assert [f"{x:.4f}" for x in scores[place]] == [f"{x:.4f}" for x in alone["scores"]]


def test_neighbours_beyond_the_limit_are_named(folder: Path) -> None:
    few = Atlas(feat2vec.load(folder / "run"), ["who"], limit=4)
    near = few.answer("near/0/0")
    ids = unpacked(near["ids"], "<i4")
    assert set(ids.tolist()) - set(few.points("who").places.tolist()) == set(near["more"]["ids"])
    vectors = few.vectors("who")
    assert near["more"]["keys"] == [vectors.index_to_key[i] for i in near["more"]["ids"]]


# --- the file -------------------------------------------------------------------------------------------------------


class Parts(HTMLParser):
    """The elements of a page, and what its scripts hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.loads: list[str | None] = []
        self.data: dict[str, str] = {}
        self.policy, self.inside = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        given = dict(attrs)
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self.inside = (given.get("data-path") or given.get("id") or "") if tag == "script" else ""
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.data[self.inside] = self.data.get(self.inside, "") + data


def test_the_file_is_whole_and_safe(folder: Path, atlas: Atlas) -> None:
    parts = Parts((folder / "page.html").read_text(encoding="utf-8"))
    assert parts.loads == ["data:,"]
    assert "img" not in parts.tags
    assert "default-src 'none'" in parts.policy
    assert "connect-src 'none'" in parts.policy
    assert "http" not in parts.policy
    assert json.loads(parts.data["facts"])["title"] == "<b>people</b>"
    wanted = {f"{what}/{i}" for i in range(4) for what in ("points",)} | {f"map/{i}/pca" for i in range(4)}
    wanted |= {f"colour/{i}/{c}" for i in range(4) for c in range(8)}
    wanted |= {f"near/{i}/{j}" for i in range(4) for j in ([0, 1, 2, 3] if i == 0 else [1, 2, 3])}
    assert set(parts.data) == wanted | {"facts"}
    assert parts.tags["script"] == len(wanted) + 3  # the facts, the library and the page's own
    who = json.loads(parts.data["points/1"])
    assert who["keys"] == atlas.points("who").keys
    assert {IMAGE, SCRIPT, QUOTES} <= set(who["keys"])


def test_a_file_is_replaced_only_when_asked(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Atlas(feat2vec.load(folder / "run"), ["who"])
    said: list[str] = []
    write_page(small, tmp_path / "page.html", say=said.append)
    assert said == [f"who: {len(small.points('who').keys)} points"]
    assert set(Parts((tmp_path / "page.html").read_text()).data) == {"facts", "points/0", "map/0/pca", "near/0/0"}
    with pytest.raises(UserError, match=r"--html: .*page\.html: exists already; .* --force"):
        write_page(small, tmp_path / "page.html")
    write_page(small, tmp_path / "page.html", force=True)
    with pytest.raises(UserError, match="is a folder"):
        write_page(small, tmp_path, force=True)
    with pytest.raises(UserError, match="there is no folder"):
        write_page(small, tmp_path / "none" / "page.html")
    monkeypatch.setattr(page_module, "LARGEST", 100)
    with pytest.raises(UserError, match=r"would hold [\d,]+ neighbours, 100 is the most; lower --limit \(100,000 "):
        write_page(small, tmp_path / "other.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


# --- the server -----------------------------------------------------------------------------------------------------


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


@pytest.fixture(scope="module")
def server(atlas: Atlas) -> Iterator[Server]:
    with serving(atlas) as server:
        yield server


def get(server: Server, path: str, host: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    is_json = str(response.getheader("Content-Type")).startswith("application/json")
    return response.status, json.loads(body) if is_json else body


def test_the_server_answers_what_the_file_holds(server: Server, folder: Path) -> None:
    held = Parts((folder / "page.html").read_text(encoding="utf-8")).data
    for path in ("points/1", "map/2/pca", "colour/0/4", "near/1/3"):
        assert get(server, f"/api/{path}") == (200, json.loads(held[path]))
    status, page = get(server, "/")
    assert status == 200
    assert "connect-src 'self'" in Parts(page).policy
    assert set(Parts(page).data) == {"facts"}
    key = get(server, "/api/points/1")[1]["keys"][3]
    assert get(server, f"/api/find/1?key={quote(key)}") == (200, {"id": 3})
    status, found = get(server, "/api/find/1?key=w999")
    assert status == 400
    assert "the group 'who' has no 'w999'; did you mean" in found["error"]


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


# --- what is no browser ---------------------------------------------------------------------------------------------


def ask(server: Server, request: bytes) -> bytes:
    """All that is answered to these bytes."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(request)
        answered = b""
        with suppress(ConnectionResetError):  # the rest of a request that is refused is not read
            while part := connection.recv(1 << 16):
                answered += part
    return answered


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
    asked, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> dict[str, Any]:
        asked.set()
        assert go_on.wait(20)
        return {}

    monkeypatch.setattr(atlas, "answer", slow)
    with serving(atlas, connections=1) as server:
        answers: list[tuple[int, Any]] = []
        one = threading.Thread(target=lambda: answers.append(get(server, "/api/points/1")))
        one.start()
        assert asked.wait(20)
        assert ask(server, b"").startswith(b"HTTP/1.0 503 ")
        go_on.set()
        one.join()
        assert answers == [(200, {})]


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--group wo", "--group: there is no group 'wo'; did you mean 'who'?"),
        ("--group row", "--group row: a run keeps no rows; name those to look at by --data"),
        ("--colour year", "--colour: 'year' is a column of --data, which is not given; name the rows, or `count`"),
        ("--data ROWS --colour yaer", "has no column 'yaer'; did you mean 'year'?"),
        ("--data ROWS --colour vector", "--colour: column 'vector' holds fixed_size_list"),
        ("--html page.html --port 80", "--port: is for the server, and --html needs none"),
        ("--html page.html --open", "--open: is for the server, and --html needs none"),
        ("--force", "--force: replaces a file; name it by --html"),
        ("--port 99999", "--port: expected 0 to 65535; received 99999"),
        ("--port PORT", "is in use; choose another, or 0 for any that is free"),
    ],
)
def test_mistakes_are_named(folder: Path, server: Server, options: str, message: str) -> None:
    words = options.replace("ROWS", str(folder / "rows.parquet")).replace("PORT", str(server.server_port)).split()
    done = CliRunner().invoke(command_line, ["explore", str(folder / "run"), *words], standalone_mode=False)
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)
    assert len(str(done.exception).splitlines()) <= 5


def test_a_group_called_row_is_that_group(tmp_path: Path) -> None:
    schema = {"version": 1, "name": "rows", "groups": {"row": {"column": "who"}, "b": {"column": "good"}}}
    run = train({**schema, "training": {"epochs": 1}}, table(), tmp_path / "run", quiet=True)
    pq.write_table(table(), tmp_path / "rows.parquet")
    atlas = Atlas(run, data=str(tmp_path / "rows.parquet"))
    assert atlas.names == ["row", "b"]
    assert (atlas.facts()["rows"], atlas.facts()["colour"]) == (-1, "count")
    assert atlas.points("row").keys == run.vectors("row").index_to_key
    assert len(answer(atlas, "row", "good")["names"]) == 2


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


def test_the_page_script_puts_no_text_in_as_html() -> None:
    script = Path(page_module.__file__).with_name("page.js").read_text(encoding="utf-8")
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|hovertemplate|https?://(?!www\.w3\.org)", script
    )
    assert atlas_module.DIGITS == 4  # what `feat2vec similar` prints
