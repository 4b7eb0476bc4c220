"""A real browser before a real console: what people see, on a wide and a narrow screen, and that nothing else is asked.

Chromium and its driver are Debian's (`apt-get install chromium chromium-driver`); without them this is skipped.
Screenshots are kept under build/console.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from quorate import NewMessage
from tests.cluster import wait_for
from tests.conftest import StartNode
from tests.console.conftest import Console, StartConsole
from tests.node import Node

SHOTS = Path(__file__).parents[2] / "build" / "console"
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
WIDE, NARROW = 1280, 360
OWN_SCHEMES = ("chrome", "data", "blob", "about", "chrome-untrusted")


class Browser:
    """One window. `check` fails where the console complained, or anybody but the console was asked."""

    def __init__(self, console: Console) -> None:
        self.console = console
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in FLAGS:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
        self.asked: list[str] = []

    def open(self, path: str, width: int = WIDE) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == NARROW}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(self.console.origin + path)

    @property
    def text(self) -> str:
        return "\n".join(one.text for one in self.driver.find_elements(By.TAG_NAME, "main"))

    def sees(self, text: str, seconds: float = 10) -> None:
        """It is there, or comes."""
        try:
            wait_for(lambda: text in self.text, seconds)
        except AssertionError:
            raise AssertionError(f"{text!r} does not come: {self.text}") from None

    def click(self, text: str) -> None:
        """A button or link of that name, when it is there."""
        path = f"//*[self::a or self::button][normalize-space()={json.dumps(text)}]"
        try:
            wait_for(lambda: bool(self.driver.find_elements(By.XPATH, path)), 10)
        except AssertionError:
            raise AssertionError(f"there is no {text!r} on the page: {self.text}") from None
        self.driver.find_element(By.XPATH, path).click()

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(SHOTS / f"{name}.png"))

    def check(self, may: Callable[[str], bool] = lambda message: False) -> None:
        said = [entry["message"] for entry in self.driver.get_log("browser") if not may(entry["message"])]  # type: ignore[no-untyped-call]
        assert said == []
        for entry in self.driver.get_log("performance"):  # type: ignore[no-untyped-call]
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urlsplit(message["params"]["request"]["url"])
                if url.scheme not in OWN_SCHEMES:
                    assert f"{url.scheme}://{url.netloc}" == self.console.origin, url
                    self.asked.append(url.path)


@pytest.fixture
def open_browser() -> Iterator[Callable[[Console], Browser]]:
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("chromium and chromedriver are not installed")
    opened: list[Browser] = []

    def begin(console: Console) -> Browser:
        opened.append(Browser(console))
        return opened[-1]

    yield begin
    for browser in opened:
        browser.driver.quit()


@pytest.fixture
def node(start_node: StartNode) -> Node:
    return start_node()


def fill(node: Node, queues: int) -> int:
    """So many queues, the first with dead letters; returns one of those."""
    with node.client() as client:
        for n in range(queues):
            client.produce(f"queue.{n:04}", {"n": n}, key=f"key-{n}")
        client.configure("queue.0000", dead_letter="queue.0000.dead")
        message = client.consume("queue.0000")
        assert message is not None
        message.bury("no such user")
        return message.msg_id


@pytest.mark.slow
@pytest.mark.parametrize("queues", [0, 1, 1000])
def test_every_page_fits_wide_and_narrow_screens_and_complains_of_nothing(
    node: Node, start_console: StartConsole, open_browser: Callable[[Console], Browser], queues: int
) -> None:
    msg_id = fill(node, queues) if queues else 0
    browser = open_browser(start_console(node))
    pages = {"overview": "/", "queues": "/queues", "due": "/due", "dead": "/dead"}
    if queues:
        name = quote("queue.0000.dead")
        pages |= {"queue": f"/queue?name={name}", "message": f"/message?id={msg_id}"}
        pages |= {"act": f"/act?act=move&queue={name}", "settings": "/act?act=configure&queue=queue.0000"}
    for title, path in pages.items():
        for width in (WIDE, NARROW):
            browser.open(path, width)
            time.sleep(0.4 if title != "overview" else 2.5)
            wide = browser.driver.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, f"{title} is {wide} wide on a screen of {width}"
            browser.shot(f"{title}-{queues}-{width}")
    browser.check()
    assert "/static/uPlot.iife.min.js" in browser.asked
    assert "/samples" in browser.asked


@pytest.mark.slow
def test_a_dead_letter_is_found_opened_and_moved_back_while_another_browser_looks(
    node: Node, start_console: StartConsole, open_browser: Callable[[Console], Browser]
) -> None:
    msg_id = fill(node, 2)
    console = start_console(node)
    browser, other = open_browser(console), open_browser(console)
    other.open("/")
    other.sees("Dead letters\n1")
    browser.open("/")
    browser.click("Dead letters")
    browser.sees("no such user")
    browser.click("queue.0000.dead")
    browser.click(str(msg_id))
    browser.sees("no such user")
    browser.click("Move back to queue.0000")
    browser.sees("1 message of this queue go")
    browser.click("Move")
    browser.sees("1 moved to where they came from")
    with node.client() as client:
        assert client.show(msg_id).queue == "queue.0000"
    other.sees("Dead letters\n0")
    browser.check()
    other.check()


@pytest.mark.slow
def test_a_page_says_that_the_node_is_away_and_goes_on_by_itself(
    node: Node, start_console: StartConsole, open_browser: Callable[[Console], Browser]
) -> None:
    fill(node, 1)
    browser = open_browser(start_console(node))
    browser.open("/")

    def away() -> str:
        return str(browser.driver.find_element(By.ID, "away").text)

    browser.sees("Ready\n1")
    node.kill()
    wait_for(lambda: "can't be reached" in away(), 30)
    node.start()
    with node.client() as client:
        client.produce("queue.0000", 2)
    wait_for(lambda: not away() and "Ready\n2" in browser.text, 30)
    browser.check(may=lambda message: "503" in message)


@pytest.mark.slow
def test_pages_work_without_scripts(
    node: Node, start_console: StartConsole, open_browser: Callable[[Console], Browser]
) -> None:
    msg_id = fill(node, 1)
    browser = open_browser(start_console(node))
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.open("/queues?pattern=dead")
    browser.click("queue.0000.dead")
    browser.sees(str(msg_id))
    browser.driver.find_element(By.CSS_SELECTOR, f"input[value='{msg_id}']").click()
    browser.click("Move")
    browser.sees("1 message of this queue go back")
    browser.click("Move")
    browser.sees("1 moved to where they came from")
    browser.check()


def test_names_of_keyboards_and_readers_are_there(node: Node, start_console: StartConsole) -> None:
    """What those need who hear a page, or go through it by keys: a language, a title, labels, a way past the header."""
    fill(node, 1)
    console = start_console(node)
    for path in ("/", "/queues", "/dead", "/queue?name=queue.0000.dead", "/act?act=configure&queue=queue.0000"):
        text = console.ask("GET", path).text
        assert '<html lang="en">' in text
        assert 'href="#main"' in text
        assert text.count("<h1>") == 1
        inputs: list[Any] = [one for one in text.split("<input")[1:] if 'type="hidden"' not in one.partition(">")[0]]
        for one in inputs:
            tag = one.partition(">")[0]
            before = text[: text.index("<input" + one)]
            assert "aria-label" in tag or before.rpartition("<label")[2].count("</label>") == 0, tag


WRITTEN = """
window.written = [];
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.written.push(text);
  return fill.call(this, text, ...rest);
};
"""


@pytest.mark.slow
def test_charts_tell_times_as_tables_do_wherever_the_browser_is(
    node: Node, start_console: StartConsole, open_browser: Callable[[Console], Browser]
) -> None:
    """Found in a first trial: charts were in local time, with 12 hours and American dates."""
    browser = open_browser(start_console(node))
    browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "America/New_York"})
    browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WRITTEN})
    browser.open("/")
    assert browser.driver.execute_script("return new Date(0).getHours()") == 19

    def labels() -> list[str]:
        found = browser.driver.execute_script("return window.written")
        return [text for text in found if ":" in text]

    wait_for(lambda: bool(labels()), 20)
    near = [time.strftime("%H:%M", time.gmtime(time.time() - back)) for back in (0, 60, 120)]
    assert all(re.fullmatch(r"\d\d:\d\d(:\d\d)?", text) for text in labels())
    assert all(text[:5] in near for text in labels())
    assert time.strftime("%Y-%m-%d", time.gmtime()) in browser.driver.execute_script("return window.written")
    time.sleep(4)
    browser.shot("charts-new-york")
    browser.check()


@pytest.mark.slow(15)
def test_the_readmes_picture_shows_queues_at_work(
    node: Node, start_console: StartConsole, open_browser: Callable[[Console], Browser]
) -> None:
    """It is build/console/readme.png, copied to docs/console.png when the page has changed."""
    picture = Path(__file__).parents[2] / "docs" / "console.png"
    assert 10_000 < picture.stat().st_size < 200_000
    assert "docs/console.png" in (picture.parents[1] / "README.md").read_text()
    browser = open_browser(start_console(node))
    browser.open("/")
    with node.client() as client:
        client.configure("mail", dead_letter="mail.dead")
        for turn in range(10):
            client.produce_many("mail", [{"to": n} for n in range(60 + 9 * turn)])
            client.produce_many("thumbnails", [{"picture": n} for n in range(20)])
            client.produce_many("invoices", [NewMessage({"order": n}, delay=600 + 60 * n) for n in range(12)])
            for message in client.consume_many("mail", 50):
                if message.data["to"] % 25 == 24:
                    message.bury("no such user")
                else:
                    message.confirm()
            client.consume_many("thumbnails", 5)
            time.sleep(1.0)
    browser.sees("mail.dead")
    browser.shot("readme")
    browser.check()
