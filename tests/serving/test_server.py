"""The development server over gRPC, by the official stubs, and over REST; its versions."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import types
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import httpx
import numpy as np
import psutil
import pytest
import server_process
import tensorflow as tf
from server_process import SERVER, ServerProcess, request
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest, ModelVersionStatus

from keras_tfmr.compat import usable_cores
from keras_tfmr.export import warmup
from serving import export
from serving import server as command
from serving.devserver import rest_api
from serving.devserver.session import load
from serving.devserver.versions import Versions
from serving.devserver.workers import WAITING, Workers

MODEL = "/v1/models/default"
PREDICT = f"{MODEL}:predict"
STATES = ModelVersionStatus.State
ANY_PORTS = ("--port=0", "--rest_api_port=0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of versions of a model."""
    server_process.save(folder := tmp_path_factory.mktemp("models"))
    return folder


@pytest.fixture(scope="module")
def server(folder):
    """A server of it. After a signal it answers what it has taken, and ends with status 0."""
    with ServerProcess(folder) as server:
        yield server
        slow, count = request("slow", ms=[500]), min(4 * usable_cores(), WAITING)
        asked = [server.prediction.Predict.future(slow, timeout=60) for _ in range(count)]
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        assert all(one.result().outputs["version"].int_val for one in asked)
        assert server.process.wait(command.GRACE + 5) == 0


ANSWERS = [
    ("", {"text": ["a", "é\0"]}, {"text": ["a", "é\0"], "bytes": [1, 3]}),
    ("echo", {"text": []}, {"text": [], "bytes": []}),
    ("pair", {"number": [1, 2], "vector": [[0.1], [1]]}, {"sum": [1.1, 3], "twice": [[0.2], [2]]}),
    ("types", {"long": [-(1 << 62)], "double": [0.1], "bool": [True]},
     {"long": [1 << 62], "double": [0.2], "bool": [False]}),
    ("total", {"x": [1, 2.5]}, {"total": 3.5}),
]  # fmt: skip


@pytest.mark.parametrize(("signature", "inputs", "outputs"), ANSWERS)
def test_both_protocols_give_the_same_answers(server, signature, inputs, outputs):
    document = {"signature_name": signature, "inputs": inputs}
    columns = outputs if len(outputs) > 1 else outputs["total"]
    assert server.http(PREDICT, document) == (200, {"outputs": columns})
    response = server.prediction.Predict(request(signature, **inputs), timeout=60)
    arrays = {name: tf.make_ndarray(proto) for name, proto in response.outputs.items()}
    if "text" in arrays:
        arrays["text"] = np.array([text.decode() for text in arrays["text"]])
    assert arrays.keys() == outputs.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, np.array(outputs[name], array.dtype))
    spec = response.model_spec
    assert (spec.name, spec.signature_name) == ("default", signature or "serving_default")


def test_rows_and_base64(server):
    rows = [{"number": 1, "vector": [0.1]}, {"number": 2, "vector": [1]}]
    answer = [{"sum": 1.1, "twice": [0.2]}, {"sum": 3.0, "twice": [2.0]}]
    document = {"signature_name": "pair", "instances": rows}
    assert server.http(PREDICT, document) == (200, {"predictions": answer})
    answer = [{"text": "a", "bytes": 1}, {"text": "�", "bytes": 1}]
    assert server.http(PREDICT, {"instances": ["a", {"b64": "/w=="}]})[1] == {"predictions": answer}


def test_an_output_filter(server):
    response = server.prediction.Predict(request(output_filter=["bytes"], text=["a"]), timeout=60)
    assert [*response.outputs] == ["bytes"]


