"""The demo page with a stub behind it: its own server as a process, and as a person uses it."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import grpc
import httpx
import psutil
import pytest
from aiohttp import web
from browser import Page
from helpers import ends
from selenium.webdriver.common.keys import Keys
from stub_translator import (
    HEADS,
    HYPOTHESES,
    LAYERS,
    SIGNATURES,
    StubTranslator,
    classify,
    complete,
    serving,
)

from keras_tfmr.client import ServingClient
from serving.demo import origin_of
from serving.demo_api import Origin, application

ROOT = Path(__file__).resolve().parents[2]
TEXT = "o gato preto dorme"


@contextlib.contextmanager
def demo(*arguments, status=0):
    """A running demo; yields (its address, the process)."""
    command = [sys.executable, str(ROOT / "serving" / "demo.py"), "--port=0", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            yield process.stdout.readline().removeprefix("Open ").strip(), process
        finally:
            process.terminate()
            assert process.wait(timeout=20) == status
            assert "Traceback" not in process.stderr.read()


def ask(page, path, *texts, **headers):
    """(status, JSON) of GET, or of POST where there are texts."""
    body = {"json": {"texts": texts}} if texts else {}
    options = {"headers": headers, "timeout": 20, "verify": False, "trust_env": False}
    answer = httpx.request("POST" if texts else "GET", f"{page}/api/{path}", **body, **options)
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'")
    return answer.status_code, answer.json()


@pytest.fixture(scope="module")
def address(stubbed):
    flags = f"--server={stubbed[1]}", "--host=localhost", "--languages", "pt", "en"
    with demo(*flags) as (address, _):
        assert address.startswith("http://localhost:")
        yield address


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"arguments": {"data": [], "source": None}}, (("pt", "en"), True)),
        ({"arguments": {"data": ["a.tsv"]}}, (("", ""), False)),
        ({"arguments": {"data": ["a.tsv"], "languages": ["de", "fr"]}}, (("de", "fr"), False)),
        ({"arguments": {"data": ["hf:x:pt-en"]}}, (("pt", "en"), False)),
        (
            {"arguments": {"num_beams": 4}, "published": {"name": "Helsinki-NLP/opus-mt-pt-en"}},
            (("pt", "en"), False),
        ),
        ([], (("", ""), False)),
    ],
)
def test_the_newest_version_names_languages_and_examples(tmp_path, config, expected):
    newest = {"run": {"config": config}, "examples": ["Bom dia."]}
    for version, content in (("9", {}), ("10", newest)):
        file = tmp_path / version / "assets.extra" / "keras_tfmr.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(content))
    assert origin_of(tmp_path) == (*expected, ["Bom dia."] if config else ())


def test_wrong_requests_are_refused(address):
    for path in ("a" * 5000, "%00", "..%2fdemo.py", "icon.svg/x"):
        assert httpx.get(f"{address}/{path}", trust_env=False).status_code == 404
    answer = httpx.get(f"{address}/icon.svg", trust_env=False)
    assert answer.content == (ROOT / "serving" / "demo" / "icon.svg").read_bytes()
    for path in ("status", "translate"):  # as of a site whose name leads to this address
        for host, status in (("evil.test:8080", 403), ("127.0.0.1.evil.test", 403), ("", 403)):
            found = ask(address, path, *(["um"] if path == "translate" else []), Host=host)
            assert found[0] == status, (host, found)
    for host in ("localhost", "LOCALHOST.:9", "[::1]:8", "10.1.2.3"):
        assert ask(address, "status", Host=host)[0] == 200
    for kind, status in ("text/plain", 415), ("application/json; charset=nope", 200):
        assert ask(address, "translate", "um", **{"Content-Type": kind})[0] == status
    status, answer = ask(address, "document", "x", "x" * 20_000)
    assert status == 400 and "20000" in answer["error"]
    assert ask(address, "translate", ["um"])[0] == 400
    assert ask(address, "explain", "um", "dois")[0] == 400
    for content, more in (
        (b"[" * 100_000, {}),
        (b'{"texts": "\xff"}', {}),
        (b"no gzip", {"Content-Encoding": "gzip"}),
    ):
        options = {"headers": {"Content-Type": "application/json"} | more, "trust_env": False}
        answer = httpx.post(f"{address}/api/translate", content=content, **options)
        assert answer.status_code == 400 and "error" in answer.json()
    content = {"texts": ["um"], "terms": {"um": 1}}
    answer = httpx.post(f"{address}/api/document", json=content, trust_env=False)
    assert answer.status_code == 400 and "terms" in answer.json()["error"]
    assert ask(address, "classify", "um")[1]["code"] == "FAILED_PRECONDITION"
    assert ask(address, "document", "x" * 400_000)[0] == 413


def test_a_model_that_is_swapped_is_said_to_be_loading(address, stub):
    def gone(request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "Servable not found for request: Latest(default)")

    stub.behave, stub.versions = gone, [(8, "LOADING"), (7, "END")]
    assert ask(address, "translate", "um")[1]["code"] == "LOADING"
    answer = ask(address, "status")[1]
    assert (answer["version"], answer["loading"]) == (None, 8)
    stub.versions = [(7, "END")]
    assert ask(address, "translate", "um")[1]["code"] == "NOT_FOUND"


def test_its_server_ends_with_it_even_if_it_is_killed(toys):
    with demo(f"--model_base_path={toys.parent}", status=-signal.SIGKILL) as (_, process):
        (own,) = psutil.Process(process.pid).children()
        process.kill()
        assert ends(own.pid, 5)


def test_with_a_server_of_its_own_that_ends(toys, driver):
    """It loads, answers at once, and dies: the page is told, and demo.py ends with an error."""

    def wait(*words, found, meanwhile, seconds):
        end = time.monotonic() + seconds
        while found not in (answer := str(ask(address, *words)[1])):
            assert meanwhile in answer and time.monotonic() < end, answer
            time.sleep(0.1)

    with demo(f"--model_base_path={toys.parent}", status=1) as (address, process):
        wait("document", "bom dia", found="BOM DIA", meanwhile="LOADING", seconds=240)
        page = Page(driver, address)  # the first example of the model is there, others are offered
        page.shows("BOM DIA")
        named = [page.one(f"#{side}-language").text for side in ("source", "target")]
        assert [name.casefold() for name in named] == ["source", "translation"]  # it knows neither
        page.all("#examples button")[1].click()
        page.shows("BOA NOITE")
        psutil.Process(process.pid).children()[0].kill()
        wait("status", found="ENDED", meanwhile="", seconds=4)
        assert process.wait(40) == 1 and "server has ended" in process.stderr.read()
    driver.get_log("browser")  # that model explains nothing, and then there is no server


@pytest.fixture
def page(driver, address, stub):
    page = Page(driver, address)
    page.write(TEXT)
    page.shows(TEXT.upper())
    page.until(lambda: page.words("source") == TEXT.split())
    yield page
    errors = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors, errors


def test_translations_appear_as_one_types_with_given_terms(page):
    assert page.one("#source-language").text.casefold() == "portuguese"
    page.one("#source").send_keys(" bem")
    page.shows("O GATO PRETO DORME BEM")
    second = ["−0.25", "O GATO PRETO DORME BEM 1"]  # the list appears after the translation
    page.until(lambda: page.all("#nbest li")[1].text.split("\n") == second)
    assert len(page.all("#nbest li")) == HYPOTHESES
    assert [mark.text for mark in page.all("#nbest mark")] == ["1", "2"]
    page.write("<b onclick=alert(1)>&amp;</b>")  # text is never markup
    page.shows("<B ONCLICK=ALERT(1)>&AMP;</B>")
    assert not page.all("#translation b, #nbest b")
    page.write(TEXT)
    page.one("#glossary summary").click()
    page.one("#terms").send_keys("gato = kitty")
    page.shows("O kitty PRETO DORME")
    assert not page.all("#nbest li")  # what is explained is translated without terms
    page.one("#terms").clear()
    page.one("#terms").send_keys(" ")
    page.shows(TEXT.upper())


def test_pointing_at_a_word_shows_what_it_looked_at_in_chosen_heads(page):
    page.point(".words.target button", 1)
    page.until(lambda: {target for _, target in page.lit()} == {1})
    assert page.shares() == ["25 %"] * 4  # the stub's heads look 0 to 4 words ahead, round the end
    assert page.one("#hint").text.startswith("GATO · Attends to: ")
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


LINES = [f"Linha {n}.\n" for n in range(190)]
PAGE = "Um gato. Um cão preto.\n\n  - Três aves.\n" + "".join(LINES)


def test_a_page_is_translated_by_paragraphs_and_its_sentences_explained(page, stub):
    last, before = threading.Event(), len(stub.requests)

    def slow_at_the_end(request, context):
        if any(b"Linha 189" in text for text in request.inputs["text"].string_val):
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
    page.until(lambda: page.one("#note").text.startswith("193 sentences"))
    documents = asked("translate_document")
    assert max(map(len, documents)) <= 100  # and no paragraph twice, nor a blank one
    lines = [line for line in PAGE.encode().splitlines(keepends=True) if line.strip()]
    assert [text for texts in documents for text in texts] == lines
    page.all("#translation .sentence")[1].click()
    page.until(lambda: page.words("target") == ["UM", "CÃO", "PRETO."])
    assert page.all("#nbest li")[1].text.endswith("UM CÃO PRETO. 1")
    before = len(stub.requests)
    page.one("#source").send_keys(Keys.CONTROL, Keys.END)
    page.one("#source").send_keys("Fim.")  # the sentence at the caret, and nothing else anew
    page.until(lambda: page.words("source") == ["Fim."])
    assert {text for texts in asked() for text in texts} <= {b"Linha 189.", b"Fim."}


def test_address_copy_and_no_text(page):
    page.driver.refresh()  # the text stands in the address
    page.shows(TEXT.upper())
    page.one("#copy").click()
    page.until(lambda: page.one("#copy").text == "Copied")
    page.one("#source").clear()
    page.one("#source").send_keys(Keys.CONTROL, "v")
    page.shows(TEXT.upper())
    page.until(lambda: page.one("#source").get_property("value") == TEXT.upper())
    page.write(" ")
    assert page.until(lambda: page.one("#translation").text == "" and not page.all("#nbest li"))


@contextlib.contextmanager
def other(driver, signatures, languages=("", "")):
    """A page, served in this process, of a model that has other signatures."""
    address, stop = Future(), Future()
    stub = StubTranslator({signature.__name__: signature for signature in signatures})

    async def serve(asked):
        runner = web.AppRunner(application(asked, Origin(languages), "localhost"))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address.set_result(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await asyncio.wrap_future(stop)
        await runner.cleanup()

    with (
        serving(stub) as server,
        ServingClient(server, retry=False) as asked,
        ThreadPoolExecutor(1) as pool,
    ):
        served = pool.submit(asyncio.run, serve(asked))
        try:
            yield Page(driver, address.result(20))
        finally:
            stop.set_result(None)
            served.result(20)


@pytest.mark.parametrize(
    ("languages", "source", "target"),
    [
        (("de", "pt-BR"), "German", "Brazilian Portuguese"),
        (('"><b>', "eng"), '"><b>', "English"),
    ],
)
def test_any_pair_of_languages(driver, languages, source, target):
    with other(driver, SIGNATURES.values(), languages) as page:
        page.until(lambda: "version 7" in page.one("#server").text)  # though there is no text
        assert not page.all("#examples button")
        page.write("guten Tag")
        page.shows("GUTEN TAG")
        page.until(lambda: page.words("source") == ["guten", "Tag"])
        named = [page.one(f"#{side}-language").text for side in ("source", "target")]
        assert [name.casefold() for name in named] == [source.casefold(), target.casefold()]
        views = [label.text for label in page.all("#views label")]
        assert views == [f"{target} to {source}", f"within {source}", f"within {target}"]
        columns = [page.one(f".words.{side}") for side in ("source", "target")]
        labels = [column.get_dom_attribute("aria-label") for column in columns]
        assert labels == [f"{source} words", f"{target} words"]


def test_a_classifier_shows_its_probabilities(driver):
    with other(driver, [classify]) as page:
        page.until(lambda: "version 7" in page.one("#server").text)
        assert not page.one("#attention").is_displayed()
        page.write("um dia")
        page.until(lambda: page.one("#answer .translation"))
        page.until(lambda: page.all("#answer .name")[0].text == "long")
        assert [one.text for one in page.all("#answer .share")] == ["60.0 %", "40.0 %"]
        widths = [bar.value_of_css_property("background-size") for bar in page.all(".bar-of")]
        assert "60%" in widths[0] and "40%" in widths[1]
        page.write("<b>x")
        page.until(lambda: page.one("#answer .translation").text == "short")


def test_a_completer_goes_on_with_length_and_temperature(driver):
    with other(driver, [complete]) as page:
        page.write("era")
        page.until(lambda: page.one("#answer .translation").text == "era" + 24 * " 0.7")
        for name, value in (("length", 2), ("temperature", 0)):
            script = (
                "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
            )
            driver.execute_script(script, page.one(f"#{name}"), value)
        page.until(lambda: page.one("#answer .translation").text == "era 0 0")
        assert "2 tokens · log-probability −2.0" in page.one("#answer .note").text


def test_another_kind_of_model_is_said_to_be_one(driver):
    with other(driver, []) as page:
        page.until(lambda: "has no signature that this page" in page.one("#trouble").text)
    driver.get_log("browser")


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
