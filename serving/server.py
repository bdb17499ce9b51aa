"""The development server, for one machine and without a container.

    python serving/server.py runs/mine
    python serving/server.py hf://Helsinki-NLP/opus-mt-tc-big-en-it
    python serving/server.py --model_base_path=runs/mine/saved_model

It serves the newest version under a folder over gRPC and REST, as TensorFlow Serving does. PRESET,
a run or a published model, is exported into a temporary folder first. Use it to try a model out and
for tests; in production, use TensorFlow Serving itself (serving/deploy). Exit status: 0 after
Ctrl-C or SIGTERM, 130 or 143 if it did not serve yet, 1 if it could not start, 2 wrong arguments.
"""

import argparse
import asyncio
import concurrent.futures
import logging
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

from aiohttp import web

from keras_tfmr.compat import usable_cores

MAX_REQUEST_BYTES = 64 << 20
REST_TIMEOUT = 30  # seconds that a run for REST may take; callers over gRPC have their own limit
POLL = 1  # seconds between looks for a newer version
GRACE = 5  # seconds in which requests can finish after a signal


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    # fmt: off
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("preset", metavar="PRESET", nargs="?",
        help="folder of a run, published model, or hf://OWNER/NAME")
    which.add_argument("--model_base_path", metavar="DIR", help="folder of the versions 1, 2, …")
    parser.add_argument("--model_name", metavar="NAME", default="default",
        help="name of the model in requests (default: default)")
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1",
        help="address to listen on; 0.0.0.0 opens the server to the network (default: 127.0.0.1)")
    parser.add_argument("--port", metavar="N", type=int, default=8500,
        help="gRPC port; 0 for any free one (default: 8500)")
    parser.add_argument("--rest_api_port", metavar="N", type=int, default=8501,
        help="REST port; 0 for any free one (default: 8501)")
    # fmt: on
    return parser.parse_args(arguments)


def main(arguments=None):
    """Runs the server; returns its exit status."""
    options = parse_arguments(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if options.preset:
            export = [sys.executable, pathlib.Path(__file__).with_name("export.py"), options.preset]
            export += ["--output", folder, "--no_check"]  # in a process, whose memory is free again
            if status := subprocess.run(export, stdout=subprocess.DEVNULL).returncode:
                return status
        return serve(options, options.model_base_path or folder)


def serve(options, base_path):
    """Loads the newest version, then serves until a signal; returns the exit status."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # Here, as in `listen`, because it imports TensorFlow: --help is answered at once.
    from serving.devserver.session import load
    from serving.devserver.versions import Versions

    versions = Versions(options.model_name, base_path, load)
    try:
        versions.load_newest()
        return asyncio.run(listen(versions, options))
    except Exception as error:
        print(f"server.py: error: {error}", file=sys.stderr)
        return 1


async def listen(versions, options):
    """Answers requests, and looks for newer versions, until a signal; returns 0."""
    from serving.devserver import grpc_api, rest_api

    pool = concurrent.futures.ThreadPoolExecutor(usable_cores())  # of both protocols
    rpc = grpc_api.server_of(versions, pool, MAX_REQUEST_BYTES)
    port = rpc.add_insecure_port(f"{options.host}:{options.port}")
    rpc.start()
    app = rest_api.RestApi(versions, pool, REST_TIMEOUT).application(MAX_REQUEST_BYTES)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=GRACE)
    await runner.setup()
    await web.TCPSite(runner, options.host, options.rest_api_port).start()
    threading.Thread(target=versions.watch, args=(POLL,), daemon=True).start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    rest = f"http://{options.host}:{runner.addresses[0][1]}/v1/models/{versions.name}"
    print(f"gRPC on {options.host}:{port}, REST on {rest}", flush=True)
    await stop.wait()
    rpc.stop(GRACE)
    await runner.cleanup()
    rpc.wait_for_termination(GRACE)
    return 0


if __name__ == "__main__":
    # As Ctrl-C is, an exception, which ends the export and removes the temporary folder.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        status = main()
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    os._exit(status)  # at once: a thread may be in a model's run, and cannot be stopped
