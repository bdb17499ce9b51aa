"""Commands that write: a wrong one touches no file, and the corrected one then does its work."""

import hashlib

import pytest
from text_models import LINES, write_run

from keras_tfmr.text.spans import SLOTS
from serving import export
from training import import_marian, translate

# Command lines, and what is said of each. `{run}` is a run, `{here}` a folder that has old outputs.
WRONG = {
    translate: (
        ("{run}no --input {here}/in.txt --output {here}/out.txt --overwrite", "{run}no"),
        ("{run} --input {here}/no.txt --output {here}/out.txt --overwrite", "{here}/no.txt"),
        ("{run} --input {here}/in.txt --output {here}/old", "Is a directory: '{here}/old'"),
        ("{run} --input {here}/in.txt --output {here}/out.txt", "{here}/out.txt exists"),
        ("{to_out} --terms {here}/no.tsv", "No such file or directory: '{here}/no.tsv'"),
        ("{to_out} --terms {here}/in.txt", "in.txt, line 1: expected TERM, a tab"),
        ("{to_out} --language deu", "deu"),
        ("{to_out} --weights {here}/no.h5", "there is no file {here}/no.h5"),
        ("{to_out} --protect ur", "'ur' is none of"),
        ("{to_out} --num_beams 0", "must be from 1"),
        ("{to_out} --resume", "--resume cannot be given with --overwrite"),
        ("{to_out} --documents --scores", "cannot be given with --documents"),
        ("{run} --input {here}/in.txt --resume", "have no effect without --output"),
        ("{run} --input {here}/in.txt --output {here}/link --overwrite", "must not be the input"),
        ("{run} --input {here}/bad.gz --output {here}/out.txt --overwrite", "unpack {here}/bad.gz"),
    ),
    export: (
        ("{run}no --output {here}/old", "{run}no"),
        ("{run} --output {here}/in.txt", "Cannot write {here}/in.txt: Not a directory"),
        ("{run} --output {here}/old --format ctranslate2", "{here}/old is not empty"),
        ("{run} --output {here}/old --calibrate {here}/no.txt", "{here}/no.txt"),
        ("{run} --output {here}/old --calibrate {here}/bad.gz", "{here}/bad.gz: 'utf-8'"),
        ("{run} --output {here}/old --max_length_ratio 0", "must be finite and positive"),
        ("{run} --output {here}/old --nbest 9", "must be an integer between 1 and num_beams=1"),
    ),
    import_marian: (
        ("{here}/no --output {here}/old --overwrite", "{here}/no"),
        ("{run} --output {here}/new --overwrite", "is a run, not a published model"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with a tiny model of random weights."""
    return write_run(tmp_path_factory.mktemp("run"), SLOTS, num_beams=1)


@pytest.fixture
def here(tmp_path):
    """A folder with inputs and old outputs."""
    (tmp_path / "in.txt").write_text("\n".join(LINES[:3]))
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b\xff\xff")
    (tmp_path / "out.txt").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "in.txt")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "kept.txt").write_text("old")
    return tmp_path


def tree(*folders):
    """{path: time of its last change and checksum} of everything below folders."""
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return {
        path: (path.stat().st_mtime_ns, path.is_file() and hashlib.md5(path.read_bytes()).digest())
        for path in paths
    }


@pytest.mark.parametrize("script", WRONG, ids=lambda script: script.__name__)
def test_a_wrong_command_touches_nothing(script, run, here, capsys):
    to_out = f"{run} --input {here}/in.txt --output {here}/out.txt --overwrite"
    places = {"run": run, "here": here, "to_out": to_out}
    before = tree(run, here)
    wrong = []
    for words, said in WRONG[script]:
        try:
            status = script.main(words.format(**places).split())
        except SystemExit as ended:
            status = ended.code
        told = capsys.readouterr().err
        if status not in (1, 2) or said.format(**places) not in told or "Traceback" in told:
            wrong.append((words, said, told))
        assert tree(run, here) == before, words
    assert not wrong
