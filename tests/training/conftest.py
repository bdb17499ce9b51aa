"""One finished run of a tiny translator for all tests and all workers of pytest-xdist."""

import pytest
from tiny_runs import TINY, finished, start, write_pairs


@pytest.fixture(scope="session")
def whole(once):
    """The folder of a finished run that nobody disturbed; beside it said.txt and pairs.tsv."""

    def make(folder):
        folder.mkdir()
        corpus = write_pairs(folder / "pairs.tsv")
        words = ("--data", corpus, "--output", folder / "run", *TINY, "joint_vocab=false")
        more = ("--vocab_size", "280", "--dropout_rate", "0.3", "--steps", "60", "--num_beams", "2")
        process = start(*words, *more, KERAS_BACKEND="tensorflow")
        (folder / "said.txt").write_text(finished(process), encoding="utf-8")

    return once("training", make) / "run"
