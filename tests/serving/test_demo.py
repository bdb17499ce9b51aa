"""The demo page: its own server as a process, a stub behind it, and a browser in front of it."""

import contextlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import psutil
import pytest
import translator_model
from stub_translator import HEADS, LAYERS, LONGEST, StubTranslator, serving, unused_port

from serving.demo import learned_phrasebook

ROOT = Path(__file__).resolve().parents[2]

PAGE = ROOT / "serving" / "demo"


@contextlib.contextmanager
def demo(*arguments):
    """A running demo; yields (its address, the process)."""
    command = [sys.executable, str(ROOT / "serving" / "demo.py"), "--port=0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().removeprefix("Open ").strip(), process
        finally:
            process.terminate()
            assert process.wait(timeout=40) == 0


def ask(address, path, *texts, **headers):
    """(status, JSON) of GET, or of POST where there are texts."""
    headers = {"Content-Type": "application/json", **headers}
    body = json.dumps({"texts": texts}).encode() if texts else None
    request = urllib.request.Request(f"{address}/api/{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture(scope="module")
def stub():
    return StubTranslator()


@pytest.fixture(scope="module")
def page(stub):
    with serving(stub) as server, demo(f"--server={server}") as (address, _):
        yield address


def test_what_the_page_asks_for(page, stub):
    assert ask(page, "status")[1].items() >= {"model": "default", "version": 7}.items()
    before = len(stub.requests)
    _, answer = ask(page, "document", "bom dia.\n", "x" * (LONGEST + 1))
    short, long = answer["documents"]
    assert short == {"pieces": [["bom dia.", "BOM DIA."], ["\n", "\n"]], "truncated": False}
    assert long["truncated"] is True and answer["milliseconds"] > 0
    _, answer = ask(page, "translate", "bom dia")
    assert [one["text"] for one in answer["hypotheses"]] == ["BOM DIA", "BOM DIA 1", "BOM DIA 2"]
    asked = [request.model_spec.signature_name for request in stub.requests[before:]]
    assert asked == ["translate_document", "translate_nbest"]
    _, answer = ask(page, "explain", "bom dia")
    assert answer["source_tokens"] == ["▁bom", "▁dia"]
    assert (len(answer["heads"]), len(answer["heads"][0])) == (LAYERS, HEADS)
    assert all(abs(sum(row) - 1) < 0.01 for row in answer["attention"])


def test_wrong_requests_are_refused(page):
    assert ask(page, "translate", "um", **{"Content-Type": "text/plain"})[0] == 415
    status, answer = ask(page, "document", "x", "x" * 20_000)
    assert status == 400 and "20000" in answer["error"]
    assert ask(page, "translate", ["um"])[0] == 400
    assert ask(page, "explain", "um", "dois")[0] == 400
    assert ask(page, "document", "x" * 400_000)[0] == 413


def test_a_server_that_is_down_is_said_to_be():
    with unused_port() as port, demo(f"--server=127.0.0.1:{port}") as (address, _):
        status, answer = ask(address, "translate", "um")
        assert status == 502 and answer["code"] == "UNAVAILABLE"
        assert f"127.0.0.1:{port}" in answer["error"]


@contextlib.contextmanager
def swapping(stub, code="NOT_FOUND"):
    """The stub's model is gone, and another version of it is loading."""

    def gone(request, context):
        context.abort(grpc.StatusCode[code], "Servable not found for request: Latest(default)")

    before, stub.behave, stub.versions = stub.behave, gone, [(8, "LOADING"), (7, "END")]
    try:
        yield
    finally:
        stub.behave, stub.versions = before, [(7, "AVAILABLE")]


def test_a_model_that_is_swapped_is_said_to_be_loading(page, stub):
    with swapping(stub):
        assert ask(page, "translate", "um")[1]["code"] == "LOADING"
        answer = ask(page, "status")[1]
        assert (answer["version"], answer["loading"]) == (None, 8)
        stub.versions = [(7, "END")]
        assert ask(page, "translate", "um")[1]["code"] == "NOT_FOUND"
    with swapping(stub, "UNAVAILABLE"):
        assert ask(page, "translate", "um")[1]["code"] == "UNAVAILABLE"
    assert ask(page, "translate", "um")[0] == 200


def test_nothing_comes_from_elsewhere(page):
    for file in PAGE.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text.replace("// ", ""), file.name
        with urllib.request.urlopen(f"{page}/{file.name}", timeout=10) as answer:
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'")


def test_with_a_server_of_its_own_that_ends(tmp_path):
    """It loads, answers at once, and dies: the page is told, and demo.py ends with an error."""
    translator_model.save(tmp_path, 1)
    command = [sys.executable, str(ROOT / "serving" / "demo.py"), "--port=0"]
    command.append(f"--model_base_path={tmp_path}")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            address = process.stdout.readline().removeprefix("Open ").strip()
            end = time.monotonic() + 240
            while (answer := ask(address, "document", "bom dia"))[0] != 200:
                assert answer[1]["code"] == "LOADING" and time.monotonic() < end, answer
                time.sleep(0.3)
            assert answer[1]["documents"][0]["pieces"] == [["bom dia", "BOM DIA"]]
            (server,) = psutil.Process(process.pid).children()
            server.kill()
            psutil.wait_procs([server], timeout=20)
            end = time.monotonic() + 4
            while (answer := ask(address, "status"))[1].get("code") != "ENDED":
                assert time.monotonic() < end, answer
                time.sleep(0.1)
            assert process.wait(40) == 1 and "server has ended" in process.stderr.read()
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("training", "expected"), [({"data": []}, True), ({"data": ["a.tsv"]}, False), ({}, False)]
)
def test_it_knows_the_phrasebook(tmp_path, training, expected):
    file = tmp_path / "2" / "assets.extra" / "keras_tfmr.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"run": {"config": {"training": training}}}))
    assert learned_phrasebook(tmp_path) is expected
    assert learned_phrasebook(tmp_path / "none") is False
