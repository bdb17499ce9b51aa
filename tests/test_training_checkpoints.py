"""Checkpoints and run folders: whole or absent, whatever happens to the process or the disk."""

import json

import keras
import numpy as np
import pytest
from helpers import full_disk

from training.checkpoints import Checkpoints, read
from training.run_folder import RunError, RunFolder, save_weights, write_atomically, write_json


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
    found, meta = saved.newest()
    assert meta == {"step": 30}
    for name, expected in arrays(30).items():
        np.testing.assert_array_equal(found[name], expected)
        assert found[name].dtype == expected.dtype


@pytest.mark.parametrize("length", [0, 1, 100, 3000, -1])
def test_a_truncated_checkpoint_is_passed_over_with_a_message(saved, length):
    path = saved.paths()[-1]
    path.write_bytes(path.read_bytes()[:length])
    messages = []
    _, meta = saved.newest(tell=messages.append)
    assert meta == {"step": 20}
    assert len(messages) == 1 and str(path) in messages[0] and "damaged" in messages[0]


def test_a_flipped_bit_anywhere_in_the_weights_is_noticed(saved):
    path = saved.paths()[-1]
    content = bytearray(path.read_bytes())
    content[content.index(np.float32(30).tobytes()) + 402] ^= 1
    path.write_bytes(content)
    _, meta = saved.newest(tell=lambda _: None)
    assert meta == {"step": 20}


def test_no_checkpoint_and_no_good_checkpoint_are_told_apart(saved, tmp_path):
    assert Checkpoints(tmp_path / "other").newest() is None
    for path in saved.paths():
        path.write_bytes(b"")
    with pytest.raises(RunError, match="--overwrite"):
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


def test_an_unwritable_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"Cannot write .*file/run"):
        RunFolder(tmp_path / "file" / "run")


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_atomically(path, 5)
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_one_process_s(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(RunError, match="Another process"):
        RunFolder(tmp_path)
    folder.close()
    RunFolder(tmp_path).close()


def begun(path, training):
    folder = RunFolder(path)
    try:
        goes_on = folder.begin(training)
        write_json(folder.config, {"training": training})
        return goes_on
    finally:
        folder.close()


def test_a_run_goes_on_only_with_the_same_settings(tmp_path):
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
    folder = RunFolder(tmp_path)
    assert not folder.begin({"seed": 2}, overwrite=True)
    folder.close()
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "results.json").exists()
