"""How the development server starts, changes versions and ends."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import server_models
from server_models import request
from server_process import ROOT, ServerProcess, status_of

from serving.devserver.versions import versions_on_disk


def test_it_says_that_it_is_loading_and_then_serves_and_ends(toys, tmp_path):
    """From the first second on; a request in work at SIGTERM gets its answer."""
    with ServerProcess(tmp_path, f"--model_base_path={toys.parent}", ready=False) as server:
        code, text = status_of(server.prediction.Predict, request(text=["a"]), timeout=20)
        assert code == "UNAVAILABLE" and "is loading" in text
        status, answer = server.predict({"inputs": ["a"]})
        assert status == 503 and "is loading" in answer["error"]
        assert server.states() == {1: "LOADING"}
        server.wait_for("Serving version 1")
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(server.prediction.Predict, request("slow", ms=[3000]), timeout=30)
            time.sleep(1)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert status_of(server.prediction.Predict, request(text=["a"]), timeout=1)[0] != "OK"
            assert asked.result().outputs["rows"].int_val == [1]
        assert server.process.wait(30) == 0, server.output()


def test_a_signal_while_it_loads(toys, tmp_path):
    with ServerProcess(tmp_path, f"--model_base_path={toys.parent}", ready=False) as server:
        assert server.terminate(30) == 0, server.output()


def test_a_new_version_replaces_the_old_one_without_a_failed_request(tmp_path):
    """While clients ask; then a version that does not load; then the way back."""
    models = tmp_path / "models"
    server_models.save(models, 1)
    versions, failed, stop = set(), [], threading.Event()

    def keep_asking():
        while not stop.is_set():
            status, answer = server.predict({"inputs": [20]}, "slow")
            if status != 200:
                failed.append(answer)
            else:
                versions.update(answer["outputs"]["version"])

    flags = [f"--model_base_path={models}", "--file_system_poll_wait_seconds=0.2"]
    with ServerProcess(tmp_path, *flags) as server, ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            pool.submit(keep_asking)
        long = pool.submit(server.prediction.Predict, request("slow", ms=[6000]), timeout=60)
        try:
            server_models.save(models, 2)
            server.wait_for("Serving version 2")
            server.wait_for("Unloaded version 1")
            assert server.states() == {1: "END", 2: "AVAILABLE"}
            (models / "3").mkdir()
            server.wait_for(f"NOT_FOUND.*{models}/3|SavedModel.*{models}/3")
            assert server.states() == {1: "END", 2: "AVAILABLE", 3: "END"}
            assert server.http("/v1/models/default/versions/3:predict", {"inputs": ["a"]})[0] == 404
            (models / "3").rmdir()
            shutil.move(models / "2", tmp_path / "gone")
            server.wait_for("Unloaded version 2")
        finally:
            stop.set()
        assert long.result().outputs["version"].int_val in ([1], [2])
        assert server.terminate() == 0
    assert versions == {1, 2} and not failed


def run(*flags):
    """(exit status, stderr) of a server that is to end by itself."""
    command = [sys.executable, ROOT / "serving" / "server.py", "--port=0", *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240)
    return done.returncode, done.stderr


def test_a_folder_without_a_version_is_said_in_a_line(tmp_path):
    status, text = run("--rest_api_port=0", f"--model_base_path={tmp_path}")
    assert status == 1 and f"{tmp_path} has no version" in text and "Traceback" not in text
    status, text = run("--rest_api_port=0", f"--model_base_path={tmp_path / 'none'}")
    assert status == 1 and "Cannot read" in text and "Traceback" not in text


def test_a_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, text = run(f"--rest_api_port={port}", f"--model_base_path={tmp_path}")
    assert status == 1 and "Cannot listen" in text and "Traceback" not in text


def test_names_that_are_no_versions(tmp_path):
    for name in ("1", "00000003", "-4", "v5", "6.0", "٧", "9" * 25, "writing-8"):
        (tmp_path / name).mkdir()
    assert {number: path.name for number, path in versions_on_disk(tmp_path).items()} == {
        1: "1",
        3: "00000003",
    }


def test_a_warm_up_file_that_fails_stops_the_start(tmp_path):
    server_models.save(tmp_path / "models", warmup=[request("boom", text=["boom"])])
    status, text = run("--rest_api_port=0", f"--model_base_path={tmp_path / 'models'}")
    assert status == 1 and "did not start" in text


def test_the_last_warm_up_request_comes_before_the_first_client(tmp_path):
    warmup = [request("slow", ms=[1]), request("echo", text=["a"])]
    server_models.save(tmp_path / "models", warmup=warmup)
    with ServerProcess(tmp_path, f"--model_base_path={tmp_path / 'models'}") as server:
        text = server.http("/v1/models/default")[1]
        assert json.loads(text)["model_version_status"][0]["state"] == "AVAILABLE"
