"""The demo page's files, and the JSON API that it calls: `/api/...` asks the model's server."""

import asyncio
import contextlib
import functools
import html
import ipaddress
import json
import re
import socket
import time
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from keras_tfmr.client import ServingClient, ServingError

PAGE = Path(__file__).with_name("demo")
LONGEST = 20_000  # characters in a request
ON_THE_WAY = ("START", "LOADING")  # states of a version that will be served
HEADERS = {
    # Loads nothing from other hosts, and cannot be put in another site's frame.
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


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


CLIENT = web.AppKey("client", ServingClient)
ENDED = web.AppKey("ended", asyncio.Event)  # set once the server that demo.py started has ended
ORIGIN = web.AppKey("origin", Origin)
HOST = web.AppKey("host", str)
KINDS = web.AppKey("kinds", dict)  # {version: what its model is asked}
# The kinds of models, each with a call that only they answer.
KINDS_OF_MODELS = {
    "translate": ServingClient.translate,
    "classify": ServingClient.classify,
    "complete": functools.partial(ServingClient.complete, length=1),
}


class UnknownKindError(Exception):
    """The page can ask none of the model's signatures."""


def application(client, origin, host):
    """The page, and the JSON API that it calls.

    Args:
        client: A `ServingClient`, best without retries, because the page itself retries.
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
    for name, (call, shown) in ABOUT_ONE_TEXT.items():
        app.router.add_post(f"/api/{name}", functools.partial(about_one_text, call, shown))
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

    "kind" is what the model is asked: "translate", "classify" or "complete".
    """
    client, kinds, origin = (request.app[key] for key in (CLIENT, KINDS, ORIGIN))
    versions = await asyncio.to_thread(client.status)
    served = [version for version, state, _ in versions if state == "AVAILABLE"]
    loading = [version for version, state, _ in versions if state in ON_THE_WAY]
    version = max(served, default=None)
    if version is not None and version not in kinds:
        kinds[version] = await kind_of(client)
    return web.json_response(
        {
            "server": client.server,
            "model": client.model,
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
            await asyncio.to_thread(call, client, [""])
        except ServingError as error:
            if not lacks_signature(error):
                raise
        else:
            return kind
    raise UnknownKindError("it is neither a translator, a classifier nor a completer")


async def document(request):
    """{"texts"} -> {"documents": [{"pieces": [[source, translation], ...]}, ...], "milliseconds"}.

    The pieces are the sentences of a text and what stands between them; "truncated" is beside them.
    With {"terms": {term: translation}} too, each text is one piece.
    """
    client, (texts, options) = request.app[CLIENT], await content_of(request)
    start = time.perf_counter()
    if terms := options.get("terms"):
        cores = [text.strip() for text in texts]  # white space stays around them
        answers = await asyncio.to_thread(client.translate_with_terms, cores, terms)
        pieces = [
            [(text, text.replace(core, translation, 1))]
            for text, core, translation in zip(texts, cores, answers, strict=True)
        ]
    else:
        answers = await asyncio.to_thread(client.translate_document, texts)
        pieces = [answer.pieces for answer in answers]
    documents = [
        {"pieces": pairs, "truncated": answer.truncated}
        for pairs, answer in zip(pieces, answers, strict=True)
    ]
    milliseconds = 1000 * (time.perf_counter() - start)
    return web.json_response({"documents": documents, "milliseconds": milliseconds})


async def about_one_text(call, shown, request):
    """{"texts": [one], option: value, …} -> what `shown` makes of the answer of a client's call."""
    texts, options = await content_of(request, most=1)
    (answer,) = await asyncio.to_thread(call, request.app[CLIENT], texts, **options)
    response = web.json_response(shown(answer))
    response.enable_compression()
    return response


def hypotheses(translations):
    """{"hypotheses": [{"text", "score"}, ...]}, the best translation first."""
    return {"hypotheses": [{"text": best.text, "score": best.score} for best in translations]}


def attention(explanation):
    """{"source_tokens", "target_tokens", "attention", "heads", …}, rounded."""
    answer = explanation._asdict()
    answer["heads"] = answer.pop("attention_heads")
    return {
        name: value if name.endswith("tokens") else rounded(value) for name, value in answer.items()
    }


def rounded(values):
    """Nested lists of numbers, rounded to three decimal places."""
    if isinstance(values, list | tuple):
        return [rounded(value) for value in values]
    return round(values, 3)


def fields(answer):
    """The fields of a `Classification` or of a `Completion`."""
    return answer._asdict()


ABOUT_ONE_TEXT = {
    "translate": (ServingClient.translate_nbest, hypotheses),
    "explain": (ServingClient.explain, attention),
    "classify": (ServingClient.classify, fields),
    "complete": (ServingClient.complete, fields),
}


async def content_of(request, most=LONGEST):
    """The request's texts, and what else it holds; the client checks the values.

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
    return texts, {name: value for name, value in content.items() if name != "texts"}


@web.middleware
async def answer_errors(request, handler):
    """Errors as {"error": message, "code"}. The server's have status 502 and a gRPC code.

    Other codes: LOADING while the model is being loaded, ENDED if the server of this page has
    ended, UNKNOWN_KIND if the model has no signature of ours.
    """
    try:
        return await handler(request)
    except UnknownKindError as error:
        answer, status = {"error": str(error), "code": "UNKNOWN_KIND"}, 502
    except ServingError as error:
        answer, status = {"error": str(error), "code": await code_of(request.app, error)}, 502
    except (TypeError, ValueError) as error:  # of an option that the client refuses
        answer, status = {"error": str(error)}, 400
    except web.HTTPClientError as error:
        answer, status = {"error": error.text}, error.status
    return web.json_response(answer, status=status)


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
            versions = await asyncio.to_thread(app[CLIENT].status)
            if any(state in ON_THE_WAY for _, state, _ in versions):
                return "LOADING"
    return error.code


def lacks_signature(error):
    """Whether a server's error says that the model does not have the signature."""
    return error.code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION") and "ignature" in str(error)


async def add_headers(request, response):
    """Adds HEADERS to every response."""
    response.headers.update(HEADERS)
