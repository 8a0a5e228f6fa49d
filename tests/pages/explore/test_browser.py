"""The page in real Chromium, without a screen: search, click, neighbours, keys, themes, and 100,000 points."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import feat2vec
from feat2vec.pages.explore import Atlas, Server, write_page
from feat2vec.run import train
from tests.pages.explore.tables import IMAGE, SCHEMA, SCRIPT, table

CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="no chromium and chromedriver (Debian: chromium, chromium-driver)"
    ),
]
MANY = 100_000
WHERE = """
const map = document.getElementById("map"), box = map.getBoundingClientRect(), {xaxis, yaxis} = map._fullLayout;
const at = (x, y) => [xaxis._offset + xaxis.d2p(x) + box.left, yaxis._offset + yaxis.d2p(y) + box.top];
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    run = train(SCHEMA, table(), folder / "run", quiet=True)
    pq.write_table(table(), folder / "rows.parquet")
    write_page(Atlas(run, data=str(folder / "rows.parquet"), kind="tsne", colour="year"), folder / "page.html")
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[dict[str, str]]:
    atlas = Atlas(feat2vec.load(folder / "run"), data=str(folder / "rows.parquet"), colour="year")
    with Server(atlas) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield {"server": server.url, "file": (folder / "page.html").as_uri()}
        server.shutdown()
        thread.join()


class Page:
    """The page in a browser of its own."""

    def __init__(self, url: str, scheme: str = "light") -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for word in ("--headless=new", "--no-sandbox", "--window-size=1400,900", "--disable-dev-shm-usage"):
            options.add_argument(word)
        options.add_argument("--enable-unsafe-swiftshader")  # WebGL in software
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
        self.wait = WebDriverWait(self.driver, 60, poll_frequency=0.05)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self.driver.get(url)
        self.wait.until(lambda _: self.js("return document.body.dataset.ready") == "yes")
        self.search = self.driver.find_element(By.ID, "search")

    def js(self, code: str, *given: Any) -> Any:
        return self.driver.execute_script(code, *given)

    def text(self, css: str) -> str:
        return str(self.js("return document.querySelector(arguments[0]).textContent", css))

    def options(self) -> list[str]:
        return [element.text for element in self.driver.find_elements(By.CSS_SELECTOR, "#options li .key")]

    def await_value(self, key: str) -> None:
        self.wait.until(lambda _: self.js("return document.getElementById('value')?.textContent") == key)
        self.wait.until(lambda _: ": " in self.text("#status"))

    def await_colour(self, name: str) -> None:
        code = "return document.body.dataset.drawn.endsWith(' ' + document.getElementById('colour').value)"
        self.wait.until(lambda _: self.js(code))
        assert self.text("#legend").startswith("" if name == "none" else name)

    def neighbours(self) -> list[tuple[str, str, str, float]]:
        """Group, key, the similarity that is shown, and the whole of it."""
        neighbours = self.js(
            "return [...document.querySelectorAll('#selected button')].map((b) =>"
            " [b.dataset.group, b.dataset.key, b.querySelector('.score').textContent, Number(b.dataset.score)])"
        )
        return [tuple(neighbour) for neighbour in neighbours]

    def choose(self, select: str, text: str) -> None:
        Select(self.driver.find_element(By.ID, select)).select_by_visible_text(text)

    def click_at(self, x: float, y: float) -> None:
        actions = ActionChains(self.driver, 50)
        pointer: Any = actions.w3c_actions.pointer_action
        pointer.move_to_location(round(x) + 3, round(y))
        pointer.move_to_location(round(x), round(y))
        actions.pause(0.3).click().perform()

    def end(self) -> None:
        """Nothing went wrong, and nothing was asked of anybody else."""
        try:
            read: Callable[[str], list[dict[str, Any]]] = self.driver.get_log
            errors = [entry for entry in read("browser") if entry["level"] == "SEVERE"]
            events = [json.loads(entry["message"])["message"] for entry in read("performance")]
            request_urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
            of_this_page = ("http://127.0.0.1:", "file:", "data:", "blob:")
            elsewhere = [url for url in request_urls if not url.startswith(of_this_page)]
            assert (errors, elsewhere) == ([], [])
        finally:
            self.driver.quit()


@pytest.fixture(params=["server", "file"])
def page(request: pytest.FixtureRequest, address: dict[str, str]) -> Iterator[Page]:
    page = Page(address[request.param])
    yield page
    page.end()


