"""A server of our own models, and a stub of a translator."""

import shutil
import subprocess

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


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Files of an authority, of a server's certificate for translator.test and of a client's."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
        subprocess.run([*new, *arguments], cwd=folder, check=True, capture_output=True)

    openssl("-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name, subject in (("server", "translator.test"), ("client", "somebody")):
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", f"subjectAltName=DNS:{subject}")
        written = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
        openssl(*signed, "-subj", f"/CN={subject}", *written)
    return {path.name: str(path) for path in folder.iterdir()}
