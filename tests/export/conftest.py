"""The export of the finished run, in process and in a session."""

import pytest


@pytest.fixture(scope="session")
def translator(whole):
    from training.run import RunFolder

    return RunFolder(whole).translator()


@pytest.fixture(scope="session")
def version(whole):
    """The folder of the version that the run exported and checked."""
    return whole / "saved_model" / "1"


@pytest.fixture(scope="module")
def session(version):
    from keras_tfmr.export.saved_session import SavedSession

    with SavedSession(version) as session:
        yield session
