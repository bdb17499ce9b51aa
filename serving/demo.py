"""A page that translates as you type, and shows what each word attended to.

    python serving/demo.py --model_base_path=RUN_FOLDER/saved_model     # starts its own server
    python serving/demo.py --server=127.0.0.1:8500                      # uses a running one

Open the address that it prints. The page is for one person on one machine: it listens on loopback
only.
"""

import asyncio
import contextlib
import signal
import socket
import sys
import time
from pathlib import Path

from aiohttp import web

from keras_tfmr import _command_line
from keras_tfmr.client import (
    AsyncTranslatorClient,
    Backoff,
    ServingError,
    Target,
)

ROOT = Path(__file__).resolve().parents[1]

PAGE = ROOT / "serving" / "demo"
LONGEST = 5000  # characters of a text
CLIENT = web.AppKey("client", AsyncTranslatorClient)
ANSWERED = web.AppKey("answered", asyncio.Event)  # set once the server has answered
ON_THE_WAY = ("START", "LOADING")  # states of a version that will be served
HEADERS = {
    # Loads nothing from other hosts, and cannot be put in another site's frame.
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = _command_line.parser(__doc__)
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--server", metavar="HOST:PORT", help="prediction server (default: 127.0.0.1:8500)"
    )
    where.add_argument(
        "--model_base_path", metavar="DIR", help="start a development server for this folder"
    )
    add("--rest", action="store_true", help="with --server, use its REST API instead of gRPC")
    add("--model", metavar="NAME", default=Target.model, help="name of the model on the server")
    add("--port", type=int, metavar="N", default=8080, help="port of the page; 0 for any free one")
    options = parser.parse_args(arguments)
    if options.rest and options.model_base_path:
        parser.error("--rest needs --server. Received: --model_base_path")
    return options


def application(client, starting=False):
    """The page, and the JSON API that it calls.

    Args:
        client: An `AsyncTranslatorClient`, best without retries, because the page itself retries.
        starting: Whether the server has just been started: until its first answer, it is then
            assumed to be loading its model.

    Returns:
        An aiohttp application: `/api/...` answers JSON, every other path is a file.
    """
    app = web.Application(middlewares=[answer_errors], client_max_size=16 * LONGEST)
    app[CLIENT], app[ANSWERED] = client, asyncio.Event()
    if not starting:
        app[ANSWERED].set()
    app.router.add_get("/api/status", status)
    app.router.add_post("/api/translate", translate)
    app.router.add_post("/api/explain", explain)
    app.router.add_get("/", lambda request: web.FileResponse(PAGE / "index.html"))
    app.router.add_static("/", PAGE)
    app.on_response_prepare.append(add_headers)
    return app


async def status(request):
    """Which model answers: {"server", "model", "version", "loading"}; null for no version."""
    client = request.app[CLIENT]
    versions = await client.status()
    served = [version for version, state, _ in versions if state == "AVAILABLE"]
    loading = [version for version, state, _ in versions if state in ON_THE_WAY]
    target = client.target
    return web.json_response(
        {
            "server": target.server,
            "model": target.model,
            "version": max(served, default=None),
            "loading": max(loading, default=None),
        }
    )


async def translate(request):
    """{"text"} -> {"hypotheses": [{"text", "score"}, ...], "truncated", "milliseconds"}."""
    client, text = request.app[CLIENT], await text_of(request)
    start = time.perf_counter()
    (hypotheses,) = await client.translate_nbest([text])
    return web.json_response(
        {
            "hypotheses": [{"text": one.text, "score": one.score} for one in hypotheses],
            "truncated": hypotheses[0].truncated,
            "milliseconds": 1000 * (time.perf_counter() - start),
        }
    )


async def explain(request):
    """{"text"} -> {"source_tokens", "target_tokens", "attention", …}, rounded for the eye."""
    (explanation,) = await request.app[CLIENT].explain([await text_of(request)])
    answer = explanation._asdict()
    for name in ("attention", "heads", "encoder_heads", "decoder_heads"):
        answer[name] = rounded(answer[name])
    response = web.json_response(answer)
    response.enable_compression()
    return response


async def text_of(request):
    """The request's text. Only JSON is accepted, which other sites' pages cannot send unasked."""
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(
            text=f"Expected application/json. Received: {request.content_type}"
        )
    content = await request.json()
    text = content.get("text") if isinstance(content, dict) else None
    if not isinstance(text, str):
        raise web.HTTPBadRequest(
            text=f'Expected {{"text": a string}}. Received: {str(content)[:60]}'
        )
    if len(text) > LONGEST:
        raise web.HTTPBadRequest(
            text=f"Expected a text of at most {LONGEST} characters. Received: {len(text)}"
        )
    return text


def rounded(values):
    """Nested lists of numbers, rounded to three decimal places."""
    if isinstance(values, list | tuple):
        return [rounded(value) for value in values]
    return round(values, 3)


@web.middleware
async def answer_errors(request, handler):
    """Errors as {"error": message}. The server's have status 502 and a gRPC code in "code".

    The code is LOADING while the model is being loaded.
    """
    try:
        answer = await handler(request)
        if request.path.startswith("/api/"):
            request.app[ANSWERED].set()
        return answer
    except ServingError as error:
        code = "LOADING" if await is_loading(request.app, error) else error.code
        return web.json_response({"error": str(error), "code": code}, status=502)
    except ValueError as error:
        return web.json_response({"error": str(error)}, status=400)
    except web.HTTPClientError as error:
        return web.json_response({"error": error.text}, status=error.status)


async def is_loading(app, error):
    """Whether the model is being loaded: at the server's start, or to replace another one."""
    if error.code == "UNAVAILABLE":
        return not app[ANSWERED].is_set()
    if error.code == "NOT_FOUND":
        with contextlib.suppress(ServingError):
            return any(state in ON_THE_WAY for _, state, _ in await app[CLIENT].status())
    return False


async def add_headers(request, response):
    """Adds HEADERS to every response."""
    response.headers.update(HEADERS)


@contextlib.asynccontextmanager
async def own_server(directory):
    """Runs the development server for a model's folder; yields (HOST:PORT, process).

    It takes some seconds to load the model; the page says so and waits.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "serving" / "server.py"),
        f"--port={port}",
        f"--model_base_path={directory}",
        "--xla_cpu_compilation_enabled=true",  # for compiled exports
        "--enable_model_warmup=false",  # warms up large batches, which one person never sends
    )
    try:
        yield f"127.0.0.1:{port}", process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def serve(options):
    """Serves the page until a signal stops it, or until the server that it started ends.

    Returns:
        Exit status: that of the server that it started, or 0.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        server, process = options.server or Target.server, None
        if options.model_base_path:
            server, process = await stack.enter_async_context(own_server(options.model_base_path))
        client = AsyncTranslatorClient(
            server, rest=options.rest, model=options.model, backoff=Backoff(attempts=1)
        )
        runner = web.AppRunner(
            application(await stack.enter_async_context(client), starting=process is not None),
            access_log=None,
            shutdown_timeout=1,
        )
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", options.port).start()
        print(f"Open http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await first_of(stop.wait(), process.wait() if process else None)
        return process.returncode or 0 if process else 0


async def first_of(*awaitables):
    """Waits until the first of them is done; those that are None are ignored."""
    tasks = [asyncio.ensure_future(one) for one in awaitables if one is not None]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def main():
    options = parse_arguments()
    try:
        return asyncio.run(serve(options))
    except (OSError, ValueError) as error:
        print(f"demo.py: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
