"""The demo: its JSON API over a stub of a server, its options, and the page as a person uses it."""

import asyncio
import json
import re
import shutil
import subprocess
import sys

import psutil
import pytest
from aiohttp.test_utils import TestClient, TestServer
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait
from stub_translator import HYPOTHESES, StubTranslator, classify, complete, serving

from keras_tfmr.client import ServingClient
from serving import demo
from serving.demo_api import LONGEST, Origin, application

TRANSLATOR = StubTranslator()
CLASSIFIER = StubTranslator({"classify": classify})
COMPLETER = StubTranslator({"complete": complete})
OTHER = StubTranslator({"none": classify})


def answer(stub, path, content=None):
    """(status, JSON) of GET, or of POST of some content, from the API over a stub."""

    async def ask(server):
        origin = Origin(("pt", "en"), examples=["Bom dia."])
        with ServingClient(server, retry=False, timeout=20) as client:
            async with TestClient(TestServer(application(client, origin))) as page:
                if content is None:
                    response = await page.get(f"/api/{path}")
                else:
                    response = await page.post(f"/api/{path}", json=content)
                return response.status, await response.json()

    with serving(stub) as server:
        return asyncio.run(ask(server))


ANSWERS = [
    (TRANSLATOR, "status", None, {"model": "default", "version": 7, "kind": "translate"}),
    (CLASSIFIER, "status", None, {"kind": "classify", "examples": ["Bom dia."]}),
    (COMPLETER, "status", None, {"kind": "complete", "phrasebook": False}),
    (TRANSLATOR, "translate", {"texts": ["um"]},
     {"hypotheses": [{"text": "UM", "score": 0.0}, {"text": "UM 1", "score": -0.25},
                     {"text": "UM 2", "score": -0.5}]}),
    (TRANSLATOR, "explain", {"texts": ["um"]},
     {"source_tokens": ["▁um"], "target_tokens": ["▁UM"], "attention": [[1.0]]}),
    (CLASSIFIER, "classify", {"texts": ["um dia"]},
     {"label": "long", "probabilities": {"long": 0.6, "short": 0.4}}),
    (COMPLETER, "complete", {"texts": ["era"], "length": 2, "temperature": 0},
     {"text": " 0 0", "tokens": 2, "finished": False}),
]  # fmt: skip


@pytest.mark.parametrize(("stub", "path", "content", "expected"), ANSWERS)
def test_answers(stub, path, content, expected):
    status, found = answer(stub, path, content)
    found = json.loads(json.dumps(found), parse_float=lambda number: round(float(number), 6))
    assert status == 200 and found | expected == found


def test_documents_are_cut_into_sentences_unless_terms_are_given():
    texts = ["Um gato. Dois.\n", " três gato"]
    (first, second) = answer(TRANSLATOR, "document", {"texts": texts})[1]["documents"]
    assert [pair[1] for pair in first["pieces"]] == ["UM GATO.", " ", "DOIS.", "\n"]
    assert [pair[0] for pair in second["pieces"]] == [" ", "três gato"]
    content = {"texts": texts, "terms": {"gato": "kitty"}}
    (_, second) = answer(TRANSLATOR, "document", content)[1]["documents"]
    assert second == {"pieces": [[" três gato", " TRÊS kitty"]], "truncated": False}


WRONG = [
    (TRANSLATOR, "translate", {"texts": "x" * (LONGEST + 1)}, 400, "at most 20000"),
    (TRANSLATOR, "translate", {"texts": [1]}, 400, "Expected texts"),
    (TRANSLATOR, "document", {"texts": [""] * 150_000}, 400, "at most 100 texts. Received: 150000"),
    (TRANSLATOR, "document", {"texts": ["a"], "terms": {"a": 1}}, 400, "term"),
    (TRANSLATOR, "classify", {"texts": ["a"]}, 502, "classify"),
    (OTHER, "status", None, 400, "neither a translator"),
]


@pytest.mark.parametrize(("stub", "path", "content", "status", "text"), WRONG)
def test_what_is_wrong_is_said(stub, path, content, status, text):
    found, said = answer(stub, path, content)
    assert found == status and text in said["error"]
    assert said.get("code") == ("FAILED_PRECONDITION" if status == 502 else None)


def test_the_newest_version_names_languages_and_examples(tmp_path):
    for options, config, origin in (
        ({"languages": ["pt", "en"]}, {"phrasebook": True}, (("pt", "en"), True)),
        ({"languages": ["de", "fr"]}, {"phrasebook": False}, (("de", "fr"), False)),
        ({"max_length": 128}, {}, (("", ""), False)),  # of a classifier that was no run
    ):
        newest = {"text_model": {"config": options}, "run": {"config": config}}
        newest["examples"] = ["Bom dia."]
        for version, content in (("9", {}), ("10", newest)):
            file = tmp_path / version / "assets.extra" / "keras_tfmr.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content))
        assert demo.origin_of(tmp_path) == (*origin, ["Bom dia."])
    assert demo.origin_of(tmp_path / "9") == Origin()


def test_it_starts_a_server_and_ends_it(tmp_path, monkeypatch):
    script = tmp_path / "server.py"
    monkeypatch.setattr(demo, "SERVER", script)
    script.write_text(
        "import os, time; print(f'gRPC on host:{os.getpid()}, REST', flush=True); time.sleep(60)"
    )
    with demo.own_server(tmp_path, "default") as (_, address):
        number = int(address.removeprefix("host:"))
    assert not psutil.pid_exists(number)
    script.write_text("")
    with pytest.raises(OSError, match="did not start"), demo.own_server(tmp_path, "default"):
        pass


@pytest.fixture
def driver():
    paths = shutil.which("chromium"), shutil.which("chromedriver")
    if not all(paths):
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = paths[0]
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options, webdriver.ChromeService(paths[1])) as driver:
        yield driver


def test_a_person_types_and_points(driver, address):
    """The translation and the others appear, as text; a word shows what it attends to."""

    def one(selector):
        return driver.find_element(By.CSS_SELECTOR, selector)

    def words(selector):
        return [element.text for element in driver.find_elements(By.CSS_SELECTOR, selector)]

    def until(condition):
        stale = [StaleElementReferenceException]
        WebDriverWait(driver, 60, 0.05, ignored_exceptions=stale).until(lambda _: condition())

    words_of_demo = [sys.executable, demo.__file__, "--port=0", f"--server={address}"]
    words_of_demo += ["--languages", "pt", "en"]
    with subprocess.Popen(words_of_demo, stdout=subprocess.PIPE, text=True) as process:
        try:
            driver.get(re.search(r"http://\S+", process.stdout.readline())[0])
            one("#source").send_keys("o <b>gato")
            until(lambda: one("#translation").text == "O <B>GATO")
            until(lambda: len(words("#nbest li")) == HYPOTHESES)
            assert one("#source-language").text.casefold() == "portuguese"
            until(lambda: words(".words.source button") == ["o", "<b>gato"])
            webdriver.ActionChains(driver).move_to_element(one(".words.target button")).perform()
            until(lambda: driver.find_elements(By.CSS_SELECTOR, "path.lit"))
            assert one("#hint").text.startswith("O · Attends to: ")
            behind = one(".backdrop .word").rect["x"]  # the colour of the first word
            padding = float(one("#source").value_of_css_property("padding-left")[:-2])
            assert one("#source").rect["x"] + padding == pytest.approx(behind, abs=1)
            errors = [line for line in driver.get_log("browser") if line["level"] == "SEVERE"]
            assert not errors, errors
        finally:
            process.terminate()
    assert process.returncode == 0
