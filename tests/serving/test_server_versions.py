"""Versions that come, go and fail while the development server serves."""

import json
import shutil
import threading

import pytest
import server_models
from google.protobuf import text_format
from server_models import request
from server_process import ServerProcess, status_of
from tensorflow_serving.apis import get_model_status_pb2, model_management_pb2
from tensorflow_serving.config import file_system_storage_path_source_pb2

from serving.devserver import configs
from serving.devserver.errors import ServingError

MODEL = 'config {{ name: "{0}" base_path: "{1}/{0}" model_platform: "tensorflow" {2} }}\n'


def config(folder, *models):
    """Text of a ModelServerConfig; a model is its name, or (name, more fields)."""
    pairs = [model if isinstance(model, tuple) else (model, "") for model in models]
    entries = "".join(MODEL.format(name, folder, more) for name, more in pairs)
    return f"model_config_list {{ {entries} }}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("versions")


@pytest.fixture(scope="module")
def server(folder):
    server_models.half_plus(folder / "half", 1, 2.0)
    server_models.half_plus(folder / "other", 1, 10.0)
    server_models.slow(folder / "slow", 1)
    (folder / "models.config").write_text(config(folder, "half", "slow"))
    with ServerProcess(
        folder,
        f"--model_config_file={folder}/models.config",
        "--model_config_file_poll_wait_seconds=1",
        "--max_num_load_retries=0",
    ) as running:
        yield running


def answer(server, model="half", **spec):
    response = server.prediction.Predict(request(model, x=[0.0], **spec), timeout=20)
    return response.model_spec.version.value, response.outputs["y"].float_val[0]


def status(server, model, version):
    message = get_model_status_pb2.GetModelStatusRequest()
    message.model_spec.name = model
    message.model_spec.version.value = version
    return server.models.GetModelStatus(message).model_version_status[0].status


def reload(server, text):
    message = model_management_pb2.ReloadConfigRequest()
    text_format.Parse(text, message.config)
    return status_of(server.models.HandleReloadConfigRequest, message, timeout=60)


class Traffic:
    """Asks without a pause from several threads; remembers every answer and every error."""

    def __init__(self, server, threads=4):
        self.seen, self.errors, self.count = set(), [], 0
        self._server, self._stop = server, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]

    def _ask(self):
        while not self._stop.is_set():
            try:
                self.seen.add(answer(self._server))
                self.count += 1
            except Exception as error:
                self.errors.append(str(error))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *unused):
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_versions_are_swapped_without_dropping_a_request(server, folder):
    assert answer(server) == (1, 2.0)
    with Traffic(server) as traffic:
        server_models.half_plus(folder / "half", 2, 3.0)
        server.wait_for(lambda: server.states("half") == {1: "END", 2: "AVAILABLE"})
        before = traffic.count
        server.wait_for(lambda: traffic.count > before + 50)
    assert traffic.errors == []
    assert traffic.seen == {(1, 2.0), (2, 3.0)}
    assert answer(server) == (2, 3.0)
    assert status_of(server.prediction.Predict, request("half", version=1, x=[0.0]))[0] == (
        "NOT_FOUND"
    )


def test_broken_version_never_replaces_a_working_one(server, folder):
    broken = folder / "half" / "3"
    shutil.copytree(folder / "half" / "2", folder / "half" / "copy")
    (folder / "half" / "copy" / "saved_model.pb").write_bytes(b"no model")
    (folder / "half" / "copy").rename(broken)
    with Traffic(server) as traffic:
        server.wait_for(lambda: server.states("half").get(3) == "END")
    assert traffic.errors == [] and traffic.seen == {(2, 3.0)}
    assert server.states("half") == {1: "END", 2: "AVAILABLE", 3: "END"}
    why = status(server, "half", 3)
    assert why.error_code != 0 and "saved_model.pb" in why.error_message
    text = json.loads(server.http("/v1/models/half/versions/3")[1])
    assert text["model_version_status"][0]["status"]["error_message"] == why.error_message


def test_warmup_file_is_replayed_and_a_bad_one_keeps_the_version_out(server, folder):
    for number, records, expected in (
        (4, [b"no PredictionLog"], "Failed to parse warmup record"),
        (5, [request("half", x=["text"])], "Type mismatch"),
        (6, [request("half", "nope", x=[1.0])], 'Serving signature key "nope" not found.'),
    ):
        path = server_models.half_plus(folder / "aside", number, 9.0)
        server_models.warmup(path, *records)
        path.rename(folder / "half" / str(number))
        server.wait_for(lambda n=number: server.states("half").get(n) == "END")
        assert expected in status(server, "half", number).error_message
        assert answer(server) == (2, 3.0)
    path = server_models.half_plus(folder / "aside", 7, 7.0)
    server_models.warmup(path, *[request("half", x=[1.0] * n) for n in (1, 3)])
    path.rename(folder / "half" / "7")
    server.wait_for(lambda: server.states("half").get(7) == "AVAILABLE")
    assert answer(server) == (7, 7.0)


