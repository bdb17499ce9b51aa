"""The client through what stands before a server: a gateway that demands a token, a proxy."""

import contextlib
import re
import socket
import socketserver
import subprocess
import threading
import time
from pathlib import Path

import pytest
from stub_translator import unused_port

from keras_tfmr.client import (
    TLS,
    MessageTooLargeError,
    ServingClient,
    ServingError,
    UnavailableError,
)

protocols = pytest.mark.parametrize("rest", [False, True])
TEXTS = [f"{n} " + "olá, texto " * 11 for n in range(10_000)]  # 1.4 MB: nginx accepts 1 MiB
TOKEN = {"authorization": "Bearer secret"}
PAGE = Path(__file__).resolve().parents[2] / "docs/guide/client.md"
GATEWAY = """
daemon off;
master_process off;
pid "{folder}/pid";
error_log stderr error;
events {{}}
http {{
    access_log off;
    client_body_temp_path "{folder}/1";
    proxy_temp_path "{folder}/2";
    fastcgi_temp_path "{folder}/3";
    uwsgi_temp_path "{folder}/4";
    scgi_temp_path "{folder}/5";
    {server}
}}
"""


def ask(address, texts, **options):
    with ServingClient(address, **options) as client:
        return client.translate(texts)


@pytest.fixture(scope="module")
def gateway(server, certificates, tmp_path_factory):
    """nginx before the development server, as the guide sets it up: `HOST:PORT`."""
    folder = tmp_path_factory.mktemp("nginx")
    (text,) = re.findall(r"```nginx\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    with unused_port() as port:
        changed = {name: f'"{certificates[name]}"' for name in ("server.pem", "server.key")}
        changed |= {"listen 443": f"listen 127.0.0.1:{port} reuseport"}
        changed |= {":8501": f":{server.rest_port}", ":8500": f":{server.port}"}
        for old, new in changed.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        (folder / "nginx.conf").write_text(GATEWAY.format(folder=folder, server=text))
        command = ["nginx", "-p", folder, "-c", folder / "nginx.conf", "-e", "stderr"]
        with subprocess.Popen(command) as process:
            try:
                while process.poll() is None:
                    with contextlib.suppress(OSError):
                        socket.create_connection(("127.0.0.1", port)).close()
                        break
                    time.sleep(0.05)
                yield f"127.0.0.1:{port}"
            finally:
                process.terminate()


@pytest.fixture
def tls(certificates):
    return TLS(certificates["ca.pem"], server_name="translator.test")


@pytest.mark.needs("nginx", "openssl")
@protocols
def test_ten_thousand_texts_through_a_gateway_that_demands_a_token(rest, gateway, tls):
    answers = ask(gateway, TEXTS, rest=rest, tls=tls, headers=TOKEN)
    assert [one.text for one in answers] == [text.upper() for text in TEXTS]
    for headers in ({}, {"authorization": "Bearer wrong"}):
        with pytest.raises(ServingError, match=r"UNAUTHENTICATED.*401.*token") as caught:
            ask(gateway, TEXTS, rest=rest, tls=tls, headers=headers)
        assert caught.value.code == "UNAUTHENTICATED" and "wrong" not in str(caught.value)
    whole = {"batch_texts": len(TEXTS), "batch_bytes": 1 << 30}
    with pytest.raises(MessageTooLargeError, match="413"):
        ask(gateway, TEXTS, rest=rest, tls=tls, headers=TOKEN, **whole)


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy that notes the first line of each connection, in `asked`, and hangs up."""

    daemon_threads = True

    def __init__(self):
        self.asked = []
        super().__init__(("127.0.0.1", 0), _Connection)


class _Connection(socketserver.StreamRequestHandler):
    def handle(self):
        self.server.asked.append(self.rfile.readline().decode().strip())


@pytest.fixture
def proxy(monkeypatch):
    """A proxy that the environment names."""
    for name in ("no_proxy", "grpc_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with Proxy() as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_address[1]}")
        yield proxy
        proxy.shutdown()


@protocols
def test_the_proxy_of_the_environment(rest, server, proxy, monkeypatch):
    def is_asked():
        proxy.asked.clear()
        with pytest.raises(UnavailableError):  # nobody else knows this name
            ask("server.test:9", ["a"], rest=rest, retry=False, timeout=5)
        return bool(proxy.asked) and "server.test:9" in proxy.asked[0]

    assert is_asked()
    port = server.rest_port if rest else server.port
    assert ask(f"127.0.0.1:{port}", ["a"], rest=rest) == ["A"]  # which no proxy can reach
    monkeypatch.setenv("no_proxy", "server.test")
    assert not is_asked()


def test_a_proxy_that_cannot_be_used_is_named(monkeypatch):
    monkeypatch.setenv("all_proxy", "gopher://proxy.test")
    with pytest.raises(ValueError, match=r"proxy cannot be used.*gopher"):
        ServingClient("server.test", rest=True)
