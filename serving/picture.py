"""Makes the picture of the demo page anew: `python serving/picture.py RUN_FOLDER`.

Needs selenium (tests/requirements.txt), chromium and chromedriver.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from keras_tfmr import _command_line

ROOT = Path(__file__).resolve().parents[1]


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = _command_line.parser(__doc__)
    add = parser.add_argument
    add("run", metavar="RUN_FOLDER", type=Path, help="folder that a script of training/ wrote")
    to = ROOT / "docs" / "pictures" / "demo.png"
    add("--output", metavar="FILE", type=Path, default=to, help="picture to write")
    add("--width", type=int, metavar="N", default=1280, help="of the window, in pixels")
    add("--height", type=int, metavar="N", default=1120, help="of the window, in pixels")
    add("--text", metavar="TEXT", default="", help="text to translate (default: an example)")
    word = "word of the translation to point at, from 0; -1 for none"
    add("--word", type=int, metavar="N", default=4, help=word)
    return parser.parse_args(arguments)


def photograph(address, options):
    """Writes the picture of the page at an address."""
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.wait import WebDriverWait

    chromium = webdriver.ChromeOptions()
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars"):
        chromium.add_argument(f"--{argument}")
    size = {"width": options.width, "height": options.height, "pixelRatio": 1.0}
    touch = {"deviceMetrics": size | {"mobile": options.width < 600, "touch": options.width < 600}}
    chromium.add_experimental_option("mobileEmulation", touch)
    driver = webdriver.Chrome(chromium, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.get(f"{address}/#{options.text}")
        wait = WebDriverWait(driver, 120)
        words = wait.until(lambda _: driver.find_elements(By.CSS_SELECTOR, ".words.target button"))
        if options.word >= 0:
            words[options.word].click()
        wait.until(lambda _: "version" in driver.find_element(By.ID, "server").text)
        driver.save_screenshot(str(options.output))
    finally:
        driver.quit()


def main(arguments=None):
    """Starts the demo, takes the picture, ends the demo."""
    options = parse_arguments(arguments)
    command = [sys.executable, str(ROOT / "serving" / "demo.py"), "--port=0"]
    command.append(f"--model_base_path={options.run / 'saved_model'}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        try:
            photograph(re.search(r"http://\S+", demo.stdout.readline())[0], options)
        finally:
            demo.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
