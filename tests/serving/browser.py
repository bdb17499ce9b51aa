"""The demo page in a browser: what a person sees and does."""

import contextlib
import shutil

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@contextlib.contextmanager
def chromium():
    """Its driver; a skipped test where there is none."""
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    driver.set_window_size(1280, 1400)
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """What a person sees and does."""

    def __init__(self, driver, address):
        self.driver = driver
        driver.get("about:blank")
        driver.get_log("browser")  # of an earlier page, whose server has ended
        driver.get(address)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def until(self, condition):
        # An answer may arrive between finding an element and reading it: look again then.
        stale = [StaleElementReferenceException, IndexError]
        wait = WebDriverWait(self.driver, 60, poll_frequency=0.05, ignored_exceptions=stale)
        return wait.until(lambda _: condition())

    def write(self, text):
        box = self.one("#source")
        box.clear()
        box.send_keys(text)

    def paste(self, text):
        script = "const [box, text] = arguments; box.value = text; box.setSelectionRange(0, 0);"
        for event in ("beforeinput", "input"):
            made = f"new InputEvent('{event}', {{inputType: 'insertFromPaste'}})"
            script += f"box.dispatchEvent({made});"
        self.driver.execute_script(script, self.one("#source"), text)

    def sentences(self):
        spans = self.all("#translation .sentence")
        return [span.get_property("textContent").strip() for span in spans]

    def shows(self, text):
        self.until(lambda: self.one("#translation").text == text)

    def words(self, side):
        return [button.text for button in self.all(f".words.{side} button")]

    def point(self, selector, number=0):
        element = self.all(selector)[number]
        webdriver.ActionChains(self.driver).move_to_element(element).perform()

    def lit(self):
        """(source, target) of the lines that are lit."""
        ends = ("data-source", "data-target")
        return {
            tuple(int(path.get_dom_attribute(end)) for end in ends) for path in self.all("path.lit")
        }

    def shares(self):
        buttons = self.all(".words.source button")
        return [button.get_dom_attribute("data-share") for button in buttons]
