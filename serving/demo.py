"""A page that asks a model as you type: a translator, a classifier, a tagger or a language model.

    python serving/demo.py --model_base_path=RUN_FOLDER/saved_model     # starts its own server
    python serving/demo.py --server=127.0.0.1:8500                      # uses a running one

Open the address that it prints. Of a translator, it shows what each word attends to. The page is
for one person on one machine: it listens on loopback unless --host says otherwise. It takes
languages and examples from the export's folder; of a running server, only --languages names them.
Exit status: 0 after Ctrl-C or SIGTERM, 1 if the server that it started ended, 2 wrong arguments or
the port is in use.
"""

import asyncio
import contextlib
import functools
import html
import ipaddress
import json
import logging
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from keras_tfmr.client import AsyncServingClient, ServingError, Target
from keras_tfmr.client.connection import with_default_port
from keras_tfmr.presets.languages import is_of_phrasebook, languages_of
from serving.devserver.errors import StatusError
from serving.devserver.versions import versions_on_disk
from training.command import scripts

ROOT = Path(__file__).resolve().parents[1]


class Origin(NamedTuple):
    """What an export's folder says of the model.

    Attributes:
        languages: The codes of source and target; "" for one that is not known.
        is_phrasebook: Whether it learned the built-in phrasebook only, which the page says.
        examples: Texts to try.
    """

    languages: tuple = ("", "")
    is_phrasebook: bool = False
    examples: list = ()


PAGE = ROOT / "serving" / "demo"
LONGEST = 20_000  # characters in a request
SAY_SO = 5  # seconds in which open pages learn that the server has ended
CLIENT = web.AppKey("client", AsyncServingClient)
ENDED = web.AppKey("ended", asyncio.Event)  # set once the server that this started has ended
ORIGIN = web.AppKey("origin", Origin)
HOST = web.AppKey("host", str)
KINDS = web.AppKey("kinds", dict)  # {version: what its model is asked}
OPTIONS = ("length", "temperature")  # of a completion
# The kinds of models: a call that only they answer, with options that make the answer to "" short.
KINDS_OF_MODELS = {
    "translate": functools.partial(AsyncServingClient.translate, texts=[""]),
    "classify": functools.partial(AsyncServingClient.classify, texts=[""]),
    "tag": functools.partial(AsyncServingClient.tag, texts=[""]),
    "complete": functools.partial(AsyncServingClient.complete, prompts=[""], length=1),
}
METADATA = Path("assets.extra", "keras_tfmr.json")  # in the folder of a version
ON_THE_WAY = ("START", "LOADING")  # states of a version that will be served
HEADERS = {
    # Loads nothing from other hosts, and cannot be put in another site's frame.
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


class UnknownKindError(Exception):
    """The page can ask none of the model's signatures."""


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--server", metavar="HOST:PORT", help="prediction server (default: 127.0.0.1:8500)"
    )
    where.add_argument(
        "--model_base_path", metavar="DIR", help="start a development server for this folder"
    )
    rest = "use the REST API of the server instead of gRPC"
    add("--rest", action="store_true", not_with=["--model_base_path"], help=rest)
    add("--model", metavar="NAME", default=Target.model, help="name of the model on the server")
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


def application(client, origin, host):
    """The page, and the JSON API that it calls.

    Args:
        client: An `AsyncServingClient`, best without retries, because the page itself retries.
        origin: An `Origin`.
        host: The name or address that it listens on.

    Returns:
        An aiohttp application: `/api/...` answers JSON, every other path is a file.
    """
    middlewares = [refuse_foreign_hosts, answer_errors]
    app = web.Application(middlewares=middlewares, client_max_size=16 * LONGEST)
    app[CLIENT], app[ORIGIN], app[HOST] = client, origin, host
    app[ENDED], app[KINDS] = asyncio.Event(), {}
    app.router.add_get("/api/status", status)
    app.router.add_post("/api/document", document)
    app.router.add_post("/api/translate", translate)
    app.router.add_post("/api/explain", explain)
    app.router.add_post("/api/classify", classify)
    app.router.add_post("/api/tag", tag)
    app.router.add_post("/api/complete", complete)
    app.router.add_get("/", index)
    for file in sorted(PAGE.iterdir()):  # no path of a request is looked up on the disk
        app.router.add_get(f"/{file.name}", functools.partial(send, file))
    app.on_response_prepare.append(add_headers)
    return app


async def index(request):
    """The page, which learns its languages from the attributes `lang` of the two texts."""
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    for side, code in zip(("source", "target"), request.app[ORIGIN].languages, strict=True):
        page = page.replace(f'lang="{side}"', f'lang="{html.escape(code)}"')
    return web.Response(text=page, content_type="text/html")


