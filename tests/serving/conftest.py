"""A server of our own models, and a stub of a translator."""

import pytest
import server_process
from server_process import ServerProcess
from stub_translator import StubTranslator, serving


@pytest.fixture(scope="session")
def toys(once):
    """The folder of the version of `server_process.Toys`."""
    return once("toys", server_process.save) / "1"


@pytest.fixture(scope="session")
def server(shared, toys):
    """A server of `Toys` for all tests of this worker."""
    flags = ["--max_queue=20", "--threads=2", "--rest_api_timeout_in_ms=2000"]
    flags += [f"--max_request_bytes={1 << 20}", f"--model_base_path={toys.parent}"]
    with ServerProcess(shared, *flags) as server:
        yield server


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


@pytest.fixture(scope="module")
def driver():
    from browser import chromium  # selenium is only needed for it

    with chromium() as driver:
        yield driver
