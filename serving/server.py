"""The development server, for one machine and without a container.

    python serving/server.py runs/mine
    python serving/server.py hf://Helsinki-NLP/opus-mt-tc-big-en-it
    python serving/server.py --model_base_path=runs/mine/saved_model

It serves the newest version under a folder over gRPC and REST, as TensorFlow Serving does. PRESET,
a run or a published model, is exported into a temporary folder first. Use it to try a model out and
for tests; in production, use TensorFlow Serving itself (serving/deploy).

After Ctrl-C or SIGTERM, the requests that it has taken have 30 seconds to finish; a second signal
ends it at once. Exit status: 0 after a signal, 130 or 143 if it did not serve yet, 1 if it could
not start, 2 wrong arguments.
"""

import asyncio
import contextlib
import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading

from aiohttp import web

from keras_tfmr.compat import quiet_libraries
from training.command import scripts

MAX_REQUEST_BYTES = 64 << 20
REST_TIMEOUT = 30  # seconds of a request over REST, the wait included; gRPC's callers set theirs
POLL = 1  # seconds between looks for another version
GRACE = 30  # seconds in which requests can finish after a signal: as long as they may take


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    # fmt: off
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("preset", metavar="PRESET", nargs="?",
        help="folder of a run, published model, or hf://OWNER/NAME")
    which.add_argument("--model_base_path", metavar="DIR", help="folder of the versions 1, 2, …")
    parser.add_argument("--model_name", metavar="NAME", default="default",
        help="name of the model in requests")
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1",
        help="address to listen on; 0.0.0.0 opens the server to the network")
    parser.add_argument("--port", metavar="N", type=scripts.port, default=8500,
        help="gRPC port; 0 for any free one")
    parser.add_argument("--rest_api_port", metavar="N", type=scripts.port, default=8501,
        help="REST port; 0 for any free one")
    # fmt: on
    options = parser.parse_args(arguments)
    if options.port == options.rest_api_port != 0:
        parser.error(f"--port and --rest_api_port must differ. Received: {options.port} twice")
    return options


def main(arguments=None):
    """Runs the server; returns its exit status."""
    options = parse_arguments(arguments)
    with contextlib.ExitStack() as stack:
        try:  # before what takes long
            rpc_port = stack.enter_context(reserved(options.host, options.port))
            rest_port = stack.enter_context(reserved(options.host, options.rest_api_port))
        except OSError as error:
            print(f"server.py: error: {error}", file=sys.stderr)
            return 1
        folder = options.model_base_path
        if options.preset:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            export = [sys.executable, pathlib.Path(__file__).with_name("export.py"), options.preset]
            export += ["--output", folder, "--no_check"]  # in a process, whose memory is free again
            if status := subprocess.run(export, stdout=subprocess.DEVNULL).returncode:
                return status
        return serve(options, folder, rpc_port, rest_port)


def reserved(host, port):
    """A socket with a port of an address, 0 for any free one, that refuses connections yet.

    An OSError if the address is not of this machine, or another server has the port.
    """
    family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    own = socket.socket(family, kind)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # after an earlier server
    try:
        own.bind(address)
    except OSError as error:
        own.close()
        raise OSError(error.errno, f"{host}:{port}: {error.strerror}") from error
    return own


def address_of(host, reserved):
    """HOST:PORT, with brackets around an address of IPv6."""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{reserved.getsockname()[1]}"


def serve(options, base_path, rpc_port, rest_port):
    """Loads the newest version, then serves until a signal; returns the exit status."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # Here, as in `listen`, because it imports TensorFlow: --help is answered at once.
    with quiet_libraries():
        from serving.devserver.session import load
        from serving.devserver.versions import Versions

    versions = Versions(options.model_name, base_path, load)
    try:
        versions.follow()
        return asyncio.run(listen(versions, options.host, rpc_port, rest_port))
    except Exception as error:
        print(f"server.py: error: {error}", file=sys.stderr)
        return 1


async def listen(versions, host, rpc_port, rest_port):
    """Answers requests at reserved ports, and follows the versions, until a signal; returns 0."""
    from serving.devserver import grpc_api, rest_api
    from serving.devserver.workers import Workers

    workers = Workers()  # of both protocols
    rpc = grpc_api.server_of(versions, workers, MAX_REQUEST_BYTES)
    address = address_of(host, rpc_port)
    rpc_port.close()  # gRPC takes no sockets
    rpc.add_insecure_port(address)
    await rpc.start()
    app = rest_api.RestApi(versions, workers, REST_TIMEOUT).application(MAX_REQUEST_BYTES)
    options = {"access_log": None, "shutdown_timeout": GRACE, "handler_cancellation": True}
    runner = web.AppRunner(app, **options)
    await runner.setup()
    await web.SockSite(runner, rest_port).start()
    threading.Thread(target=versions.watch, args=(POLL,), daemon=True).start()
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    rest = f"http://{address_of(host, rest_port)}/v1/models/{versions.name}"
    print(f"gRPC on {address}, REST on {rest}", flush=True)
    await stop.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)  # a second one ends the process
    await asyncio.gather(rpc.stop(GRACE), runner.cleanup())
    return 0


if __name__ == "__main__":
    # As Ctrl-C is, an exception, which ends the export and removes the temporary folder.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        status = main()
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    os._exit(status)  # at once: a thread may be in a model's run, and cannot be stopped
