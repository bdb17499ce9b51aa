"""One export of the tiny translator for all tests and all workers of pytest-xdist."""

import keras
import pytest


@pytest.fixture(scope="session")
def translator():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the translator needs TensorFlow")
    from translators import tiny_translator

    return tiny_translator(length_penalty=0.5)


@pytest.fixture(scope="session")
def version(translator, once):
    """The folder of a version that the command made of a run and checked: the translator's."""
    from translators import LINES, write_run

    from serving import export

    def make(folder):
        run = write_run(folder / "run", num_beams=2, length_penalty=0.5)
        (run / "results.json").write_text('{"validation_bleu": 12.5}')
        rows = [f'{line}\treference\t"hypothesis\t-1.0\t50.0' for line in LINES[:3]]
        table = ["source\treference\thypothesis\tscore\tchrf", *rows]
        (run / "translations.tsv").write_text("\n".join(table) + "\n", encoding="utf-8")
        words = f"{run} --output {folder / 'models'} --num_beams 3 --nbest 2 --max_length 12"
        assert export.main([*words.split(), "--max_source_length", "24"]) == 0

    return once("translator", make) / "models" / "1"


@pytest.fixture(scope="module")
def session(version):
    from keras_tfmr.export.saved_session import SavedSession

    with SavedSession(version) as session:
        yield session
