"""The development server, for one machine and without a container.

    python serving/server.py runs/mine
    python serving/server.py hf://Helsinki-NLP/opus-mt-tc-big-en-it
    python serving/server.py --model_base_path=runs/mine/saved_model

It serves the newest version under a folder over gRPC and REST, as TensorFlow Serving does. PRESET,
a run or a published model, is exported into a temporary folder first. Use it to try a model out and
for tests; in production, use TensorFlow Serving itself (serving/deploy). Exit status: 0 after
Ctrl-C or SIGTERM, 130 or 143 if they came while PRESET was exported, 1 if it could not start,
2 wrong arguments.
"""

if __name__ == "__main__":
    from training.command.scripts import end_at_ctrl_c

    end_at_ctrl_c()

import asyncio
import contextlib
import logging
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from keras_tfmr._tied import Tie
from keras_tfmr.compat import usable_cores
from keras_tfmr.export.batching import MAX_BATCH_SIZE
from training.command import scripts
from training.command.process import Stop


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    add = parser.add_argument
    which = parser.add_mutually_exclusive_group(required=True)
    preset = "folder of a run, published model, archive of one, or hf://OWNER/NAME"
    which.add_argument("preset", metavar="PRESET", nargs="?", help=preset)
    folder = "folder with the version folders 1, 2 and so on"
    which.add_argument("--model_base_path", metavar="DIR", help=folder)
    add("--model_name", metavar="NAME", default="default", help="name of the model in requests")
    host = "address to listen on; 0.0.0.0 opens the server to the network"
    add("--host", metavar="ADDRESS", default="127.0.0.1", help=host)
    for name, least, default, meaning in (
        ("--port", 0, 8500, "gRPC port; 0 for any free one"),
        ("--rest_api_port", 0, 8501, "REST port; 0 for any free one"),
        ("--rest_api_timeout_in_ms", 1, 30000, "time limit of a REST request, milliseconds"),
        ("--max_request_bytes", 1, 64 << 20, "maximum size of a request"),
        ("--max_batch_size", 1, MAX_BATCH_SIZE, "maximum texts in a request"),
        ("--max_queue", 0, 256, "maximum queue length; further requests get UNAVAILABLE"),
        ("--threads", 1, usable_cores(), "concurrent requests (default: the cores)"),
        ("--grace_seconds", 0, 30, "seconds to finish requests after SIGTERM"),
    ):
        number = scripts.at_least(least)
        add(name, type=number, default=default, metavar="N", help=meaning)
    poll = "seconds between checks for a new version; 0 checks once"
    number = scripts.at_least(0.0)
    add("--file_system_poll_wait_seconds", type=number, default=1, metavar="S", help=poll)
    return parser.parse_args(arguments)


def main(arguments=None):
    """Runs the server; returns its exit status."""
    options, stop = parse_arguments(arguments), Stop()
    try:
        with stop, contextlib.ExitStack() as stack:
            if options.preset:
                options.model_base_path = stack.enter_context(tempfile.TemporaryDirectory())
                if status := export(options.preset, options.model_base_path):
                    return status
            return serve(options, stack.close)
    except KeyboardInterrupt:
        return 128 + stop.received


def export(preset, folder):
    """Exports a preset by a process of its own, whose memory is free again; its exit status."""
    script = pathlib.Path(__file__).with_name("export.py")
    with contextlib.closing(Tie()) as tie:
        command = tie.command(script, preset, "--output", folder, "--no_check")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, pass_fds=[tie.watched])
        try:
            return process.wait()
        finally:
            process.kill()  # if it is still there
            process.wait()


def serve(options, clean_up):
    """Serves the folder of versions; returns the exit status.

    Args:
        options: The command line.
        clean_up: Is called if the process must end at once.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # clients that do not speak HTTP
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # TensorFlow imports Keras, and with it JAX, if they are there: half of its time, for nothing.
    sys.modules.update(keras=None, jax=None)
    from serving.devserver import app

    return asyncio.run(app.serve(options, clean_up))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # at once: a thread may still be loading a model, and cannot be stopped
