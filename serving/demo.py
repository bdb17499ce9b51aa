"""A page that asks a model as you type: a translator, a classifier or a language model.

    python serving/demo.py --model_base_path=RUN_FOLDER/saved_model     # starts its own server
    python serving/demo.py --server=127.0.0.1:8500                      # uses a running one

Open the address that it prints. Of a translator, it shows what each word attends to. The page is
for one person on one machine: it listens on loopback unless --host says otherwise. It takes
languages and examples from the export's folder; of a running server, only --languages names them.
Exit status: 0 after Ctrl-C or SIGTERM, 1 if the server or the page could not start, 2 wrong
arguments.
"""

import contextlib
import json
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from aiohttp import web

from keras_tfmr.client import ServingClient
from serving.demo_api import Origin, application
from training.command import scripts

SERVER = Path(__file__).with_name("server.py")
METADATA = "*/assets.extra/keras_tfmr.json"  # in the folder of versions


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    # fmt: off
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--server", metavar="HOST:PORT", default="127.0.0.1:8500",
        help="prediction server")
    where.add_argument("--model_base_path", metavar="DIR",
        help="start a development server for this folder of versions")
    parser.add_argument("--model", metavar="NAME", default="default",
        help="name of the model on the server")
    parser.add_argument("--languages", nargs=2, metavar="CODE",
        help="codes of source and target, as in pt en (default: those that the export names)")
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1",
        help="address to listen on; 0.0.0.0 opens the page to the network")
    parser.add_argument("--port", type=scripts.port, metavar="N", default=8080,
        help="port of the page; 0 for any free one")
    # fmt: on
    return parser.parse_args(arguments)


@contextlib.contextmanager
def own_server(folder, model):
    """Runs the development server for a folder of versions; yields its process and HOST:PORT."""
    command = [sys.executable, SERVER, "--port=0", "--rest_api_port=0"]
    command += [f"--model_base_path={folder}", f"--model_name={model}"]
    print("Loading the model …", flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if not (address := re.match(r"gRPC on (\S+),", process.stdout.readline())):
                raise OSError("the model server did not start")
            yield process, address[1]
        finally:
            process.terminate()


def origin_of(folder):
    """The `Origin` of the newest version in a folder."""
    files = {int(f.parts[-3]): f for f in Path(folder).glob(METADATA) if f.parts[-3].isdecimal()}
    if not files:
        return Origin()
    metadata = json.loads(files[max(files)].read_text(encoding="utf-8"))
    options = metadata.get("text_model", {}).get("config", {})
    config = metadata.get("run", {}).get("config", {})
    return Origin(
        languages=tuple(options.get("languages", ("", ""))),
        is_phrasebook=config.get("phrasebook", False),
        examples=metadata.get("examples", []),
    )


def main(arguments=None):
    """Serves the page until a signal; returns the exit status."""
    options, origin = parse_arguments(arguments), Origin()
    try:
        with contextlib.ExitStack() as stack:
            if options.model_base_path:
                origin = origin_of(options.model_base_path)
                own = own_server(options.model_base_path, options.model)
                _, options.server = stack.enter_context(own)
            if options.languages:
                origin = origin._replace(languages=options.languages)
            client = ServingClient(options.server, model=options.model, retry=False)
            app = application(stack.enter_context(client), origin)
            listen = {"host": options.host, "port": options.port, "shutdown_timeout": 1}
            web.run_app(app, **listen, access_log=None, print=partial(print, flush=True))
    except (OSError, ValueError) as error:
        print(f"demo.py: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    # As Ctrl-C is, an exception, which ends the server while it loads.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