WRONG_OVER_REST = [
    (PREDICT, {"inputs": ["a"], "instances": ["a"]}, 400, "either"),
    (PREDICT, {"instances": []}, 400, "one at least"),
    (PREDICT, {"instances": [1.5], "signature_name": "total"}, 400, "value for each row"),
    (PREDICT, {"instances": [{"other": "a"}]}, 400, "['text']. Received: {'other'"),
    (PREDICT, {"inputs": [1]}, 400, "text: expected string. Received: 1"),
    (PREDICT, {"inputs": [["a"], []]}, 400, "dense"),
    (PREDICT, {"inputs": ["a"] * 65}, 400, "at most 64 texts in a request. Received: 65"),
    (PREDICT, {"inputs": [1 << 40], "signature_name": "slow"}, 400, "out of bounds for int32"),
    (PREDICT, {"inputs": [True], "signature_name": "slow"}, 400, "Received: True"),
    (PREDICT, b'{"inputs": ' + b"[" * 100_000, 400, "too deep"),
    (PREDICT, {"inputs": [{"b64": "?"}]}, 400, "base64"),
    (PREDICT, {"inputs": ["a"], "signature_name": "none"}, 400, '"none" not found'),
    (PREDICT.replace(":", "/versions/7:"), {"inputs": ["a"]}, 404, "version 7 of model default"),
    ("/v1/models/other", None, 404, "model other"),
    (PREDICT.replace(":", f"/versions/{1 << 63}:"), {"inputs": ["a"]}, 400, "64 bits"),
    (PREDICT.replace(":", "/labels/stable:"), {"inputs": ["a"]}, 400, "Malformed request: POST"),
    ("/other", None, 404, "Not Found"),
    (PREDICT, b"a" * (command.MAX_REQUEST_BYTES + 1), 413, "size"),
]


@pytest.mark.parametrize(
    ("path", "body", "status", "text"), WRONG_OVER_REST, ids=lambda value: str(value)[:20]
)
def test_what_is_wrong_over_rest(server, path, body, status, text):
    found, answer = server.http(path, body)
    assert found == status and text in answer["error"]


ONE = tf.make_tensor_proto([1])


def claiming(dtype=tf.string.as_datatype_enum, sizes=(1,), **values):
    """A TensorProto that says of itself what need not be so."""
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])
    return TensorProto(dtype=dtype, tensor_shape=shape, **values)


WRONG_OVER_GRPC = [
    (request(text=["a"], other=["a"]), "INVALID_ARGUMENT", "['text']. Received: ['other', 'text']"),
    (request(text=ONE), "INVALID_ARGUMENT", "string"),
    (request(text=["a"] * 65), "INVALID_ARGUMENT", "at most 64 texts in a request. Received: 65"),
    (
        request(text=claiming(sizes=[2, 10**9], string_val=[b"a", b"b"])),
        "INVALID_ARGUMENT",
        "expected 2000000000 values, as its shape has. Received: 2",
    ),
    (
        request("pair", number=[1], vector=claiming(tf.float32.as_datatype_enum, [1, 1 << 62])),
        "INVALID_ARGUMENT",
        "Received: 0",
    ),
    (request(text=claiming(sizes=[-1], string_val=[b"a"])), "INVALID_ARGUMENT", "known sizes"),
    (request(text=claiming(20)), "INVALID_ARGUMENT", "data type 7 (string). Received: 20"),
    (request(text=["a"], label="stable"), "INVALID_ARGUMENT", "version label: stable"),
    (request("none", text=["a"]), "FAILED_PRECONDITION", '"none" not found'),
    (request(text=["a"], version=7), "NOT_FOUND", "version 7 of model default"),
    (request(text=["a"], model="other"), "NOT_FOUND", "model other"),
    (request(text=["a" * command.MAX_REQUEST_BYTES]), "RESOURCE_EXHAUSTED", "larger than max"),
    (request("slow", ms=[20_000]), "DEADLINE_EXCEEDED", ""),
]


@pytest.mark.parametrize(("message", "code", "text"), WRONG_OVER_GRPC)
def test_what_is_wrong_over_grpc(server, message, code, text):
    with pytest.raises(grpc.RpcError) as caught:
        server.prediction.Predict(message, timeout=0.5 if code == "DEADLINE_EXCEEDED" else 60)
    assert caught.value.code().name == code and text in caught.value.details()


def test_the_time_limit_over_rest(folder):
    with pytest.raises(tf.errors.DeadlineExceededError):
        body = b'{"signature_name": "slow", "inputs": [20000]}'
        rest_api.predicted(load(folder / "1"), body, time.monotonic() + 0.1)
    assert rest_api.HTTP_STATUS[grpc.StatusCode.DEADLINE_EXCEEDED] == 504


