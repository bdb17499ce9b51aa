"""The demo page's files, and the JSON API that it calls: `/api/...` asks the model's server."""

import asyncio
import html
import time
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from keras_tfmr.client import ServingError

PAGE = Path(__file__).with_name("demo")
LONGEST = 20_000  # characters in a request
MOST_TEXTS = 100  # in a request; the page sends no more paragraphs


class Origin(NamedTuple):
    """Facts about a model, from the folder of its export.

    Attributes:
        languages: The codes of source and target; "" for an unknown one.
        is_phrasebook: Whether it learned the built-in phrasebook only, which the page says.
        examples: Texts to try.
    """

    languages: tuple = ("", "")
    is_phrasebook: bool = False
    examples: list = ()


class Api:
    """Answers the page by asking the server, in threads.

    Args:
        client: A `ServingClient`, best without retries, because the page itself retries.
        origin: An `Origin`.
    """

    def __init__(self, client, origin):
        self._client, self._origin = client, origin
        self._kind = None  # once it is known

    async def page(self, request):
        """The page, which learns its languages from the attributes `lang` of the two texts."""
        page = (PAGE / "index.html").read_text(encoding="utf-8")
        for side, code in zip(("source", "target"), self._origin.languages, strict=True):
            page = page.replace(f'lang="{side}"', f'lang="{html.escape(code)}"')
        return web.Response(text=page, content_type="text/html")

    async def status(self, request):
        """Which model answers. Its kind is "translate", "classify" or "complete"."""
        client = self._client
        versions = await asyncio.to_thread(client.status)
        served = [number for number, state, _ in versions if state == "AVAILABLE"]
        self._kind = self._kind or await asyncio.to_thread(kind_of, client)
        return web.json_response(
            {
                "server": client.server,
                "model": client.model,
                "version": max(served, default=None),
                "kind": self._kind,
                "phrasebook": self._origin.is_phrasebook,
                "examples": self._origin.examples,
            }
        )

    async def document(self, request):
        """{"texts"} -> {"documents": [{"pieces": [[source, translation], …]}, …], "milliseconds"}.

        The pieces are the sentences of a text and what stands between them. With {"terms": {term:
        translation}} too, each text is one piece.
        """
        content, start = await content_of(request), time.perf_counter()
        texts, terms = content["texts"], content.get("terms")
        if terms:
            ask = self._client.translate_with_terms
            answers = await asyncio.to_thread(ask, [text.strip() for text in texts], terms)
            pieces = [
                [(text, text.replace(text.strip(), translation, 1))]  # white space stays around it
                for text, translation in zip(texts, answers, strict=True)
            ]
        else:
            answers = await asyncio.to_thread(self._client.translate_document, texts)
            pieces = [answer.pieces for answer in answers]
        documents = [
            {"pieces": pairs, "truncated": answer.truncated}
            for pairs, answer in zip(pieces, answers, strict=True)
        ]
        milliseconds = 1000 * (time.perf_counter() - start)
        return web.json_response({"documents": documents, "milliseconds": milliseconds})

    async def translate(self, request):
        """{"texts": [one]} -> {"hypotheses": [{"text", "score"}, …]}, the best one first."""
        texts = (await content_of(request))["texts"]
        (found,) = await asyncio.to_thread(self._client.translate_nbest, texts)
        hypotheses = [{"text": best.text, "score": best.score} for best in found]
        return web.json_response({"hypotheses": hypotheses})

    async def explain(self, request):
        """{"texts": [one]} -> {"source_tokens", "target_tokens", "attention", "heads", …}."""
        texts = (await content_of(request))["texts"]
        (found,) = await asyncio.to_thread(self._client.explain, texts)
        answer = {
            "source_tokens": found.source_tokens,
            "target_tokens": found.target_tokens,
            "attention": rounded(found.attention),
            "heads": rounded(found.attention_heads),
            "encoder_heads": rounded(found.encoder_heads),
            "decoder_heads": rounded(found.decoder_heads),
        }
        return web.json_response(answer)

    async def classify(self, request):
        """{"texts": [one]} -> {"label", "probabilities", "truncated"}."""
        texts = (await content_of(request))["texts"]
        (found,) = await asyncio.to_thread(self._client.classify, texts)
        return web.json_response(found._asdict())

    async def complete(self, request):
        """{"texts": [one], "length", "temperature"} -> {"text", "log_prob", "tokens", …}."""
        content = await content_of(request)
        options = {"length": content["length"], "temperature": content["temperature"]}
        (found,) = await asyncio.to_thread(self._client.complete, content["texts"], **options)
        return web.json_response(found._asdict())


def application(client, origin):
    """The application of aiohttp: `/api/...` answers JSON, every other path is a file."""
    app = web.Application(middlewares=[errors_as_json])
    api = Api(client, origin)
    app.router.add_get("/", api.page)
    app.router.add_get("/api/status", api.status)
    for ask in (api.document, api.translate, api.explain, api.classify, api.complete):
        app.router.add_post(f"/api/{ask.__name__}", ask)
    app.router.add_static("/", PAGE)
    return app


def kind_of(client):
    """The call that a model answers: "translate", "classify" or "complete"."""
    for kind, ask in (
        ("translate", client.translate),
        ("classify", client.classify),
        ("complete", client.complete),
    ):
        try:
            ask([""])
            return kind
        except ServingError as error:
            if error.code != "FAILED_PRECONDITION":
                raise
    raise ValueError("The model is neither a translator, a classifier nor a language model")


async def content_of(request):
    """The request's JSON object, whose "texts" are strings; the client checks the other values."""
    content = await request.json()
    texts = content["texts"]
    if not all(isinstance(text, str) for text in texts) or sum(map(len, texts)) > LONGEST:
        raise ValueError(f"Expected texts of at most {LONGEST} characters together")
    if len(texts) > MOST_TEXTS:
        raise ValueError(f"Expected at most {MOST_TEXTS} texts. Received: {len(texts)}")
    return content


def rounded(values):
    """Nested lists of numbers, rounded to three decimal places."""
    if isinstance(values, list | tuple):
        return [rounded(value) for value in values]
    return round(values, 3)


@web.middleware
async def errors_as_json(request, handler):
    """Errors as {"error": message, "code"}; the code is that of the server, if it has failed."""
    try:
        return await handler(request)
    except ServingError as error:
        answer, status = {"error": str(error), "code": error.code}, 502
    except (KeyError, TypeError, ValueError) as error:
        answer, status = {"error": str(error)}, 400
    except web.HTTPException as error:
        answer, status = {"error": error.text}, error.status
    return web.json_response(answer, status=status)