async def send(file, request):
    """One of the page's files."""
    return web.FileResponse(file)


async def status(request):
    """Which model answers: {"server", "model", "version", "loading", "kind", …}.

    "kind" is what the model is asked: "translate", "classify", "tag" or "complete".
    """
    client, kinds, origin = (request.app[key] for key in (CLIENT, KINDS, ORIGIN))
    versions = await client.status()
    served = [version for version, state, _ in versions if state == "AVAILABLE"]
    loading = [version for version, state, _ in versions if state in ON_THE_WAY]
    version = max(served, default=None)
    if version is not None and version not in kinds:
        kinds[version] = await kind_of(client)
    return web.json_response(
        {
            "server": client.target.server,
            "model": client.target.model,
            "version": version,
            "loading": max(loading, default=None),
            "kind": kinds.get(version),
            "phrasebook": origin.is_phrasebook,
            "examples": origin.examples,
        }
    )


async def kind_of(client):
    """What a model can be asked: the first signature that it has, of those of each kind."""
    for kind, call in KINDS_OF_MODELS.items():
        try:
            await call(client)
        except ServingError as error:
            if not lacks_signature(error):
                raise
        else:
            return kind
    raise UnknownKindError("it is neither a translator, a classifier, a tagger nor a completer")


async def document(request):
    """{"texts"} -> {"documents": [{"pieces": [[source, translation], ...]}, ...], "milliseconds"}.

    The pieces are the sentences of a text and what stands between them; "truncated" is beside them.
    With {"terms": {term: translation}} too, each text is one piece.
    """
    client, (texts, options) = request.app[CLIENT], await content_of(request)
    start = time.perf_counter()
    if terms := options.get("terms"):
        cores = [text.strip() for text in texts]  # white space stays around them
        answers = await client.translate_with_terms(cores, terms)
        pieces = [
            [(text, text.replace(core, translation, 1))]
            for text, core, translation in zip(texts, cores, answers, strict=True)
        ]
    else:
        answers = await client.translate_document(texts)
        pieces = [answer.pieces for answer in answers]
    documents = [
        {"pieces": pairs, "truncated": answer.truncated}
        for pairs, answer in zip(pieces, answers, strict=True)
    ]
    milliseconds = 1000 * (time.perf_counter() - start)
    return web.json_response({"documents": documents, "milliseconds": milliseconds})


async def translate(request):
    """{"texts": [one]} -> {"hypotheses": [{"text", "score"}, ...]}, the best translation first."""
    texts, _ = await content_of(request, most=1)
    (hypotheses,) = await request.app[CLIENT].translate_nbest(texts)
    listed = [{"text": hypothesis.text, "score": hypothesis.score} for hypothesis in hypotheses]
    return web.json_response({"hypotheses": listed})


async def explain(request):
    """{"texts": [one]} -> {"source_tokens", "target_tokens", "attention", …}, rounded."""
    texts, _ = await content_of(request, most=1)
    (explanation,) = await request.app[CLIENT].explain(texts)
    answer = explanation._asdict()
    answer["heads"] = answer.pop("attention_heads")
    for name in ("attention", "heads", "encoder_heads", "decoder_heads"):
        answer[name] = rounded(answer[name])
    response = web.json_response(answer)
    response.enable_compression()
    return response


async def classify(request):
    """{"texts": [one]} -> {"label", "probabilities", "truncated"}."""
    texts, _ = await content_of(request, most=1)
    (answer,) = await request.app[CLIENT].classify(texts)
    return web.json_response(answer._asdict())


async def tag(request):
    """{"texts": [one]} -> {"words", "tags", "probabilities", "truncated"}."""
    texts, _ = await content_of(request, most=1)
    (answer,) = await request.app[CLIENT].tag(texts)
    return web.json_response(answer._asdict())


async def complete(request):
    """{"texts": [one], "length", "temperature"} -> {"text", "log_prob", "tokens", …}."""
    texts, options = await content_of(request, most=1)
    (answer,) = await request.app[CLIENT].complete(texts, **options)
    return web.json_response(answer._asdict())


