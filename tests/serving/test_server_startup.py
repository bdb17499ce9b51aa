"""How the development server starts, refuses to start, and stops."""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import types

import grpc
import psutil
import pytest
import server_models
from grpc._cython import cygrpc
from server_models import request
from server_process import ServerProcess, free_port, start, status_of

from keras_tfmr.export import saved_session
from serving.devserver import app, grpc_server


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("startup")
    server_models.half_plus(folder / "half", 1)
    server_models.slow(folder / "slow", 1)
    broken = folder / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "saved_model.pb").write_bytes(b"no model")
    (folder / "empty").mkdir()
    (folder / "bad.config").write_text("model_config_list { config { name: 7 } }")
    (folder / "relative.config").write_text(
        'model_config_list { config { name: "m" base_path: "x" model_platform: "tensorflow" } }'
    )
    (folder / "labels.config").write_text(
        f'model_config_list {{ config {{ name: "half" base_path: "{folder}/half" '
        f'model_platform: "tensorflow" version_labels {{ key: "stable" value: 1 }} }} }}'
    )
    (folder / "batching.config").write_text("max_batch_size { value: 4 }")
    return folder


def test_what_cannot_start_says_so_in_one_line(models, tmp_path):
    """Started together: each needs a process of its own."""
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    half = f"--model_base_path={models}/half"
    cases = {
        "gRPC port in use": ([half, f"--port={port}"], f"cannot listen on 127.0.0.1:{port}"),
        "REST port in use": (
            [half, "--port=0", f"--rest_api_port={port}"],
            f"cannot listen on 127.0.0.1:{port}",
        ),
        "UNIX socket nowhere": (
            [half, "--port=0", f"--grpc_socket_path={models}/none/socket"],
            f"Failed to bind to address unix:{models}/none/socket",
        ),
        "no such model": (
            [f"--model_base_path={models}/none"],
            f"Could not find base path {models}/none",
        ),
        "no version": (
            [f"--model_base_path={models}/empty"],
            f"No versions of servable default found under base path {models}/empty.",
        ),
        "broken model": (
            [
                f"--model_base_path={models}/broken",
                "--max_num_load_retries=1",
                "--load_retry_interval_micros=1000",
            ],
            "1 servable(s) did not become available: {{{name: default version: 1} due to error: ",
        ),
        "unparsable config": (
            [f"--model_config_file={models}/bad.config"],
            "Error parsing text-format tensorflow.serving.ModelServerConfig: 1:",
        ),
        "relative path in a config": (
            [f"--model_config_file={models}/relative.config"],
            "Expected model m to have an absolute path or URI; got base_path()=x",
        ),
        "no such config": ([f"--model_config_file={models}/none"], f"{models}/none; No such file"),
        "labels before versions are loaded": (
            [f"--model_config_file={models}/labels.config"],
            "FAILED_PRECONDITION: Request to assign label to version 1 of model half, which is not "
            "currently available for inference",
        ),
        "batching file without batching": (
            [half, f"--batching_parameters_file={models}/batching.config"],
            "--batching_parameters_file is set without setting --enable_batching to true.",
        ),
        "nothing to serve": ([], "one of --model_base_path and --model_config_file is required"),
        "unknown flag": ([half, "--no_such_flag=1"], "unrecognized arguments: --no_such_flag=1"),
        "no number": ([half, "--port=x"], "argument --port: invalid int value: 'x'"),
    }
    free = f"--port={free_port()}"
    started = {
        name: start(tmp_path / name, *([] if "--port" in str(flags) else [free]), *flags)
        for name, (flags, _) in cases.items()
    }
    for name, process in started.items():
        assert process.wait(120) != 0, name
        last = (tmp_path / name).read_text().splitlines()[-1]
        assert cases[name][1] in last, name
        assert "Traceback" not in (tmp_path / name).read_text(), name
    taken.close()


def test_sigterm_finishes_what_is_running(models):
    with ServerProcess(models, f"--model_base_path={models}/slow") as server:
        running = server.prediction.Predict.future(request(ms=[4000]), timeout=60)
        # What is answered on the same connection has come after it.
        assert status_of(server.prediction.Predict, request(ms=[1]), timeout=20)[0] == "OK"
        server.process.send_signal(signal.SIGTERM)

        def refuses():
            with server.connect() as late:
                stub = type(server.prediction)(late)
                return status_of(stub.Predict, request(ms=[1]), timeout=10)[0] == "UNAVAILABLE"

        server.wait_for(refuses)
        assert "Stopping: finishing what is running" in server.stderr() and not running.done()
        assert list(running.result().outputs["ms"].int_val) == [4000]
        assert server.process.wait(30) == 0
        assert "Traceback" not in server.stderr()