def test_the_time_limit_covers_the_wait_and_all_of_the_work():
    begun = []

    def work(pause, deadline):
        begun.append(pause)
        time.sleep(pause)  # such as the writing of much JSON
        return pause

    async def ask():
        workers, cores = Workers(), usable_cores()
        asked = [workers.run(0.3, work, 1.0) for _ in range(cores)]
        asked += [workers.run(0.3, work, 0.0), workers.run(9.0, work, 0.001)]
        return await asyncio.gather(*asked, return_exceptions=True)

    *late, last = asyncio.run(ask())
    assert {*map(type, late)} == {tf.errors.DeadlineExceededError} and last == 0.001
    assert begun == [1.0] * usable_cores() + [0.001], "one waited in vain, and never began"


def test_the_queue_has_a_bound_and_who_leaves_is_dropped(server):
    """Those that wait would take more than a minute, and those over REST ten seconds."""
    most, slow = usable_cores() + WAITING, request("slow", ms=[3000])
    calls = [server.prediction.Predict.future(slow, timeout=60) for _ in range(most + 20)]
    while not (refused := [call for call in calls if call.done()]):
        time.sleep(0.01)
    assert {call.exception().code() for call in refused} == {grpc.StatusCode.UNAVAILABLE}
    status, answer = server.http(PREDICT, {"inputs": ["a"]})
    assert status == 503 and f"{WAITING} requests wait" in answer["error"]
    for call in calls:
        call.cancel()
    assert server.prediction.Predict(request(text=["a"]), timeout=20)

    def leave(_):
        document = {"signature_name": "slow", "inputs": [1000]}
        url = f"http://127.0.0.1:{server.rest_port}{PREDICT}"
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=document, timeout=0.3)

    with ThreadPoolExecutor(20) as pool:
        assert len([*pool.map(leave, range(10 * usable_cores()))])
    assert server.http(PREDICT, {"inputs": ["a"]}, timeout=5)[0] == 200


def test_a_newer_version_is_found_and_its_status_reported(server, folder):
    def versions():
        """(version, state) by both protocols."""
        answer = server.models.GetModelStatus(asked, timeout=60).model_version_status
        assert all(version.status.error_code == 0 for version in answer)
        both = [(version.version, STATES.Name(version.state)) for version in answer]
        answer = server.http(MODEL)[1]["model_version_status"]
        return both, [(int(version["version"]), version["state"]) for version in answer]

    asked = GetModelStatusRequest(model_spec={"name": "default"})
    assert versions() == ([(1, "AVAILABLE")],) * 2
    server_process.save(folder, 2)
    end = time.monotonic() + 60
    while versions() != ([(2, "AVAILABLE"), (1, "END")],) * 2:
        assert time.monotonic() < end, versions()
        time.sleep(0.1)
    response = server.prediction.Predict(request("slow", ms=[1]))  # without a deadline
    assert [*response.outputs["version"].int_val] == [2] and response.model_spec.version.value == 2


class Session:
    """What a test loads in place of a SavedModel."""


def load_unless_broken(path):
    if path.name == "3" and not (path / "whole").exists():
        raise ValueError("broken")
    return Session()


def test_versions_come_and_go(tmp_path):
    versions = Versions("m", tmp_path, load_unless_broken)

    def states():
        return {version.number: version.state for version in versions.listed("m")}

    for name in ("-4", "v5", "6.0", "٧", "writing-8"):
        (tmp_path / name).mkdir()
    (tmp_path / "9").touch()
    with pytest.raises(tf.errors.NotFoundError, match="no version"):
        versions.follow()
    (tmp_path / "1").mkdir()
    versions.follow()
    number, session = versions.serving("m")
    (tmp_path / "00000002").mkdir()
    versions.follow()
    assert number == 1 and versions.serving("m")[0] == versions.serving("m", 2)[0] == 2
    assert states() == {2: "AVAILABLE", 1: "END"} and [*states()] == [2, 1]
    with pytest.raises(tf.errors.NotFoundError):
        versions.serving("m", 1)
    gone = weakref.ref(session)  # the request that has it is the last one
    del session
    assert gone() is None
    (tmp_path / "3").mkdir()
    with pytest.raises(ValueError, match="broken"):
        versions.follow()
    versions.follow()  # not tried again
    assert states() == {3: "END", 2: "AVAILABLE", 1: "END"} and versions.serving("m")[0] == 2
    assert versions.listed("m", 3)[0].status == (grpc.StatusCode.INVALID_ARGUMENT, "broken")
    (tmp_path / "3").rmdir()
    (tmp_path / "00000002").rmdir()
    versions.follow()
    assert states() == {3: "END", 2: "END", 1: "AVAILABLE"}
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "whole").touch()  # of a copy that has ended
    (tmp_path / ("9" * 20)).mkdir()
    versions.follow()
    assert states() == {3: "AVAILABLE", 2: "END", 1: "END"}
    (tmp_path / "3" / "whole").unlink()
    (tmp_path / "3").rmdir()
    (tmp_path / "1").rmdir()
    with pytest.raises(tf.errors.NotFoundError, match="no version"):
        versions.follow()
    assert {*states().values()} == {"END"}


