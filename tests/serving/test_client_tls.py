"""The client over TLS, with certificates on both sides."""

import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from stub_translator import serving

from keras_tfmr.client import TLS, ServingClient, UnavailableError

COMMAND = [sys.executable, Path(__file__).resolve().parents[2] / "serving" / "client.py"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A certificate authority, a server's certificate for translator.test and a client's."""
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


def test_both_sides_show_a_certificate_and_anybody_else_is_refused(files, stub):
    pem = {name: Path(path).read_bytes() for name, path in files.items()}
    credentials = grpc.ssl_server_credentials(
        [(pem["server.key"], pem["server.pem"])], pem["ca.pem"], require_client_auth=True
    )
    name, own = "translator.test", (files["client.pem"], files["client.key"])
    with serving(stub, credentials=credentials) as server:
        flags = [f"--server={server}", f"--server_name={name}", f"--ca={files['ca.pem']}"]
        flags += [f"--cert={own[0]}", f"--key={own[1]}"]
        done = subprocess.run([*COMMAND, *flags, "bom dia"], capture_output=True, timeout=60)
        assert done.returncode == 0 and done.stdout == b"BOM DIA\n"
        anonymous = TLS(files["ca.pem"], server_name=name)
        wrong_name, unknown_authority = TLS(files["ca.pem"], *own), TLS(None, *own, name)
        for tls in (None, anonymous, wrong_name, unknown_authority):
            client = ServingClient(server, tls=tls, retry=False)
            with client, pytest.raises(UnavailableError):
                client.translate(["a"])
