"""Pairs of data sets: from a stand-in of its server that breaks off, changes its files, refuses."""

import bz2
import contextlib
import gzip
import hashlib
import itertools
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from training import get_data
from training.command.disk import RunError
from training.corpus import data_set, multi30k, sources, tatoeba
from training.corpus.held_out import given_sets, read_pairs
from training.settings.training_config import TrainingConfig

NUMBERS = range(1, 101)
EXPORTS = {  # by hand, in the form of Tatoeba's weekly exports
    "por/por_sentences.tsv.bz2": [f"{i}\tpor\tFrase {i}." for i in NUMBERS],
    "eng/eng_sentences.tsv.bz2": [f"{1000 + i}\teng\tSentence {i}." for i in NUMBERS],
    # The last sentence is linked to one that was deleted, the first has two translations.
    "por/por-eng_links.tsv.bz2": [
        *(f"{i}\t{1000 + i}" for i in NUMBERS), "1\t1002", "100\t5000"
    ],
}  # fmt: skip
EXPORTS = {
    name: bz2.compress("".join(f"{line}\n" for line in lines).encode())
    for name, lines in EXPORTS.items()
}


class Server(BaseHTTPRequestHandler):
    """Serves `files`; each of the next `breaks` answers ends after `bytes` bytes of its content."""

    def do_GET(self):
        server, name = self.server, self.path.removeprefix("/")
        span = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        server.asked.append((name, span and int(span[1])))
        if name not in server.files:
            return self.send_error(404)
        content, tag = server.files[name], f'"{hashlib.sha1(server.files[name]).hexdigest()}"'
        begin = int(span[1]) if span and server.ranges and self.headers["If-Range"] == tag else 0
        self.send_response(206 if begin else 200)
        if begin:
            last = len(content) - 1
            self.send_header("Content-Range", f"bytes {begin}-{last}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.send_header("ETag", tag)
        self.end_headers()
        whole, server.breaks = server.breaks <= 0, server.breaks - 1
        self.wfile.write(content[begin:] if whole else content[begin:][: server.bytes])
        if server.later:
            server.files |= server.later

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.files, server.asked, server.later = dict(EXPORTS), [], {}
    server.breaks, server.bytes, server.ranges = 0, 100, True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setattr(tatoeba, "EXPORTS", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(data_set, "PAUSE", 0.0)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "datasets" / "tatoeba" / "por-eng"


def read(split="train"):
    """The pairs of a split, as a run gets them."""
    blocks = sources.parse(["tatoeba:por-eng"])[0].blocks(split, [])
    return b"".join(block.texts[0] for block in blocks)


def exports(folder):
    """The downloaded files, and no part of one."""
    return {file.name: file.read_bytes() for file in (folder / "downloads").iterdir()}


WHOLE = {name.partition("/")[2]: content for name, content in EXPORTS.items()}


def test_the_first_run_downloads_and_no_other(server, folder, capsys):
    server.breaks = 10**6  # each answer brings 100 bytes
    assert read() == (folder / "train.tsv").read_bytes() and exports(folder) == WHOLE
    first = [begin for name, begin in server.asked if "links" in name]
    assert first == [None, *range(100, len(WHOLE["por-eng_links.tsv.bz2"]), 100)]
    captured, count = capsys.readouterr(), len(server.asked)
    assert "CC BY 2.0 FR" in captured.out and "eng_sentences.tsv.bz2: 0.0 MB" in captured.err
    assert read("test") == (folder / "test.tsv").read_bytes() and len(server.asked) == count
    (folder / "test.tsv").write_text("x\ty\n")
    with pytest.raises(RunError, match=r"does not match .*SHA256SUMS"):
        read("test")


@pytest.mark.parametrize("ranges", [True, False])
def test_what_broke_off_is_not_mixed_with_another_file(server, folder, ranges):
    """The server has a new version when it is asked for the rest, or sends the whole file again."""
    server.breaks, server.ranges, name = 1, ranges, "por/por_sentences.tsv.bz2"
    server.later = {name: EXPORTS["eng/eng_sentences.tsv.bz2"]} if ranges else {}
    with contextlib.suppress(RunError):  # of too few pairs
        tatoeba.TATOEBA.fetch("por-eng", folder)
    assert [begin for asked, begin in server.asked if asked == name] == [None, 100]
    later = {file.partition("/")[2]: content for file, content in server.later.items()}
    assert exports(folder) == WHOLE | later


def test_the_next_command_goes_on_where_a_download_broke_off(server, folder, monkeypatch):
    server.breaks = 1
    with monkeypatch.context() as patch:
        patch.setattr(data_set, "FAILURES", 1)
        with pytest.raises(RunError, match=r"broke off after 100 of .* --data tatoeba:DIR/por-eng"):
            read()
    assert read() and [begin for _, begin in server.asked][:2] == [None, 100]
    assert exports(folder) == WHOLE


def test_what_cannot_be_downloaded_is_one_sentence(server, folder, monkeypatch):
    with pytest.raises(RunError, match=r"tatoeba has no xyz_sentences.*Received: por-xyz"):
        tatoeba.TATOEBA.fetch("por-xyz", folder)
    with socket.socket() as closed, pytest.raises(RunError) as raised:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setattr(tatoeba, "EXPORTS", f"http://127.0.0.1:{closed.getsockname()[1]}")
        read()
    said = str(raised.value)
    assert "refused): repeat the command" in said and "\n" not in said


def test_exports_are_joined_and_split(tmp_path, capsys):
    for name, content in WHOLE.items():
        (tmp_path / name).write_bytes(content)
    words = ["tatoeba:por-eng", "--downloads", str(tmp_path), "--folder", str(tmp_path / "data")]
    assert get_data.main(words) == 0
    told, folder = capsys.readouterr().out, tmp_path / "data" / "por-eng"
    corpus = sources.corpus_of(f"tatoeba:{folder}")
    splits = [read_pairs([corpus], name).pairs for name in data_set.SPLITS]
    assert 5 in map(len, splits) and 95 <= sum(map(len, splits)) <= 101
    for mine, other in itertools.permutations(splits, 2):
        assert {a for a, _ in mine}.isdisjoint(a for a, _ in other)
    for source, target in itertools.chain(*splits):
        number = source.removeprefix("Frase ")
        assert target == f"Sentence {number}" or (source, target) == ("Frase 1.", "Sentence 2.")
    digest = hashlib.sha256((folder / "train.tsv").read_bytes()).hexdigest()
    assert f"{digest}  train.tsv" in told and "CC BY 2.0 FR" in (folder / "ATTRIBUTION").read_text()
    assert get_data.main(words) == 0 and capsys.readouterr().out == told
    assert tatoeba.TATOEBA.split_path(str(folder), "test") == folder / "test.tsv"
    settings = TrainingConfig(data=("mine.tsv",), validation=(corpus.name,))
    assert given_sets(settings, [])["validation"].pairs == splits[1]


def test_what_is_missing_or_damaged_is_named(tmp_path, capsys):
    with pytest.raises(RunError, match=r"run `python training/get_data.py tatoeba:por-eng`"):
        list(sources.parse([f"tatoeba:{tmp_path}/por-eng"])[0].blocks("train", []))
    for words, message in (
        (["tatoeba:por-eng", "--downloads"], "por_sentences.tsv.bz2 is missing"),
        (["tatoeba:pt-en", "--downloads"], "codes of three letters"),
        (["tatoebas:por-eng", "--downloads"], "Expected NAME:PAIR of tatoeba, multi30k"),
    ):
        assert get_data.main([*words, str(tmp_path), "--folder", str(tmp_path / "data")]) == 1
        assert message in capsys.readouterr().err
    (tmp_path / "por-eng_links.tsv.bz2").write_bytes(WHOLE["por-eng_links.tsv.bz2"][:-9])
    with pytest.raises(RunError, match=r"links.*: not a complete export .*: delete it and"):
        tatoeba.TATOEBA.fetch("por-eng", tmp_path / "por-eng", tmp_path)


def test_the_published_captions_are_read_and_no_others(tmp_path, monkeypatch, capsys):
    """Files of the same names stand in for them; a tab within a caption is a space."""
    names = multi30k.files("de-en")
    assert list(names) == [f"{n}.{c}.gz" for n in multi30k.NAMES for c in ("de", "en")]
    texts = {name: f"Ein\tHund, {name}.\nZwei.\n".encode() for name in names}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(gzip.compress(text))
    words = ["multi30k:de-en", "--downloads", str(tmp_path), "--folder", str(tmp_path / "data")]
    assert get_data.main(words) == 1
    assert "train.de.gz is not the published file" in capsys.readouterr().err
    digests = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    monkeypatch.setattr(multi30k, "DIGESTS", digests)
    assert get_data.main(words) == 0 and "For research" in capsys.readouterr().out
    corpus = sources.corpus_of(f"multi30k:{tmp_path}/data/de-en")
    assert read_pairs([corpus], "test").pairs == [
        ("Ein Hund, test_2016_flickr.de.gz.", "Ein Hund, test_2016_flickr.en.gz."),
        ("Zwei.", "Zwei."),
    ]
    with pytest.raises(RunError, match="Expected multi30k:en-de"):
        multi30k.files("en-fr")
