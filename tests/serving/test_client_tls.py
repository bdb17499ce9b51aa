"""The client over TLS, with certificates on both sides."""

import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from stub_translator import StubTranslator, serving

from keras_tfmr.client import TLS, ServingClient, UnavailableError

ROOT = Path(__file__).resolve().parents[2]

COMMAND = [sys.executable, str(ROOT / "serving" / "client.py")]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A certificate authority, a server's certificate for translator.test and a client's."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl(*new, "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name, subject in (("server", "translator.test"), ("client", "somebody")):
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-addext", f"subjectAltName=DNS:{subject}")
        files = ("-keyout", f"{name}.key", "-out", f"{name}.pem")
        openssl(*new, *signed, "-subj", f"/CN={subject}", *files)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def server(certificates):
    """A server that wants to see a client certificate."""
    pem = {name: path.read_bytes() for name, path in certificates.items()}
    credentials = grpc.ssl_server_credentials(
        [(pem["server.key"], pem["server.pem"])], pem["ca.pem"], require_client_auth=True
    )
    with serving(StubTranslator(), credentials=credentials) as address:
        yield address


@pytest.fixture(scope="module")
def files(certificates):
    return {name: str(certificates[f"{name}.pem"]) for name in ("ca", "client")} | {
        "key": str(certificates["client.key"])
    }


def test_both_sides_show_a_certificate(server, files):
    tls = TLS(files["ca"], files["client"], files["key"], server_name="translator.test")
    with ServingClient(server, tls=tls) as client:
        assert client.translate(["a"])[0].text == "A"


def test_anybody_else_is_refused(server, files):
    anonymous = TLS(files["ca"], server_name="translator.test")
    wrong_name = TLS(files["ca"], files["client"], files["key"])
    unknown_authority = TLS(None, files["client"], files["key"], server_name="translator.test")
    for tls in (None, anonymous, wrong_name, unknown_authority):
        with (
            ServingClient(server, tls=tls, retry=False) as client,
            pytest.raises(UnavailableError),
        ):
            client.translate(["a"])


def test_the_command(server, files):
    flags = [f"--server={server}", "--server_name=translator.test", f"--ca={files['ca']}"]
    flags += [f"--cert={files['client']}", f"--key={files['key']}"]
    done = subprocess.run([*COMMAND, *flags, "bom dia"], capture_output=True, timeout=60)
    assert done.returncode == 0 and done.stdout == b"BOM DIA\n"