def test_a_version_that_does_not_load_leaves_nothing_in_memory(tmp_path):
    sessions = []

    def fail(path):
        sessions.append(weakref.ref(session := Session()))
        raise ValueError(f"{session} has no warm-up")

    versions = Versions("m", tmp_path, fail)
    (tmp_path / "1").mkdir()
    with contextlib.suppress(ValueError):
        versions.follow()
    assert sessions[0]() is None and versions.listed("m")[0].state == "END"


def test_a_version_whose_warm_up_fails_does_not_load(tmp_path):
    version = server_process.save(tmp_path)
    warmup.write(version, [("echo", {"text": ["a"]}), ("echo", {"other": ["a"]})])
    with pytest.raises(tf.errors.FailedPreconditionError, match="request 2 fails"):
        load(version)


def test_what_cannot_be_served_stops_the_start(tmp_path, capsys):
    """A taken port and wrong ones before anything is loaded."""
    words = [f"--model_base_path={tmp_path}", "--port=0"]
    assert command.main([*words, "--rest_api_port=0"]) == 1
    assert f"{tmp_path} has no version" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert command.address_of("::1", taken) == f"[::1]:{port}"
        for which in ("port", "rest_api_port"):
            assert command.main([*words, f"--{which}={port}"]) == 1
            assert f"127.0.0.1:{port}: Address already in use" in capsys.readouterr().err
    for wrong, said in (
        (["--port=99999"], "from 0 to 65535. Received: 99999"),
        (["--port=8500", "--rest_api_port=8500"], "must differ. Received: 8500 twice"),
    ):
        with pytest.raises(SystemExit, match="2"):
            command.main([*words, *wrong])
        assert said in capsys.readouterr().err


def test_an_export_to_a_read_only_file_system_says_so_before_it_loads(
    tmp_path, monkeypatch, capsys
):
    real = os.statvfs

    def read_only(path):
        return types.SimpleNamespace(f_flag=real(path).f_flag | os.ST_RDONLY)

    monkeypatch.setattr(os, "statvfs", read_only)
    assert export.main(["no preset", f"--output={tmp_path / 'models'}"]) == 1
    assert f"Cannot write {tmp_path / 'models'}: Read-only file system" in capsys.readouterr().err


def test_a_preset_is_exported_and_served(monkeypatch):
    def run(words, stdout):
        options = export.parse_arguments(words[2:])
        assert words[1].samefile(export.__file__) and options.preset == "runs/mine"
        (options.output / "1").mkdir()
        return subprocess.CompletedProcess(words, 0)

    served = []
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(
        command, "serve", lambda _, folder, *ports: served.extend(Path(folder).iterdir())
    )
    command.main(["runs/mine", *ANY_PORTS])
    assert [path.name for path in served] == ["1"] and not served[0].exists()


def test_a_signal_ends_the_export_of_a_preset(tmp_path):
    words = [sys.executable, SERVER, "a preset", *ANY_PORTS]
    environment = {**os.environ, "TMPDIR": tmp_path}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        while not (children := psutil.Process(process.pid).children()):
            assert process.poll() is None
        time.sleep(0.3)  # until it waits
        process.terminate()
        assert process.wait(10) == 128 + signal.SIGTERM and not psutil.wait_procs(children, 10)[1]
        assert "Traceback" not in process.stderr.read()
    assert [*tmp_path.iterdir()] == []
