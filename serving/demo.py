"""A page that asks a model as you type: a translator, a classifier or a language model.

    python serving/demo.py --model_base_path=RUN_FOLDER/saved_model     # starts its own server
    python serving/demo.py --server=127.0.0.1:8500                      # uses a running one

Open the address that it prints. Of a translator, it shows what each word attends to. The page is
for one person on one machine: it listens on loopback unless --host says otherwise. It takes
languages and examples from the export's folder; of a running server, only --languages names them.
Exit status: 0 after Ctrl-C or SIGTERM, 1 if the server that it started ended, 2 wrong arguments or
the port is in use.
"""

if __name__ == "__main__":
    from training.command.scripts import end_at_ctrl_c

    end_at_ctrl_c()

import asyncio
import contextlib
import json
import logging
import re
import signal
import sys
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from keras_tfmr._tied import Tie
from keras_tfmr.client import ServingClient
from keras_tfmr.presets.languages import is_of_phrasebook, languages_of
from serving.demo_api import ENDED, Origin, application
from serving.devserver.address import with_default_port
from serving.devserver.errors import StatusError
from serving.devserver.versions import versions_on_disk
from training.command import scripts

ROOT = Path(__file__).resolve().parents[1]
SAY_SO = 5  # seconds in which open pages learn that the server has ended
METADATA = Path("assets.extra", "keras_tfmr.json")  # in the folder of a version


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--server",
        metavar="HOST:PORT",
        default="127.0.0.1:8500",
        help="prediction server (default: 127.0.0.1:8500)",
    )
    where.add_argument(
        "--model_base_path", metavar="DIR", help="start a development server for this folder"
    )
    add("--model", metavar="NAME", default="default", help="name of the model on the server")
    add(
        "--languages",
        nargs=2,
        metavar="CODE",
        default=None,
        help="codes of source and target, as in pt en (default: those that the config names)",
    )
    host = "address to listen on; 0.0.0.0 opens the page to the network"
    add("--host", metavar="ADDRESS", default="127.0.0.1", help=host)
    port = {"type": scripts.at_least(0), "metavar": "N", "default": 8080}
    add("--port", **port, help="port of the page; 0 for any free one")
    return parser.parse_args(arguments)


@contextlib.asynccontextmanager
async def own_server(directory, model):
    """Runs the development server for a model's folder; yields (HOST:PORT, process).

    It takes some seconds to load the model; the page says so and waits.

    Raises:
        ValueError: It could not start.
    """
    with contextlib.closing(Tie()) as tie:
        process = await asyncio.create_subprocess_exec(
            *tie.command(ROOT / "serving" / "server.py"),
            *("--port=0", "--rest_api_port=0", "--grace_seconds=1"),
            *(f"--model_base_path={directory}", f"--model_name={model}"),
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[tie.watched],
        )
        try:
            line = (await process.stdout.readline()).decode()
            if not (address := re.match(r"gRPC on (\S+),", line)):
                raise ValueError("the model server did not start")
            yield address[1], process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def origin_of(directory):
    """The `Origin` of the newest version in a folder, as far as it can be read."""
    try:
        _, newest = max(versions_on_disk(Path(directory)).items())
        metadata = json.loads((newest / METADATA).read_text(encoding="utf-8"))
        examples = [text for text in metadata.get("examples", ()) if isinstance(text, str)]
        config = metadata["run"].get("config", {})
        return Origin(languages_of(config), is_of_phrasebook(config), examples)
    except (AttributeError, LookupError, StatusError, OSError, TypeError, ValueError):
        return Origin()


async def serve(options):
    """Serves the page until a signal stops it, or until the server that it started ends.

    Returns:
        Exit status: 1 if that server has ended, 0 after a signal.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        server, process = options.server, None
        origin = Origin()
        if options.model_base_path:
            origin = origin_of(options.model_base_path)
            own = own_server(options.model_base_path, options.model)
            server, process = await stack.enter_async_context(own)
        client = stack.enter_context(ServingClient(server, model=options.model, retry=False))
        if options.languages:
            origin = origin._replace(languages=options.languages)
        app = application(client, origin, options.host)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        await web.TCPSite(runner, options.host, options.port).start()
        address = with_default_port(options.host, runner.addresses[0][1])
        print(f"Open http://{address}", flush=True)
        if not await ended(process, stop):
            return 0
        print("demo.py: error: the model server has ended", file=sys.stderr, flush=True)
        app[ENDED].set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), SAY_SO)
        return 1


async def ended(process, stop):
    """Waits for the end of a process (None: never) or for the event; whether it was the first."""
    waits = [asyncio.create_task(stop.wait())]
    if process is not None:
        waits.append(asyncio.create_task(process.wait()))
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    waits[0].cancel()
    return not stop.is_set()


def is_worth_a_line(record):
    """Whether a log record is of more than a client that does not speak HTTP."""
    no_http = HttpProcessingError, web.RequestPayloadError
    return not (record.exc_info and isinstance(record.exc_info[1], no_http))


def main():
    options = parse_arguments()
    logging.getLogger("aiohttp.server").addFilter(is_worth_a_line)
    try:
        return asyncio.run(serve(options))
    except (OSError, OverflowError, ValueError) as error:
        print(f"demo.py: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