def similar(folder: Path, *words: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", "from feat2vec.cli import main; main()", "similar", str(folder / "run"), *words]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_neighbours_are_those_of_the_command(page: Page, folder: Path) -> None:
    page.search.send_keys("w1")
    assert page.options()[0] == "w1"
    assert page.search.get_attribute("aria-expanded") == "true"
    page.search.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
    assert page.search.get_attribute("aria-activedescendant") == "option-0"
    page.search.send_keys(Keys.ENTER)
    page.await_value("w1")
    assert page.search.get_attribute("aria-expanded") == "false"
    wanted = [hit for to in ("who", "a <group>", "title") for hit in similar(folder, "who", "w1", "--to", to)]
    neighbours = page.neighbours()
    assert [(group, key) for group, key, *_ in neighbours] == [(hit["group"], hit["key"]) for hit in wanted]
    assert [shown for *_, shown, _ in neighbours] == [f"{hit['score']:.4f}" for hit in wanted]
    np.testing.assert_allclose([score for *_, score in neighbours], [hit["score"] for hit in wanted], atol=1e-6)
    vectors = feat2vec.load(folder / "run").vectors("who")
    count, level = (vectors.get_vecattr("w1", name) for name in ("count", "level"))
    assert page.text("#selected .quiet") == f"who, count {count}, level {level} of 2"
    assert Select(page.driver.find_element(By.ID, "group")).first_selected_option.text == "who"


def test_a_row_is_found_by_a_click(page: Page, folder: Path) -> None:
    # the point of the first trace that stands furthest from its nearest neighbour
    code = """
    const [trace] = map.data.slice(-1), places = [...trace.x].map((x, n) => at(x, trace.y[n]));
    const gaps = places.map((a, i) => Math.min(...places.map((b, j) =>
      i === j ? 1e9 : Math.hypot(a[0] - b[0], a[1] - b[1]))));
    return places[gaps.indexOf(Math.max(...gaps))];
    """
    x, y = page.js(WHERE + code)
    page.click_at(x, y)
    page.wait.until(lambda _: page.js("return document.getElementById('value') !== null"))
    key = page.text("#value")
    page.await_value(key)
    assert key.startswith("r")
    hits = similar(folder, "row", key, "--data", str(folder / "rows.parquet"))
    row_neighbours = [neighbour[1:3] for neighbour in page.neighbours() if neighbour[0] == "row"]
    assert row_neighbours == [(hit["key"], f"{hit['score']:.4f}") for hit in hits]
    assert not page.js("return document.getElementById('tip').hidden")
    assert page.text("#tip") == key


def test_it_can_be_used_by_keys_alone(page: Page) -> None:
    page.driver.find_element(By.TAG_NAME, "body").send_keys("/")
    active = page.driver.switch_to.active_element
    assert active.get_attribute("id") == "search"
    active.send_keys("the 1 of")
    assert page.options()
    active.send_keys(Keys.ESCAPE)
    assert page.js("return document.getElementById('options').hidden")
    active.send_keys(Keys.ESCAPE)
    assert active.get_attribute("value") == ""
    active.send_keys("the 1 of", Keys.ENTER)
    page.wait.until(lambda _: page.neighbours())
    first = page.neighbours()[0]
    page.wait.until(lambda _: ": " in page.text("#status"))
    for _ in range(60):
        page.driver.switch_to.active_element.send_keys(Keys.TAB)
        if page.js("return document.activeElement.dataset.key") == first[1]:
            break
    assert page.js("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.await_value(first[1])
    page.js("document.getElementById('map').focus()")
    before = page.js("return document.getElementById('map')._fullLayout.xaxis.range")
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    moved = page.js("return document.getElementById('map')._fullLayout.xaxis.range")
    page.driver.switch_to.active_element.send_keys("+")
    near = page.js("return document.getElementById('map')._fullLayout.xaxis.range")
    assert moved[0] > before[0]
    assert moved[1] - moved[0] == pytest.approx(before[1] - before[0])
    assert near[1] - near[0] == pytest.approx(0.8 * (before[1] - before[0]))


def test_what_looks_like_html_is_text(page: Page) -> None:
    for key in (IMAGE, SCRIPT):
        page.search.clear()
        page.search.send_keys(key)
        assert page.options()[0] == key
        page.search.send_keys(Keys.ENTER)
        page.await_value(key)
        page.choose("colour", "who")
        page.wait.until(lambda _: page.js("return document.body.dataset.drawn").endswith(" 1"))
        assert page.driver.find_elements(By.TAG_NAME, "img") == []
        assert key in page.text("#legend")
        shown = page.text("#map .annotation-text")
        assert shown == key
        page.choose("colour", "year")
    assert page.text("h1") == "<b>people</b>"


def test_maps_colours_and_legend(page: Page) -> None:
    page.choose("group", "who")
    page.choose("kind", "t-SNE")
    page.wait.until(lambda _: "t-SNE" in page.text("#note"))
    for colour in ("level", "count", "none", "kinds", "good", "cluster", "topic of a <group>"):
        page.choose("colour", colour)
        page.await_colour(colour)
        drawn = page.js("return document.getElementById('map').data.reduce((sum, one) => sum + one.x.length, 0)")
        assert drawn == page.js(
            "return Number(document.getElementById('note').textContent.match(/: (\\d+) points/)[1])"
        )
    button = page.driver.find_element(By.CSS_SELECTOR, "#legend button")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    page.wait.until(
        lambda _: page.js("return document.getElementById('map').data.some((one) => one.visible === false)")
    )
    titles = page.js("return [...document.querySelectorAll('.modebar-btn')].map((one) => one.dataset.title)")
    assert "Zoom in" in titles
    assert not any("share" in title.lower() or "cloud" in title.lower() for title in titles)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(address: dict[str, str], scheme: str) -> None:
    page = Page(address["file"], scheme)
    back = "return getComputedStyle(document.body).backgroundColor"
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}
    other_scheme = "dark" if scheme == "light" else "light"
    assert page.js(back) == colours[scheme]
    button = page.driver.find_element(By.ID, "theme")
    assert button.text == other_scheme.title()
    button.click()
    assert page.js(back) == colours[other_scheme]
    first = "return document.getElementById('map').data.find((one) => one.marker.color !== arguments[0]).marker.color"
    quiet = {"light": "#8c959f", "dark": "#7d8590"}[other_scheme]
    page.wait.until(lambda _: page.js(first, quiet) == {"light": "#6fcc57", "dark": "#3d6aa5"}[other_scheme])
    page.end()


# --- many points ----------------------------------------------------------------------------------------------------

FRAMES = """
window.frames_ = []; let last = performance.now();
const step = (now) => { window.frames_.push(now - last); last = now; window.going = requestAnimationFrame(step); };
window.going = requestAnimationFrame(step);
"""


def test_100_000_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    rows = pa.table({"who": [f"name {i}" for i in range(MANY)], "what": [f"x{i}" for i in rng.integers(0, 500, MANY)]})
    pq.write_table(rows.append_column("n", pa.array(rng.normal(size=MANY))), tmp_path / "rows.parquet")
    groups = {"who": {"column": "who"}, "what": {"column": "what"}}
    schema = {
        "version": 1,
        "name": "many",
        "model": {"dim": 32},
        "groups": groups,
        "training": {"validation": 0, "epochs": 1},
    }
    run = train(schema, rows, tmp_path / "run", quiet=True)
    with Server(Atlas(run, ["who", "what"], str(tmp_path / "rows.parquet"), "n")) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        page = Page(server.url)
        assert "100,000 points" in page.text("#note")
        assert page.js("return document.getElementById('map').data.length") == 16  # shades
        key = "const box = document.getElementById('search'); box.value = 'name 777';"
        key += " box.dispatchEvent(new Event('input'));"
        pan = "await Plotly.relayout(document.getElementById('map'), {'xaxis.range': [-0.5, 0.4 + n / 99]});"
        figures = {"key": _timed(page, key), "move": _timed(page, pan)}
        for name, move in (("drag", _drag), ("wheel", _wheel), ("hover", _hover)):
            page.js(FRAMES)
            move(page)
            figures[f"{name} frame"] = page.js("cancelAnimationFrame(window.going); return window.frames_")
        server.shutdown()
        thread.join()
        page.end()
    lines = [
        f"{name}: median {statistics.median(durations):.0f} ms, largest {max(durations):.0f}"
        for name, durations in figures.items()
    ]
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines))
    assert statistics.median(figures["key"]) < 500  # in software on two busy cores; a person's machine is far from it
    assert statistics.median(figures["drag frame"]) < 500


def _timed(page: Page, code: str) -> list[float]:
    """Milliseconds until the next frame after each of ten runs of the code."""
    durations: list[float] = page.driver.execute_async_script(
        f"const done = arguments[0]; (async () => {{ const times = []; for (let n = 0; n < 10; n++) {{"
        f" const start = performance.now(); {code} await new Promise(requestAnimationFrame);"
        " times.push(performance.now() - start); } done(times); })();"
    )
    return durations


def _mouse(page: Page, kind: str, x: float, y: float, **more: Any) -> None:
    page.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})


def _drag(page: Page) -> None:
    _mouse(page, "mousePressed", 500, 400, button="left", clickCount=1)
    for i in range(30):
        _mouse(page, "mouseMoved", 500 + 5 * i, 400 + 2 * i, button="left", buttons=1)
    _mouse(page, "mouseReleased", 650, 460, button="left", clickCount=1)


def _wheel(page: Page) -> None:
    for _ in range(10):
        _mouse(page, "mouseWheel", 500, 400, deltaX=0, deltaY=-60)


def _hover(page: Page) -> None:
    for i in range(30):
        _mouse(page, "mouseMoved", 300 + 10 * i, 400)
