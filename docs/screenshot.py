"""Takes the picture of the demo page for the README, with a real model behind it.

    python docs/screenshot.py RUN_FOLDER/saved_model [--word=she]

Needs selenium, and Debian's packages chromium and chromium-driver.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import time

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "demo.png"


def browser():
    """Headless Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in (
        "headless=new",
        "no-sandbox",
        "hide-scrollbars",
        "force-device-scale-factor=1.5",
    ):
        options.add_argument(f"--{argument}")
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_window_size(1180, 1110)
    return driver


def take(driver, address, word):
    """Waits until the page has its first translation, points at a word, takes the picture."""
    driver.get(address)
    selector = ".words.target button"
    wait = WebDriverWait(driver, 300)
    wait.until(lambda _: driver.find_elements(By.CSS_SELECTOR, selector))
    wait.until(lambda _: not driver.find_element(By.ID, "trouble").is_displayed())
    buttons = driver.find_elements(By.CSS_SELECTOR, selector)
    chosen = next((button for button in buttons if button.text == word), buttons[0])
    webdriver.ActionChains(driver).move_to_element(chosen).perform()
    wait.until(lambda _: driver.find_elements(By.CSS_SELECTOR, "path.lit"))
    time.sleep(0.5)  # the colours fade in
    driver.find_element(By.TAG_NAME, "body").screenshot(str(PICTURE))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model_base_path", type=pathlib.Path)
    parser.add_argument("--word", default="she", help="word of the translation to point at")
    options = parser.parse_args()
    command = [sys.executable, str(ROOT / "serving" / "demo.py"), "--port=0"]
    command.append(f"--model_base_path={options.model_base_path.resolve()}")
    driver = browser()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        try:
            address = demo.stdout.readline().removeprefix("Open ").strip()
            take(driver, address, options.word)
        finally:
            driver.quit()
            demo.terminate()
    print(PICTURE)


if __name__ == "__main__":
    main()
