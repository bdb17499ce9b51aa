"""A stub of a translator, and what else its clients need."""

import pytest
from stub_translator import StubTranslator, serving


@pytest.fixture(scope="module")
def stubbed():
    """A stub and its `HOST:PORT`."""
    stub = StubTranslator()
    with serving(stub) as address:
        yield stub, address


@pytest.fixture
def stub(stubbed):
    stubbed[0].__init__()  # as new for each test
    return stubbed[0]


@pytest.fixture
def address(stubbed, stub):
    return stubbed[1]
