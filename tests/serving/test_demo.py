"""The demo page's own server as a process, with a stub behind it."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import grpc
import httpx
import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]


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
            assert process.wait(timeout=40) == status


def ask(page, path, *texts, **headers):
    """(status, JSON) of GET, or of POST where there are texts."""
    body = {"json": {"texts": texts}} if texts else {}
    options = {"headers": headers, "timeout": 20, "verify": False, "trust_env": False}
    answer = httpx.request("POST" if texts else "GET", f"{page}/api/{path}", **body, **options)
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'")
    return answer.status_code, answer.json()


@pytest.fixture(scope="module")
def page(stubbed):
    with demo(f"--server={stubbed[1]}") as (page, _):
        yield page


def test_wrong_requests_are_refused(page):
    assert ask(page, "translate", "um", **{"Content-Type": "text/plain"})[0] == 415
    status, answer = ask(page, "document", "x", "x" * 20_000)
    assert status == 400 and "20000" in answer["error"]
    assert ask(page, "translate", ["um"])[0] == 400
    assert ask(page, "explain", "um", "dois")[0] == 400
    assert ask(page, "document", "x" * 400_000)[0] == 413


def test_a_model_that_is_swapped_is_said_to_be_loading(page, stub):
    def gone(request, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "Servable not found for request: Latest(default)")

    stub.behave, stub.versions = gone, [(8, "LOADING"), (7, "END")]
    assert ask(page, "translate", "um")[1]["code"] == "LOADING"
    answer = ask(page, "status")[1]
    assert (answer["version"], answer["loading"]) == (None, 8)
    stub.versions = [(7, "END")]
    assert ask(page, "translate", "um")[1]["code"] == "NOT_FOUND"


def test_with_a_server_of_its_own_that_ends(toys):
    """It loads, answers at once, and dies: the page is told, and demo.py ends with an error."""

    def wait(*words, found, meanwhile, seconds):
        end = time.monotonic() + seconds
        while found not in (answer := str(ask(address, *words)[1])):
            assert meanwhile in answer and time.monotonic() < end, answer
            time.sleep(0.1)

    with demo(f"--model_base_path={toys.parent}", status=1) as (address, process):
        wait("document", "bom dia", found="BOM DIA", meanwhile="LOADING", seconds=240)
        psutil.Process(process.pid).children()[0].kill()
        wait("status", found="ENDED", meanwhile="", seconds=4)
        assert process.wait(40) == 1 and "server has ended" in process.stderr.read()