def listening(pid):
    """Addresses on which a process accepts TCP connections."""
    connections = psutil.Process(pid).net_connections("tcp")
    open_to = [c.laddr for c in connections if c.status == psutil.CONN_LISTEN]
    return {(host.removeprefix("::ffff:"), port) for host, port in open_to}


def openssl(folder, *arguments):
    subprocess.run(["openssl", *map(str, arguments)], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, and a server's and a client's key and certificate signed by it."""
    folder = tmp_path_factory.mktemp("certificates")
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        folder,
        "req",
        "-x509",
        *new_key,
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
        "-subj",
        "/CN=authority",
        "-days",
        "2",
    )
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
        openssl(
            folder,
            "req",
            *new_key,
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
            "-subj",
            f"/CN={name}",
        )
        openssl(
            folder,
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-out",
            f"{name}.crt",
            "-days",
            "2",
            "-extfile",
            f"{name}.ext",
        )
    return folder


def test_tls_with_client_certificates_and_unix_socket(models, certificates, tmp_path):
    def pem(name):
        return (certificates / name).read_bytes()

    fields = {"server_key": "server.key", "server_cert": "server.crt", "custom_ca": "ca.crt"}
    lines = [f"{field}: {pem(file).decode()!r}" for field, file in fields.items()]
    (tmp_path / "ssl.config").write_text("\n".join([*lines, "client_verify: true"]))
    path = tmp_path / "socket"
    with ServerProcess(
        tmp_path,
        f"--model_base_path={models}/half",
        f"--ssl_config_file={tmp_path}/ssl.config",
        f"--grpc_socket_path={path}",
    ) as server:

        def ask(credentials):
            channel = grpc.secure_channel(f"localhost:{server.port}", credentials)
            try:
                return status_of(
                    type(server.prediction)(channel).Predict, request(x=[1.0]), timeout=10
                )[0]
            finally:
                channel.close()

        known = grpc.ssl_channel_credentials(pem("ca.crt"), pem("client.key"), pem("client.crt"))
        assert ask(known) == "OK"
        assert ask(grpc.ssl_channel_credentials(pem("ca.crt"))) == "UNAVAILABLE"
        assert status_of(server.prediction.Predict, request(x=[1.0]), timeout=5)[0] == "UNAVAILABLE"
        assert server.http("/v1/models/default")[0] == 200  # REST stays plain, as in the real one
        assert stat.S_ISSOCK(os.stat(path).st_mode)
        with grpc.insecure_channel(f"unix:{path}") as channel:
            stub = type(server.prediction)(channel)
            assert list(stub.Predict(request(x=[1.0])).outputs["y"].float_val) == [2.5]
        # Nothing listens beyond loopback.
        ports = {("127.0.0.1", server.port), ("127.0.0.1", server.rest_port)}
        assert listening(server.process.pid) == ports
        assert server.terminate() == 0


def test_xla_needs_its_flag(models, tmp_path):
    server_models.compiled(tmp_path / "xla")
    for flags, code, text in (
        ([], "INTERNAL", "XLA compilation disabled"),
        (["--xla_cpu_compilation_enabled=true"], "OK", ""),
    ):
        with ServerProcess(tmp_path, f"--model_base_path={tmp_path}/xla", *flags) as server:
            found = status_of(server.prediction.Predict, request(x=[1.0]), timeout=60)
            assert found[0] == code and text in found[1]


def test_says_so_where_xla_cannot_be_turned_off(monkeypatch, caplog):
    monkeypatch.setattr(saved_session, "_library", types.SimpleNamespace)
    app._refuse_xla()
    assert "does not export _ZN10tensorflow21DisableXlaCompilationEv" in caplog.text


def test_what_grpcio_has_dealt_with_is_not_reported(caplog):
    """A connection ends at the moment of the answer; a header is not UTF-8."""

    async def make():
        return grpc_server.server([], [])

    asyncio.run(make())
    log = logging.getLogger("grpc._cython.cygrpc")
    log.error("Invalid encoding on %s", b"\xff")
    errors = [cygrpc.ExecuteBatchError("nobody there"), ValueError("ours")]
    for error in errors:
        log.error("raised", exc_info=error)
    assert [record.exc_info[1] for record in caplog.records] == errors[1:]


ARENAS = """
import ctypes, sys, threading
from serving.devserver import memory
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
if sys.argv[1:]:
    memory.share_arenas()
gate = threading.Barrier(7)
def allocate():
    libc.malloc(1000)
    gate.wait()
for _ in range(6):
    threading.Thread(target=allocate).start()
gate.wait()
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fflush(file)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="glibc reports it")
def test_threads_share_arenas():
    def arenas(*arguments):
        command = [sys.executable, "-c", ARENAS, *arguments]
        return subprocess.run(command, capture_output=True, text=True).stdout.count("<heap nr=")

    assert arenas("shared") == 2 < arenas()
