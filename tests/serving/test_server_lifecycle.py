"""How the development server starts, changes versions and ends."""

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import server_process
from helpers import ends
from server_process import SERVER, ServerProcess, request, status_of
from text_models import LABELS, LINES, classifier

from serving.devserver.errors import StatusError
from serving.devserver.versions import Versions, versions_on_disk
from serving.server import parse_arguments


def test_a_life(tmp_path):
    """It loads and warms up; a new version replaces the old one while clients ask; one that does
    not load changes nothing; the older one comes back. After SIGTERM it answers what is in work,
    and ends within the grace, whatever else runs and waits."""
    models, versions, failed, stop = tmp_path / "models", set(), [], threading.Event()

    def keep_asking():
        while not stop.is_set():
            status, answer = server.predict({"inputs": [20]}, "slow")
            versions.update(answer["outputs"]["version"] if status == 200 else ())
            failed.extend([answer] if status != 200 else ())

    def long(ms):
        return pool.submit(server.prediction.Predict, request("slow", ms=[ms]), timeout=60)

    server_process.save(models, 1, warmup=[request("slow", ms=[1]), request("echo", text=["a"])])
    flags = [f"--model_base_path={models}", "--file_system_poll_wait_seconds=0.2"]
    flags += ["--threads=3", "--grace_seconds=3"]
    with ServerProcess(tmp_path, *flags, ready=False) as server, ThreadPoolExecutor(3) as pool:
        code, text = status_of(server.prediction.Predict, request(text=["a"]))
        assert code == "UNAVAILABLE" and "is loading" in text
        status, answer = server.predict({"inputs": ["a"]})
        assert status == 503 and "is loading" in answer["error"]
        assert server.states() == {1: "LOADING"}
        server.wait_for("Serving version 1")
        for _ in range(2):
            pool.submit(keep_asking)
        asked = long(2500)
        try:
            server_process.save(models, 2)
            server.wait_for("Serving version 2")
            server.wait_for("Unloaded version 1")
            assert server.states() == {1: "END", 2: "AVAILABLE"}
            (models / f"{2**63}").mkdir()  # of 19 digits, and no int64
            (models / "3").mkdir()
            server.wait_for(f"NOT_FOUND.*{models}/3|SavedModel.*{models}/3")
            assert server.states() == {1: "END", 2: "AVAILABLE", 3: "END"}
            assert server.http("/v1/models/default/versions/3:predict", {"inputs": ["a"]})[0] == 404
            (models / "3").rmdir()
            shutil.move(models / "2", tmp_path / "gone")
            server.wait_for("Unloaded version 2")
        finally:
            stop.set()
        assert asked.result().outputs["version"].int_val == [1]
        assert versions == {1, 2} and not failed
        slow = request("slow", ms=[300_000])
        assert status_of(server.prediction.Predict, slow, timeout=0.3)[0] != "OK"  # given up
        calls = [server.prediction.Predict.future(slow, timeout=300)]
        asked = long(1500)
        time.sleep(0.3)
        calls += [server.prediction.Predict.future(slow, timeout=300) for _ in range(9)]
        with socket.create_connection(("127.0.0.1", server.rest_port)) as rest:
            rest.sendall(head_of(b'{"signature_name": "slow", "inputs": [300000]}'))
            time.sleep(0.3)
            start = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            assert status_of(server.prediction.Predict, request(text=["a"]), timeout=1)[0] != "OK"
            assert asked.result().outputs["rows"].int_val == [1]
            assert server.process.wait(60) == 0 and all(call.exception() for call in calls)
        assert time.monotonic() - start < 10


def head_of(body, sent=True):
    """A request for a prediction over REST, or all of it but its body."""
    head = f"POST /v1/models/default:predict HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body * sent


def test_a_signal_while_it_loads(toys, tmp_path):
    with ServerProcess(tmp_path, f"--model_base_path={toys.parent}", ready=False) as server:
        assert server.terminate() == 0


def test_what_cannot_be_served_stops_the_start(tmp_path):
    def start(port):
        """What a server says that ends by itself."""
        command = [sys.executable, SERVER, "--port=0", f"--rest_api_port={port}", folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        return done.stderr

    folder = f"--model_base_path={tmp_path}"
    assert f"{tmp_path} has no version" in start(0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "Cannot listen" in start(taken.getsockname()[1])

    def load(path):
        options = parse_arguments([f"--model_base_path={path}"])
        asyncio.run(Versions(options).load_newest())

    with pytest.raises(StatusError, match="Cannot read"):
        load(tmp_path / "none")
    server_process.save(tmp_path / "models", warmup=[request("boom", text=["boom"])])
    with pytest.raises(StatusError, match="asked for"):
        load(tmp_path / "models")


def test_names_of_versions(tmp_path):
    for name in ("-4", "v5", "6.0", "٧", f"{2**63}", "9" * 25, "writing-8"):
        (tmp_path / name).mkdir()
    with pytest.raises(StatusError, match="has no version"):
        versions_on_disk(tmp_path)
    names = {1: "1", 3: "00000003", 1764163200000000000: "1764163200000000000"}
    for name in names.values():
        (tmp_path / name).mkdir()
    assert {number: path.name for number, path in versions_on_disk(tmp_path).items()} == names


def test_a_preset_is_exported_and_served_and_leaves_nothing(tmp_path, monkeypatch):
    """A run folder in one line. A signal ends the export, even one that nobody can handle; and a
    second one the server at once; no folder is left."""
    run = classifier().save_to_preset(tmp_path / "a run")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        command = [sys.executable, SERVER, "--port=0", "--rest_api_port=0", run]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            server, end = psutil.Process(process.pid), time.monotonic() + 60
            while not (children := server.children()) and time.monotonic() < end:
                time.sleep(0.05)
            process.send_signal(number)
            killed = number == signal.SIGKILL
            assert process.wait(5) == (-number if killed else 128 + number)
            assert ends(children[0].pid, 5) and "Traceback" not in process.stderr.read()
        assert killed or list(temporary.iterdir()) == []
    shutil.rmtree(temporary)
    temporary.mkdir()
    with ServerProcess(tmp_path, run) as server:
        assert [path.name for path in temporary.rglob("saved_model.pb")] == ["saved_model.pb"]
        status, answer = server.predict({"inputs": LINES}, "classify")
        assert status == 200 and {*answer["outputs"]["label"]} <= {*LABELS}
        with socket.create_connection(("127.0.0.1", server.rest_port)) as unfinished:
            unfinished.sendall(head_of(b"[" * 9, sent=False))
            time.sleep(0.2)
            (own,) = psutil.Process(server.process.pid).children()
            for _ in range(2):
                own.send_signal(signal.SIGINT)
                time.sleep(1.1)
            assert server.process.wait(5) == 0
    assert list(temporary.iterdir()) == []
