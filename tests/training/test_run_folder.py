"""Who may begin, resume and delete a run, whatever the moment of a kill; files that are whole."""

import dataclasses

import keras
import numpy as np
import pytest
from tiny_runs import TINY, train, write_pairs

from training.command import disk
from training.command.disk import RunError, replacing, write_atomically
from training.corpus.sources import check_apart
from training.run import run_folder
from training.run.checkpoints import Checkpoints, damage, restore
from training.run.run_folder import RunFolder, begin, run_lock
from training.settings.command_line import parse_arguments
from training.settings.training_config import TrainingConfig

ENTRIES = {"model": {}, "text_model": {}, "tokenizers": {}}
ASKED = TrainingConfig(minutes=9).resolved()


@keras.saving.register_keras_serializable(package="tests")
class SomeTokenizer:
    model_bytes = b"a"

    def get_config(self):
        return {}


TOKENIZERS = [SomeTokenizer(), SomeTokenizer()]
STARTS, RESUMES = None, "resumes"
# What a repeat asks for instead; what happens to an unfinished run and to a finished one without
# --overwrite; and what with it.
REPEATS = {
    "the same command": ({}, RESUMES, "finished run of this command", RESUMES, "finished run of"),
    "its config.json": (
        {"precision": "float32"}, RESUMES, "finished run of this command", RESUMES, "finished run",
    ),
    "another evaluation": ({"num_beams": 3}, RESUMES, "num_beams: 4, now 3", STARTS, STARTS),
    "another length": ({"steps": 14, "minutes": None}, RESUMES, "steps: None", STARTS, STARTS),
    "another seed": ({"seed": 2}, r"unfinished run.*\(seed: 1, now 2\)", "seed", STARTS, STARTS),
    "other minutes": ({"minutes": 8.0}, "--steps N changes its length", "minutes", STARTS, STARTS),
    "another precision": ({"precision": "mixed_bfloat16"}, "precision", "prec", STARTS, STARTS),
}  # fmt: skip


@pytest.mark.parametrize("name", REPEATS)
def test_a_repeat_resumes_starts_again_or_is_refused(name, tmp_path):
    changes, *expected = REPEATS[name]
    folder, asked = RunFolder(tmp_path), dataclasses.replace(ASKED, **changes)
    settled = dataclasses.replace(run_folder.settle(ASKED), precision="float32")
    disk.write_json(
        folder.config, {**ENTRIES, "arguments": settled.to_dict(), "minutes": ASKED.minutes}
    )
    cases = [(over, finished) for over in (False, True) for finished in (False, True)]
    for (overwrite, finished), wanted in zip(cases, expected, strict=True):
        folder.results.touch() if finished else folder.results.unlink(missing_ok=True)
        if wanted in (STARTS, RESUMES):
            before = begin(folder, dataclasses.replace(asked, overwrite=overwrite))
            assert bool(before) == (wanted == RESUMES)
        else:
            with pytest.raises(RunError, match=wanted):
                begin(folder, dataclasses.replace(asked, overwrite=overwrite))
        assert folder.config.exists()  # until the new run has read its corpus


def test_a_resumed_run_keeps_what_was_settled():
    before = {"arguments": ASKED.to_dict() | {"steps": 70, "minutes": None, "protect": []}}
    before["minutes"] = ASKED.minutes
    before["arguments"]["precision"] = "mixed_bfloat16"
    settled = run_folder.settle(ASKED, before)
    assert (settled.steps, settled.minutes) == (70, None)
    assert (settled.precision, settled.protect) == ("mixed_bfloat16", ())
    assert run_folder.settle(ASKED).protect == run_folder.DEFAULT
    assert run_folder.settle(parse_arguments("", ["--protect", "none"])).protect == ()
    assert run_folder.settle(TrainingConfig(task="classify")).protect is None


class Killed(BaseException):
    """Raised in place of a kill."""


