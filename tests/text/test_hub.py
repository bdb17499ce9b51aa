"""A model by its name, from a stand-in of the Hub's HTTP interface on a socket of its own."""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tiny_runs import ROOT

from training import import_marian

SHAS = {"main": "a" * 40, "v1": "b" * 40}  # revisions and their commits
TOKEN = "hf_secret"
WANTED = {
    name: name.encode() for name in ("config.json", "model.safetensors", "vocab.json", "source.spm")
}
FILES = {**WANTED, "tf_model.h5": b"weights", "README.md": b"# A model"}


class Hub(BaseHTTPRequestHandler):
    """Serves `FILES` as the private model owner/model in two revisions."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        if api := re.fullmatch(r"/api/models/owner/model/(revision|tree)/(\w+)(\?.*)?", self.path):
            return self.describe(*api.groups()[:2])
        if file := re.fullmatch(r"/owner/model/resolve/(\w+)/([\w.-]+)", self.path):
            commit, content = SHAS.get(file[1], file[1]), FILES[file[2]]
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            return self.answer(200, content, {"X-Repo-Commit": commit, "ETag": etag})
        return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET  # noqa: N815

    def describe(self, what, revision):
        commit = SHAS.get(revision, revision)
        if commit not in SHAS.values():
            return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        content = [
            {"type": "file", "path": name, "size": len(data), "oid": "0" * 40}
            for name, data in FILES.items()
        ]
        if what == "revision":
            content = {"id": "owner/model", "sha": commit}
        return self.answer(200, json.dumps(content).encode())

    def answer(self, status, content, headers=()):
        self.send_response(status)
        for name, value in {"Content-Length": len(content), **dict(headers)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads, server.asked = True, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def found(hub, tmp_path):
    """The folder of the model in a new process, or what is wrong. A cache for each test."""

    def found(revision, **settings):
        code = "import sys; from keras_tfmr.presets.find import PresetError, find\n"
        code += "try: print(find('hf://owner/model@' + sys.argv[1]))\n"
        code += "except PresetError as error: print(error)\n"
        settings = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", **settings}
        environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_TOKEN": TOKEN, **settings}
        hub.asked.clear()
        command = [sys.executable, "-c", code, revision]
        return subprocess.check_output(command, cwd=ROOT, env=environment, text=True).strip()

    return found


def test_a_model_is_downloaded_once(hub, found):
    folder = Path(found("v1"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == WANTED
    assert any("/revision/v1" in path for path in hub.asked)
    assert all(SHAS["v1"] in path for path in hub.asked if "/resolve/" in path)
    assert found("v1", HF_ENDPOINT="http://127.0.0.1:9") == str(folder)  # from the cache


def test_what_cannot_be_downloaded_is_one_line(found):
    for revision, settings, reason in (
        ("v2", {}, "404"),
        ("main", {"HF_TOKEN": "hf_wrong"}, "401"),
        ("main", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "connection"),
    ):
        said = found(revision, **settings)
        name = f"hf://owner/model@{revision}"
        assert said.startswith(f"cannot download {name} from the Hugging Face Hub: ")
        assert reason in said and "\n" not in said


def test_without_the_package_the_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    output = str(tmp_path / "run")
    assert import_marian.main(["hf://owner/model", "--output", output]) == 1
    assert "pip install 'keras_tfmr[hub]'" in capsys.readouterr().err
    assert import_marian.main(["no/such/folder", "--output", output]) == 1
    said = capsys.readouterr().err
    assert "there is no folder no/such/folder; a model of the Hugging Face Hub" in said
    assert not (tmp_path / "run").exists()
