"""One export of the tiny translator for all tests and all workers of pytest-xdist."""

import keras
import pytest


@pytest.fixture(scope="session")
def translator():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("the translator needs TensorFlow")
    from translators import tiny_translator

    return tiny_translator()


@pytest.fixture(scope="session")
def version(translator, once):
    """The folder of a version that was checked, with everything an export can have."""
    from translators import LINES

    from keras_tfmr import export_text_model

    def make(folder):
        run = {"bleu": 12.5, "config": {"seed": 1}}
        export_text_model(translator, folder, metadata=run, warmup_texts=LINES[:3])

    return once("translator", make) / "1"


@pytest.fixture(scope="module")
def session(version):
    from keras_tfmr.export.saved_session import SavedSession

    with SavedSession(version) as session:
        yield session
