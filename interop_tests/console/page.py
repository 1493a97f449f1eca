"""The page in a real headless Chromium: the visible text, the positions of elements, and the picture."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from interop_tests.harness.kafka_jars import MissingTool, require_program
from interop_tests.harness.waiting import TIMEOUT_S, wait_until

ARGUMENTS = (
    "--headless=new",
    # One process shows all pages, one after the other.
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
    # Chromium's sandbox does not work as root, and `make test` in a container runs as root.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
DESKTOP, PHONE = (1280, 900), (390, 844)


def start_chromium() -> webdriver.Chrome:
    """Chromium and its driver from PATH. MissingTool names the missing one and how to install it."""
    try:
        chromium, driver = require_program("chromium"), require_program("chromedriver")
    except MissingTool as error:
        raise MissingTool(f"{error}: apt-get install chromium chromium-driver (make browser)") from error
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


class Page:
    """A tab with one console."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        self.address = address

    def size(self, size: tuple[int, int] = DESKTOP, dark: bool = False) -> None:
        """The window's width and height in CSS pixels, and the preferred color scheme."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, view: str = "#/", size: tuple[int, int] = DESKTOP, dark: bool = False) -> Page:
        """Reload the page."""
        self.size(size, dark)
        self.driver.get("about:blank")
        self.driver.get(f"{self.address}/{view}")
        return self

    def text(self, selector: str) -> str:
        """The visible text of the element. Empty if it is not shown."""
        while True:
            found = self.driver.find_elements(By.CSS_SELECTOR, selector)
            # If the element is redrawn while it is read, read it again.
            with contextlib.suppress(StaleElementReferenceException):
                return "\n".join(element.text for element in found)

    def wait_for(self, selector: str, *words: str, timeout_s: float = TIMEOUT_S) -> str:
        """Wait until all words are visible there."""

        def probe() -> str:
            said = self.text(selector)
            return said if all(word in said for word in words) else ""

        return wait_until(probe, f"{selector} says {words}; it says {self.text(selector)!r}", timeout_s)

    def rows(self, selector: str) -> list[list[str]]:
        """The texts of the cells in a table's body, row by row."""
        script = """return [...document.querySelectorAll(arguments[0] + ' tbody tr')]
            .map(row => [...row.cells].map(cell => cell.innerText.trim()))"""
        found: list[list[str]] = self.driver.execute_script(script, selector)
        return found

    def script(self, text: str, *arguments: Any) -> Any:
        """The value that a JavaScript function body returns."""
        return self.driver.execute_script(text, *arguments)

    def element(self, selector: str) -> WebElement:
        """The first element of that kind."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, selector: str) -> None:
        """Click the element, which must be visible and not covered. If it is being redrawn, try again."""

        def probe() -> bool:
            with contextlib.suppress(StaleElementReferenceException, NoSuchElementException):
                self.element(selector).click()
                return True
            return False

        wait_until(probe, f"{selector} can be clicked")

    def choose(self, selector: str, text: str) -> None:
        """Choose an option by its text, when the option exists. If it is being redrawn, try again."""

        def probe() -> bool:
            with contextlib.suppress(StaleElementReferenceException, NoSuchElementException):
                choices = Select(self.element(selector))
                if text in [option.text for option in choices.options]:
                    choices.select_by_visible_text(text)
                    return True
            return False

        wait_until(probe, f"{selector} offers {text}")

    def write(self, selector: str, text: str) -> None:
        """Type into a field. If it is being redrawn, try again."""

        def probe() -> bool:
            with contextlib.suppress(StaleElementReferenceException, NoSuchElementException):
                field = self.element(selector)
                field.clear()
                field.send_keys(text)
                return True
            return False

        wait_until(probe, f"{selector} can be written to")

    def boxes(self, selector: str) -> list[dict[str, float]]:
        """x, y, width and height of every such element that is visible, in the document's CSS pixels."""
        script = """return [...document.querySelectorAll(arguments[0])].map(each => {
            const box = each.getBoundingClientRect();
            return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height};
        }).filter(box => box.width > 0 && box.height > 0)"""
        found: list[dict[str, float]] = self.driver.execute_script(script, selector)
        return found

    def picture(self, file: Path) -> Image.Image:
        """A picture of the whole page. It is also kept in a file."""
        height = self.script("return document.documentElement.scrollHeight")
        width = self.script("return innerWidth")
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        # Charts are redrawn when the size changes.
        self.driver.execute_async_script(
            "requestAnimationFrame(() => requestAnimationFrame(arguments[arguments.length - 1]))"
        )
        png = self.driver.get_screenshot_as_png()
        file.write_bytes(png)
        return Image.open(io.BytesIO(png)).convert("RGB")

    def complaints(self) -> list[str]:
        """Chromium's messages about this console since the last call: errors, and requests that the content policy
        blocked."""
        said = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        return [each for each in said if self.address in each]


def part(picture: Image.Image, box: dict[str, float]) -> Image.Image:
    """The part of a picture that shows an element."""
    left, top = round(box["x"]), round(box["y"])
    return picture.crop((left, top, left + round(box["width"]), top + round(box["height"])))


def near(picture: Image.Image, colour: tuple[int, int, int], tolerance: int = 24) -> list[int]:
    """For each column of pixels, from the left, the number of pixels with that color, within a tolerance in each
    channel."""
    apart = np.abs(np.asarray(picture, dtype=int) - np.asarray(colour)).max(axis=2)
    counts: list[int] = (apart <= tolerance).sum(axis=0).tolist()
    return counts