@pytest.mark.parametrize("writes", range(4))
def test_a_run_that_is_killed_while_it_begins_can_be_repeated(writes, tmp_path, monkeypatch):
    """After each of the files of its beginning, over an old run that it deletes."""
    old = run_folder.settle(dataclasses.replace(ASKED, seed=5)).to_dict()
    folder = RunFolder(tmp_path)
    folder.begin({**ENTRIES, "arguments": old}, TOKENIZERS, new=True)
    folder.checkpoints.mkdir()
    (folder.checkpoints / "step-000000001.npz").touch()
    (tmp_path / "mine").touch()
    real, done = disk.replacing, []

    def replacing_until(path):
        if len(done) == writes:
            raise Killed
        done.append(path)
        return real(path)

    asked = dataclasses.replace(ASKED, overwrite=True)
    assert begin(folder, asked) is None
    arguments = run_folder.settle(asked).to_dict()
    config = {**ENTRIES, "arguments": arguments, "minutes": asked.minutes}
    with monkeypatch.context() as patched:
        patched.setattr(disk, "replacing", replacing_until)
        try:
            folder.begin(config, TOKENIZERS, new=True)
        except Killed:
            assert writes < 3
    before = begin(folder, asked)
    assert (before is None) == (writes == 0)
    folder.begin(before or config, TOKENIZERS, new=not before)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"config.json", "source.model", "target.model", "mine"}


def test_a_command_that_fails_writes_nothing(tmp_path, capsys):
    folder = tmp_path / "run"
    words = ("--data", tmp_path / "none.tsv", "--output", folder, *TINY)
    assert train(*words) == 1
    assert "none.tsv" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == [".lock"]
    (folder / "history.csv").touch()
    assert train(*words) == 1
    assert "would be overwritten" in capsys.readouterr().err
    assert {path.name for path in folder.iterdir()} == {".lock", "history.csv"}


def test_a_run_never_deletes_what_it_is_to_read(tmp_path, capsys):
    folder = RunFolder(tmp_path / "run")
    disk.write_json(folder.config, {**ENTRIES, "arguments": {}})
    write_pairs(folder.translations)
    (tmp_path / "link.tsv").symlink_to(folder.translations)
    assert train("--data", tmp_path / "l*.tsv", "--output", folder.path, "--overwrite", *TINY) == 1
    assert "which the run reads: move it away" in capsys.readouterr().err
    settings = TrainingConfig(init_from=str(folder.path), output=f"{tmp_path}/./run")
    with pytest.raises(RunError, match="must not be the run of --init_from"):
        check_apart(settings, folder)
    assert folder.translations.exists()


def test_one_process_at_a_time_writes_in_a_folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    for _ in range(2):
        with run_lock(folder), pytest.raises(RunError, match="Another process"), run_lock(folder):
            pass


def test_files_have_their_old_content_or_their_new_one(tmp_path):
    path = tmp_path / "a" / "file"
    write_atomically(path, "caf\udce9")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text("new")
        1 / 0  # noqa: B018
    assert path.read_text() == "caf\\udce9" and len(list(path.parent.iterdir())) == 1
    with pytest.raises(RunError, match="Cannot write"):
        write_atomically(path / "file", "x")


def test_checkpoints_are_checked_before_they_are_used(tmp_path, capsys):
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.newest() is None
    variable = keras.Variable(np.zeros(3, "float32"))
    for step in (1, 2, 3):
        checkpoints.save(step, {"a": np.full(3, step, "float32")}, {"step": step})
    first, last = checkpoints.paths()
    assert (first.name, last.name) == ("step-000000002.npz", "step-000000003.npz")
    content = bytearray(last.read_bytes())
    content[content.index(np.float32(3).tobytes())] ^= 1
    for damaged in (content, content[:-30], b""):
        last.write_bytes(damaged)
        assert damage(last) and checkpoints.newest() == first
        assert f"warning: {last} is damaged" in capsys.readouterr().err
    restore(first, {"a": variable})
    assert keras.ops.convert_to_numpy(variable).tolist() == [2, 2, 2]
    for other in ({"b": variable}, {"a": keras.Variable(np.zeros(4, "float32"))}):
        with pytest.raises(RunError, match="another model"):
            restore(first, other)
    Checkpoints(tmp_path, keep=1).save(2, {"a": variable}, {"step": 2})
    assert checkpoints.paths() == [first] and checkpoints.newest() == first
    first.write_bytes(b"")
    with pytest.raises(RunError, match="All checkpoints"):
        checkpoints.newest()
