"""A model by its name, from a stand-in of the Hub's HTTP interface on a socket of its own."""

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from test_marian_peer import FILE

from training import import_marian
from training.run import RunFolder

ROOT = Path(__file__).resolve().parents[2]
SHAS = {"main": "a" * 40, "v1": "b" * 40}  # revisions and their commits
TOKEN = "hf_secret"

needs_hub = pytest.mark.skipif(
    importlib.util.find_spec("huggingface_hub") is None, reason="needs huggingface_hub"
)


class Hub(BaseHTTPRequestHandler):
    """Serves `server.files`, {name: bytes}, as the private model owner/model in two revisions."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        if api := re.fullmatch(r"/api/models/owner/model/(revision|tree)/(\w+)(\?.*)?", self.path):
            return self.describe(*api.groups()[:2])
        if file := re.fullmatch(r"/owner/model/resolve/(\w+)/([\w.-]+)", self.path):
            commit, name = SHAS.get(file[1], file[1]), file[2]
            content = self.server.files[name]
            etag = f'"{hashlib.sha1(content).hexdigest()}"'
            return self.answer(200, content, {"X-Repo-Commit": commit, "ETag": etag})
        return self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET  # noqa: N815

    def describe(self, what, revision):
        commit = SHAS.get(revision, revision)
        if commit not in SHAS.values():
            return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        files = self.server.files
        content = {
            "id": "owner/model",
            "sha": commit,
            "siblings": [{"rfilename": n} for n in files],
        }
        if what == "tree":
            content = [
                {"type": "file", "path": name, "size": len(data), "oid": "0" * 40}
                for name, data in files.items()
            ]
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
    """The stand-in, with the model that Marian trained, and files that no import needs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.daemon_threads = True
    with zipfile.ZipFile(FILE) as archive:
        names = [name for name in archive.namelist() if name.startswith("opus/")]
        server.files = {name.removeprefix("opus/"): archive.read(name) for name in names}
    server.files |= {"tf_model.h5": b"weights", "README.md": b"# A model"}
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def imported(hub, tmp_path):
    """`imported("--revision", "v1")`: the finished command. A cache for each test."""

    def run(*words, name="owner/model", **settings):
        environment = {
            **os.environ,
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
            "HF_HOME": str(tmp_path / "home"),
            "HF_TOKEN": TOKEN,
            **settings,
        }
        command = [sys.executable, "training/import_marian.py", name, *words]
        command += ["--output", tmp_path / "run", "--overwrite"]
        hub.asked.clear()
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    return run


@needs_hub
def test_a_model_is_downloaded_once_and_imported(hub, imported, tmp_path):
    done = imported("--revision", "v1")
    assert done.returncode == 0, done.stderr
    files = {path.rsplit("/", 1)[1] for path in hub.asked if "/resolve/" in path}
    assert files == {"model.npz", "decoder.yml", "vocab.yml", "source.spm", "target.spm"}
    assert any("/revision/v1" in path for path in hub.asked)
    assert all(SHAS["v1"] in path for path in hub.asked if "/resolve/" in path)
    with zipfile.ZipFile(FILE) as archive:
        answers = json.loads(archive.read("opus.json"))
    found = RunFolder(tmp_path / "run").translator().translate(answers["source"][:20])
    assert found == [text for text, *_ in answers["beam"][:20]]
    offline = imported("--revision", "v1", HF_ENDPOINT="http://127.0.0.1:9")  # from the cache
    assert offline.returncode == 0, offline.stderr
    assert hub.asked == []


@needs_hub
@pytest.mark.parametrize(
    ("words", "settings", "reason"),
    [
        (["--revision", "v2"], {}, "404"),
        ([], {"HF_TOKEN": "hf_wrong"}, "401"),
        ([], {"HF_ENDPOINT": "http://127.0.0.1:9"}, "connection"),
    ],
)
def test_what_cannot_be_downloaded_is_one_line(imported, words, settings, reason):
    done = imported(*words, **settings)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "error: cannot download owner/model from the Hugging Face Hub: " in done.stderr
    assert reason in done.stderr


def test_without_the_package_the_line_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    output = str(tmp_path / "run")
    assert import_marian.main(["owner/model", "--output", output]) == 1
    assert "pip install huggingface_hub" in capsys.readouterr().err
    assert import_marian.main(["no/such/folder", "--output", output]) == 1
    assert capsys.readouterr().err.endswith("there is no folder or archive no/such/folder\n")
    assert not (tmp_path / "run").exists()