def test_removed_version_gives_way_to_the_one_before(server, folder):
    for number in (3, 4, 5, 6):
        shutil.rmtree(folder / "half" / str(number))
    shutil.rmtree(folder / "half" / "7")
    server.wait_for(lambda: server.states("half").get(7) == "END")
    assert answer(server) == (2, 3.0)


def test_old_version_finishes_its_last_request(server, folder):
    path = server_models.slow(folder / "aside", 2)
    long = server.prediction.Predict.future(request("slow", ms=[8000]), timeout=60)
    # What is answered on the same connection has come after it.
    assert status_of(server.prediction.Predict, request("slow", ms=[1]), timeout=20)[0] == "OK"
    path.rename(folder / "slow" / "2")
    server.wait_for(lambda: server.states("slow") == {1: "UNLOADING", 2: "AVAILABLE"})
    assert not long.done()
    assert long.result().model_spec.version.value == 1
    server.wait_for(lambda: server.states("slow") == {1: "END", 2: "AVAILABLE"})


def test_reload_adds_removes_and_labels(server, folder):
    labels = 'version_labels { key: "stable" value: 2 }'
    assert reload(server, config(folder, ("half", labels), "other"))[0] == "OK"
    assert answer(server, "other") == (1, 12.0 - 2.0)
    assert answer(server, "half", label="stable") == (2, 3.0)
    server.wait_for(lambda: server.states("slow") == {1: "END", 2: "END"})
    assert status_of(server.prediction.Predict, request("slow", ms=[1])) == (
        "NOT_FOUND",
        "Servable not found for request: Latest(slow)",
    )
    every = "model_version_policy { all {} }"
    assert reload(server, config(folder, ("half", every)))[0] == "OK"
    assert answer(server, "half", version=1) == (1, 2.0)
    one = "model_version_policy { specific { versions: 1 } }"
    assert reload(server, config(folder, ("half", one)))[0] == "OK"
    server.wait_for(lambda: server.states("half")[2] == "END")
    assert answer(server) == (1, 2.0)


def test_reload_that_is_refused_changes_nothing(server, folder):
    """But for the last: there only the model that does not load is missing."""
    before = (1, 2.0)
    (folder / "broken" / "1").mkdir(parents=True)
    (folder / "broken" / "1" / "saved_model.pb").write_bytes(b"no model")
    wrong = 'version_labels { key: "stable" value: 77 }'
    relative = 'config { name: "half" base_path: "half" model_platform: "tensorflow" }'
    nowhere = 'config { name: "q" base_path: "/nowhere" model_platform: "tensorflow" }'
    silent = 'config { name: "q" base_path: "/tmp" }'
    for text, code, message in (
        ("custom_model_config {}", "INVALID_ARGUMENT", "ServerModelConfig type not supported"),
        (config(folder, "half", "half"), "INVALID_ARGUMENT", "Illegal to list model half multiple"),
        (f"model_config_list {{ {relative} }}", "INVALID_ARGUMENT", "to have an absolute path"),
        (f"model_config_list {{ {silent} }}", "INVALID_ARGUMENT", "model_platform"),
        (f"model_config_list {{ {nowhere} }}", "NOT_FOUND", "/nowhere"),
        (
            config(folder, ("half", wrong)),
            "FAILED_PRECONDITION",
            "Request to assign label to version 77 of model half, which is not currently available",
        ),
        (config(folder, "half", "broken"), "UNKNOWN", "1 servable(s) did not become available"),
    ):
        got, detail = reload(server, text)
        assert (got, message in detail) == (code, True), detail
        assert answer(server) == (before if code != "UNKNOWN" else (2, 3.0))


def test_config_file_is_read_again(server, folder):
    file = folder / "models.config"
    file.write_text(config(folder, "other"))
    server.wait_for(lambda: server.states("other").get(1) == "AVAILABLE")
    file.write_text("model_config_list { not a config")
    server.wait_for(lambda: "Error parsing text-format" in server.stderr())
    assert answer(server, "other") == (1, 10.0)
    file.write_text(config(folder, "other", "slow"))
    server.wait_for(lambda: server.states("slow").get(2) == "AVAILABLE")


def test_only_numbers_are_versions(tmp_path):
    for name in ("1", "00000123", "7x", "-3", "temp-8", "1.5", "²", "9" * 30):
        (tmp_path / name).mkdir()
    (tmp_path / "44").write_text("a file")
    assert set(configs.versions_on_disk(str(tmp_path))) == {1, 123}
    with pytest.raises(ServingError, match="Could not find base path"):
        configs.versions_on_disk(str(tmp_path / "none"))


@pytest.mark.parametrize(
    "policy, expected",
    [
        ("", {9}),
        ("latest {}", {9}),
        ("latest { num_versions: 2 }", {4, 9}),
        ("all {}", {1, 4, 9}),
        ("specific { versions: [1, 4, 5] }", {1, 4}),
    ],
)
def test_version_policies(policy, expected):
    cls = file_system_storage_path_source_pb2.FileSystemStoragePathSourceConfig
    parsed = text_format.Parse(policy, cls.ServableVersionPolicy())
    assert set(configs.chosen({1: "a", 4: "b", 9: "c"}, parsed)) == expected