async def content_of(request, most=LONGEST):
    """The request's texts, and its options: numbers, and terms with their translations.

    Only JSON is accepted, which other sites' pages cannot send unasked.
    """
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(
            text=f"Expected application/json. Received: {request.content_type}"
        )
    try:
        content = json.loads(await request.read())  # whatever charset is named: JSON is UTF-8
    except (RecursionError, ValueError, web.RequestPayloadError) as error:
        raise web.HTTPBadRequest(text=f"The body is not valid JSON: {error}") from None
    texts = content.get("texts") if isinstance(content, dict) else None
    strings = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    if not strings or not 1 <= len(texts) <= most:
        raise web.HTTPBadRequest(
            text=f'Expected {{"texts": 1 to {most} strings}}. Received: {str(content)[:60]}'
        )
    if (length := sum(map(len, texts))) > LONGEST:
        raise web.HTTPBadRequest(
            text=f"Expected texts of at most {LONGEST} characters. Received: {length}"
        )
    options = {name: content[name] for name in OPTIONS if name in content}
    if not all(type(value) in (int, float) for value in options.values()):
        raise web.HTTPBadRequest(text=f"Expected numbers. Received: {options}")
    if terms := content.get("terms"):
        strings = isinstance(terms, dict) and all(
            isinstance(target, str) for target in terms.values()
        )
        if not strings or not all(map(str.strip, terms)):
            raise web.HTTPBadRequest(
                text=f'Expected "terms" from words to translations. Received: {str(terms)[:60]}'
            )
        options["terms"] = terms
    return texts, options


def rounded(values):
    """Nested lists of numbers, rounded to three decimal places."""
    if isinstance(values, list | tuple):
        return [rounded(value) for value in values]
    return round(values, 3)


@web.middleware
async def answer_errors(request, handler):
    """Errors as {"error": message, "code"}. The server's have status 502 and a gRPC code.

    Other codes: LOADING while the model is being loaded, ENDED if the server of this page has
    ended, UNKNOWN_KIND if the model has no signature of ours.
    """
    try:
        return await handler(request)
    except UnknownKindError as error:
        return web.json_response({"error": str(error), "code": "UNKNOWN_KIND"}, status=502)
    except ServingError as error:
        return web.json_response(
            {"error": str(error), "code": await code_of(request.app, error)}, status=502
        )
    except (TypeError, ValueError) as error:  # of an option out of its range
        return web.json_response({"error": str(error)}, status=400)
    except web.HTTPClientError as error:
        return web.json_response({"error": error.text}, status=error.status)


@web.middleware
async def refuse_foreign_hosts(request, handler):
    """Refuses a request by a name that is not this machine's.

    The owner of another site could let its name lead to this address, and its pages would then be
    allowed to ask the model (DNS rebinding). Nobody else can own an address or these names.
    """
    host = re.sub(r":\d*$", "", request.headers.get("Host", "localhost")).strip("[]").lower()
    if not is_own(host, request.app[HOST]):
        what = f"This page has no name {host!r:.80}. Open it by an address or as localhost"
        return web.json_response({"error": what}, status=403)
    return await handler(request)


def is_own(host, listened):
    """Whether a host is an address, localhost, this machine's name or the one of `--host`."""
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    name = socket.gethostname().lower()
    return host.rstrip(".") in ("localhost", name, f"{name}.local", listened.lower())


async def code_of(app, error):
    """The page's reading of a server's error."""
    if error.code == "UNAVAILABLE":
        if app[ENDED].is_set():
            return "ENDED"
        return "LOADING" if "is loading" in str(error) else error.code
    if error.code == "NOT_FOUND":
        with contextlib.suppress(ServingError):
            versions = await app[CLIENT].status()
            if any(state in ON_THE_WAY for _, state, _ in versions):
                return "LOADING"
    return error.code


def lacks_signature(error):
    """Whether a server's error says that the model does not have the signature."""
    return error.code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION") and "ignature" in str(error)


async def add_headers(request, response):
    """Adds HEADERS to every response."""
    response.headers.update(HEADERS)


@contextlib.asynccontextmanager
async def own_server(directory, model):
    """Runs the development server for a model's folder; yields (HOST:PORT, process).

    It takes some seconds to load the model; the page says so and waits.

    Raises:
        ValueError: It could not start.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "serving" / "server.py"),
        *("--port=0", "--rest_api_port=0", "--grace_seconds=1"),
        *(f"--model_base_path={directory}", f"--model_name={model}"),
        stdout=asyncio.subprocess.PIPE,
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
        server, process = options.server or Target.server, None
        origin = Origin()
        if options.model_base_path:
            origin = origin_of(options.model_base_path)
            own = own_server(options.model_base_path, options.model)
            server, process = await stack.enter_async_context(own)
        client = AsyncServingClient(server, rest=options.rest, model=options.model, retry=False)
        if options.languages:
            origin = origin._replace(languages=options.languages)
        app = application(await stack.enter_async_context(client), origin, options.host)
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
    except KeyboardInterrupt:  # before `serve` listens to signals
        return 128 + signal.SIGINT
    except (OSError, OverflowError, ValueError) as error:
        print(f"demo.py: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
