"""Checkpoints and run folders: whole or absent, whatever happens to the process or the disk."""

import json
import tracemalloc

import keras
import numpy as np
import pytest
from helpers import full_disk

from training.run.checkpoints import Checkpoints, read, restore
from training.run.claim import Claim
from training.run.files import RunError, save_weights, write_atomically, write_json
from training.run.folder import RunFolder


def arrays(value, size=1000):
    return {"weights": np.full(size, value, "float32"), "seed": np.array([value, 7], "uint32")}


@pytest.fixture
def saved(tmp_path):
    """Three checkpoints, of which the two newest are kept."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for step in (10, 20, 30):
        checkpoints.save(step, arrays(step), {"step": step})
    return checkpoints


def test_the_newest_are_kept_and_the_newest_is_read(saved):
    assert [path.name for path in saved.paths()] == ["step-000000020.npz", "step-000000030.npz"]
    found, meta = read(saved.newest())
    assert meta == {"step": 30}
    for name, expected in arrays(30).items():
        np.testing.assert_array_equal(found[name], expected)
        assert found[name].dtype == expected.dtype


def test_only_partial_files_are_cleaned_away(saved):
    before = saved.paths()
    partial = saved.directory / ".step-000000040.npz.1234"
    partial.write_bytes(b"half")
    saved.clean()
    assert not partial.exists()
    assert saved.paths() == before


@pytest.mark.parametrize("length", [0, 1, 100, 3000, -1])
def test_a_truncated_checkpoint_is_passed_over_with_a_message(saved, length):
    path = saved.paths()[-1]
    path.write_bytes(path.read_bytes()[:length])
    messages = []
    _, meta = read(saved.newest(tell=messages.append))
    assert meta == {"step": 20}
    assert len(messages) == 1 and str(path) in messages[0] and "damaged" in messages[0]


def test_a_flipped_bit_anywhere_in_the_weights_is_noticed(saved):
    path = saved.paths()[-1]
    content = bytearray(path.read_bytes())
    content[content.index(np.float32(30).tobytes()) + 402] ^= 1
    path.write_bytes(content)
    _, meta = read(saved.newest(tell=lambda _: None))
    assert meta == {"step": 20}


def test_no_checkpoint_and_no_good_checkpoint_are_told_apart(saved, tmp_path):
    assert Checkpoints(tmp_path / "other").newest() is None
    for path in saved.paths():
        path.write_bytes(b"")
    with pytest.raises(RunError, match="delete the folder to start again"):
        saved.newest(tell=lambda _: None)


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(1, {"weights": np.ones(1000)}, {})
    with full_disk(), pytest.raises(RunError) as error:
        checkpoints.save(2, {"weights": np.ones(100_000)}, {})
    assert "File too large" in str(error.value) and "step-000000001.npz" in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001.npz"]
    found, _ = read(tmp_path / "step-000000001.npz")
    np.testing.assert_array_equal(found["weights"], np.ones(1000))


def test_a_full_disk_leaves_the_last_good_weights(tmp_path):
    model = keras.Sequential([keras.Input((30,)), keras.layers.Dense(1000)])
    path = tmp_path / "weights" / "best.weights.h5"
    save_weights(model, path)
    before = path.read_bytes()
    with full_disk(), pytest.raises(RunError, match=r"best\.weights\.h5: File too large$"):
        save_weights(model, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def weights(**shapes):
    return {name: keras.Variable(np.ones(shape, "float32")) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    "now, message",
    [
        ({"a": (2, 2), "c": (2, 2)}, "lacks c"),
        ({"a": (2, 2)}, "holds b, which this run does not have"),
        ({"a": (2, 2), "b": (3, 2)}, r"holds b with shape \(2, 2\); expected \(3, 2\)"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path, now, message):
    checkpoints = Checkpoints(tmp_path)
    path = checkpoints.save(1, {name: np.zeros((2, 2)) for name in "ab"}, {})
    variables = weights(**now)
    with pytest.raises(RunError, match=message):
        restore(path, variables)
    assert all((variable.numpy() == 1).all() for variable in variables.values())


def test_weights_of_equal_shapes_are_told_apart_by_name(tmp_path):
    first, second = np.zeros((2, 2), "float32"), np.full((2, 2), 5, "float32")
    path = Checkpoints(tmp_path).save(3, {"a": first, "b": second}, {"step": 3})
    variables = weights(b=(2, 2), a=(2, 2))  # in another order
    assert restore(path, variables) == {"step": 3}
    np.testing.assert_array_equal(variables["a"].numpy(), first)
    np.testing.assert_array_equal(variables["b"].numpy(), second)


def test_a_checkpoint_is_streamed(tmp_path):
    """Writing and reading needs less memory than one more copy of all arrays."""
    arrays = {f"w{i}": np.ones(250_000, "float32") for i in range(20)}  # 20 MB
    tracemalloc.start()
    try:
        path = Checkpoints(tmp_path).save(1, arrays, {})
        assert Checkpoints(tmp_path).newest() == path
        restore(path, {name: Assigned(array.shape) for name, array in arrays.items()})
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


class Assigned:
    """Takes an array and forgets it."""

    def __init__(self, shape):
        self.shape = shape

    def assign(self, array):
        assert array.shape == self.shape


def test_another_processor_s_precision_is_said_with_how_to_keep_it(tmp_path):
    begun(tmp_path, {"precision": "mixed_bfloat16"})
    with pytest.raises(RunError, match=r"--precision mixed_bfloat16 keeps that of the run"):
        begun(tmp_path, {"precision": "float32"})


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"Cannot write .*file/run"):
        Claim(RunFolder(tmp_path / "file" / "run"))


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_atomically(path, 5)
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_one_process_s(tmp_path):
    claim = Claim(RunFolder(tmp_path))
    with pytest.raises(RunError, match="Another process"):
        Claim(RunFolder(tmp_path))
    claim.close()
    Claim(RunFolder(tmp_path)).close()


CORPUS = {"train": {"pairs": 7}}


def begun(path, training, overwrite=False, **free):
    """Begins a run of these settings, as far as its config.json; says whether one goes on."""
    claim = Claim(RunFolder(path))
    arguments = {**training, **free, "overwrite": overwrite}
    try:
        resumes = claim.begin(training, arguments, overwrite=overwrite)
        config = {"model": {}, "training": training, "arguments": arguments, "corpus": CORPUS}
        claim.folder.write_config(config)
        return resumes
    finally:
        claim.close()


def test_a_run_resumes_only_with_the_same_settings(tmp_path):
    assert not begun(tmp_path, {"seed": 1, "data": ("a.tsv",)})
    assert begun(tmp_path, {"seed": 1, "data": ("a.tsv",)})
    with pytest.raises(RunError, match=r"seed 1 -> 2.*--overwrite"):
        begun(tmp_path, {"seed": 2, "data": ("a.tsv",)})


def test_a_finished_run_is_overwritten_only_when_asked(tmp_path):
    begun(tmp_path, {"seed": 1})
    write_json(tmp_path / "results.json", {})
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"finished run.*--overwrite"):
        begun(tmp_path, {"seed": 1})
    assert not begun(tmp_path, {"seed": 1}, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "results.json").exists()


def test_to_overwrite_spares_the_unfinished_run_of_the_very_same_command(tmp_path):
    """A command with --overwrite that was killed goes on too when it is repeated."""
    Checkpoints(tmp_path / "checkpoints").save(10, arrays(1), {})
    with pytest.raises(RunError, match="holds no run"):
        begun(tmp_path, {"seed": 1}, overwrite=True, minutes=5)
    (tmp_path / "checkpoints" / "step-000000010.npz").unlink()
    assert not begun(tmp_path, {"seed": 1}, overwrite=True, minutes=5)
    Checkpoints(tmp_path / "checkpoints").save(10, arrays(1), {})
    assert begun(tmp_path, {"seed": 1}, overwrite=True, minutes=5)
    assert begun(tmp_path, {"seed": 1}, minutes=5)
    assert begun(tmp_path, {"seed": 1}, overwrite=True, minutes=5)
    assert Checkpoints(tmp_path / "checkpoints").newest()
    assert not begun(tmp_path, {"seed": 1}, overwrite=True, minutes=6)  # another command
    assert not (tmp_path / "checkpoints").exists()


def test_a_run_resumes_only_with_the_same_corpus(tmp_path):
    begun(tmp_path, {"seed": 1})
    claim = Claim(RunFolder(tmp_path))
    assert claim.begin({"seed": 1}, {"seed": 1})
    claim.keep_to(CORPUS)
    assert claim.resumes
    other = {"train": {"pairs": 8}}
    with pytest.raises(RunError, match=r"corpus is not the one.*'pairs': 7.*--overwrite"):
        claim.keep_to(other)
    claim.keep_to(other, overwrite=True)
    assert not claim.resumes and not claim.folder.config.exists()
    claim.close()


WRITTEN = (
    "checkpoints/step-000000010.npz", "tensorboard/events.out.tfevents.1.host",
    "weights/best.weights.h5", "weights/last.weights.h5", "tokenizer.model", "source.model",
    "target.model", "history.csv", "translations.tsv", "report.md", "curves.png", "attention.png",
    "results.json", "saved_model/1/saved_model.pb", "saved_model/2/saved_model.pb",
)  # fmt: skip
MINE = (
    "weights/mine.bin", "my.model", "checkpoints/notes.txt", "tensorboard/notes.txt",
    "saved_model/notes.txt", "saved_model/7/data.csv", "notes.txt",
)  # fmt: skip


def fill(path, names):
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)


def files(path):
    return {str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()} - {".lock"}


def test_only_what_a_run_wrote_is_overwritten(tmp_path):
    begun(tmp_path, {"seed": 1})
    fill(tmp_path, (*WRITTEN, ".history.csv", "weights/.best.weights.h5", *MINE))
    assert not begun(tmp_path, {"seed": 2}, overwrite=True)
    assert files(tmp_path) == {"config.json", *MINE}


def test_nothing_is_left_of_a_run_that_is_overwritten(tmp_path):
    begun(tmp_path, {"seed": 1})
    fill(tmp_path, WRITTEN)
    assert not begun(tmp_path, {"seed": 2}, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "config.json"}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("content", ['{"a": 1}', "[]", "5", "no JSON", '{"training": {}}'])
def test_a_folder_with_somebody_else_s_config_is_refused(tmp_path, content, overwrite):
    fill(tmp_path, (*WRITTEN, *MINE))
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=r"config\.json"):
        begun(tmp_path, {"seed": 1}, overwrite=overwrite)
    assert files(tmp_path) == {"config.json", *WRITTEN, *MINE}
    assert (tmp_path / "config.json").read_text() == content


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_that_a_run_would_overwrite_unasked_is_refused(tmp_path, name, overwrite):
    fill(tmp_path, (name,))
    with pytest.raises(RunError, match="holds no run"):
        begun(tmp_path, {"seed": 1}, overwrite=overwrite)
    assert files(tmp_path) == {name}
    fill(tmp_path / "other", MINE)
    assert not begun(tmp_path / "other", {"seed": 1})
