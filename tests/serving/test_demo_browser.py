"""The demo page in headless Chromium, used as a person would."""

import shutil
import threading
import time

import pytest
from stub_translator import HEADS, HYPOTHESES, LAYERS, StubTranslator, serving
from test_demo import demo

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium (pip)")
from selenium.common.exceptions import StaleElementReferenceException  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs Debian's packages chromium and chromium-driver"
)
TEXT = "o gato preto dorme"


@pytest.fixture(scope="module")
def driver():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    driver.set_window_size(1280, 1400)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def address(stubbed):
    with demo(f"--server={stubbed[1]}") as (address, _):
        yield address


class Page:
    """What a person sees and does."""

    def __init__(self, driver, address):
        self.driver = driver
        driver.get("about:blank")
        driver.get(address)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def until(self, condition):
        # An answer may arrive between finding an element and reading it: look again then.
        stale = [StaleElementReferenceException]
        wait = WebDriverWait(self.driver, 15, poll_frequency=0.05, ignored_exceptions=stale)
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


@pytest.fixture
def page(driver, address, stub):
    page = Page(driver, address)
    page.write(TEXT)
    page.shows(TEXT.upper())
    page.until(lambda: page.words("source") == TEXT.split())
    yield page
    errors = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors, errors


def test_translation_and_nbest_appear_as_one_types(page):
    page.one("#source").send_keys(" bem")
    page.shows("O GATO PRETO DORME BEM")
    entries = [entry.text.split("\n") for entry in page.all("#nbest li")]
    assert len(entries) == HYPOTHESES
    assert entries[1] == ["−0.25", "O GATO PRETO DORME BEM 1"]
    assert [mark.text for mark in page.all("#nbest mark")] == ["1", "2"]
    page.write("<b onclick=alert(1)>&amp;</b>")  # text is never markup
    page.shows("<B ONCLICK=ALERT(1)>&AMP;</B>")
    assert not page.all("#translation b, #nbest b")


def test_pointing_at_a_word_shows_what_it_looked_at_in_chosen_heads(page):
    page.point(".words.target button", 1)
    page.until(lambda: {target for _, target in page.lit()} == {1})
    assert page.shares() == ["25 %"] * 4  # the stub's heads look 0 to 4 words ahead, round the end
    assert page.one("#hint").text.startswith("GATO attends to: ")
    page.point("h1")
    page.until(lambda: not page.lit())
    layers = page.all("#layers label")
    assert [label.text for label in layers] == ["all", *map(str, range(1, LAYERS + 1))]
    layers[1].click()
    heads = page.all("#heads label")
    assert len(heads) == HEADS
    heads[2].click()  # head 2 of layer 0 looks two words ahead
    page.point(".words.target button")
    page.until(lambda: page.lit() == {(2, 0)})
    assert page.shares() == [None, None, "100 %", None]
    layers[2].click()  # that of layer 1, three
    heads[0].click()  # and head 0, one: both are shown
    page.point(".words.target button")
    assert page.until(lambda: page.lit() == {(3, 0), (1, 0)})


LINES = [f"Linha {n}.\n" for n in range(90)]
PAGE = "Um gato. Um cão preto.\n\n  - Três aves.\n" + "".join(LINES)


def test_a_page_is_translated_by_paragraphs_and_its_sentences_explained(page, stub):
    last, before = threading.Event(), len(stub.requests)

    def slow_at_the_end(request, context):
        if any(b"Linha 89" in text for text in request.inputs["text"].string_val):
            last.wait(10)

    def asked(signature=None):
        """The texts that were asked for."""
        return [
            [*request.inputs["text"].string_val]
            for request in stub.requests[before:]
            if signature in (None, request.model_spec.signature_name)
        ]

    stub.behave = slow_at_the_end
    page.paste(PAGE)
    first = ["UM GATO.", "UM CÃO PRETO.", "- TRÊS AVES."]
    page.until(lambda: page.sentences()[:3] == first and page.all("#translation .pending"))
    page.until(lambda: page.words("source") == ["Um", "gato."])  # while others are translated
    last.set()
    page.until(lambda: not page.all("#translation .pending"))
    assert page.one("#translation").get_property("textContent") == PAGE.upper()
    page.until(lambda: page.one("#note").text.startswith("93 sentences"))
    documents = asked("translate_document")
    assert len(documents) > 1  # and no paragraph twice, nor a blank one
    lines = [line for line in PAGE.encode().splitlines(keepends=True) if line.strip()]
    assert [text for texts in documents for text in texts] == lines
    page.all("#translation .sentence")[1].click()
    page.until(lambda: page.words("target") == ["UM", "CÃO", "PRETO."])
    assert page.all("#nbest li")[1].text.endswith("UM CÃO PRETO. 1")
    before = len(stub.requests)
    page.one("#source").send_keys(Keys.CONTROL, Keys.END)
    page.one("#source").send_keys("Fim.")  # the sentence at the caret, and nothing else anew
    page.until(lambda: page.words("source") == ["Fim."])
    assert {text for texts in asked() for text in texts} <= {b"Linha 89.", b"Fim."}


def test_examples_address_and_no_text(page):
    example = page.all("#examples button")[1]
    text = example.text
    example.click()
    page.shows(text.upper())
    page.driver.refresh()  # the text stands in the address
    page.shows(text.upper())
    page.write(" ")
    assert page.until(lambda: page.one("#translation").text == "" and not page.all("#nbest li"))


def test_says_so_while_the_server_is_down_and_recovers(driver):
    stub = StubTranslator()
    with serving(stub) as server:
        port = server.rsplit(":", 1)[1]
    with demo(f"--server={server}") as (address, _):
        page = Page(driver, address)
        page.until(lambda: f"{server} does not answer" in page.one("#trouble").text)
        with serving(stub, port=port):
            page.write("voltou")
            page.shows("VOLTOU")
            page.until(lambda: not page.one("#trouble").is_displayed())
            page.until(lambda: "version 7" in page.one("#server").text)
    page.until(lambda: "demo.py is not running" in page.one("#trouble").text)
    assert page.one("#translation").text == "VOLTOU"
    driver.get_log("browser")  # failed requests are reported there, and were meant


def test_an_answer_to_an_older_text_is_dropped(page, stub):
    def slow_for_one(request, context):
        if request.inputs["text"].string_val[0] == b"devagar":
            time.sleep(0.8)

    stub.behave = slow_for_one
    page.write("devagar")
    time.sleep(0.4)
    page.write("depressa")
    page.shows("DEPRESSA")
    time.sleep(0.8)
    assert page.one("#translation").text == "DEPRESSA"
