"""One export and one server for all tests of this folder and all workers of pytest-xdist."""

import fcntl
import json
import os
import signal
from contextlib import contextmanager

import pytest
import server_models
from server_process import Server, ServerProcess
from stub_translator import StubTranslator, serving


@pytest.fixture(scope="session")
def toys(once):
    """The folder of the version of `server_models.Toys`."""
    return once("toys", server_models.save) / "1"


@pytest.fixture(scope="session")
def server(shared, toys):
    """A server of `Toys`; the first worker starts it, the last one ends it."""

    @contextmanager
    def counted(change):
        with open(shared / "server.json", "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            found = json.loads(file.read() or '{"users": 0}')
            found["users"] += change
            yield found
            file.truncate(0)
            file.write(json.dumps(found))

    with counted(1) as found:
        if found["users"] == 1:
            flags = ["--max_queue=20", "--threads=2", "--rest_api_timeout_in_ms=2000"]
            flags += [f"--max_request_bytes={1 << 20}", f"--model_base_path={toys.parent}"]
            started = ServerProcess(shared, *flags)
            found |= {"ports": (started.port, started.rest_port), "pid": started.process.pid}
    server = Server(*found["ports"])
    yield server
    server.channel.close()
    with counted(-1) as found:
        if not found["users"]:
            os.kill(found["pid"], signal.SIGTERM)


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
