"""The REST API, with TensorFlow Serving's paths, status codes and JSON."""

import asyncio
import re
import urllib.parse

import prometheus_client
from aiohttp import web

from . import metrics, rest_bodies
from .errors import Code, StatusError, invalid, unimplemented, unknown_label
from .predict import predict
from .versions import LARGEST_VERSION

PATH = re.compile(
    r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
    r"(?:/(?P<metadata>metadata)|:(?P<method>predict|classify|regress))?",
    re.ASCII | re.IGNORECASE,
)


class Api:
    """Answers every HTTP request within `timeout` seconds of its first byte."""

    def __init__(self, versions, timeout):
        self._versions = versions
        self._timeout = timeout

    async def answer(self, request):
        """The handler of every path."""
        path = request.rel_url.raw_path
        if path == metrics.PATH:
            return web.Response(body=prometheus_client.generate_latest(), content_type="text/plain")
        match = PATH.fullmatch(path)
        method = (match["method"] or "").lower() if match else ""
        try:
            with metrics.request(self._versions.name, "REST", method):
                async with asyncio.timeout(self._timeout):
                    body, status = await self._answer(request, match, method), 200
        except StatusError as error:
            body, status = rest_bodies.dump({"error": error.message}), error.http_status
        return web.Response(body=body, status=status, content_type="application/json")

    async def _answer(self, request, match, method):
        if match is None or request.method != ("POST" if method else "GET"):
            path = request.rel_url.raw_path
            if path.startswith("/v1/"):
                raise invalid(f"Malformed request: {request.method} {path}")
            text = f"No such path: {path}. Paths begin with /v1/models/NAME"
            raise StatusError(Code.NOT_FOUND, text)
        name, label = (urllib.parse.unquote(match[key] or "") for key in ("name", "label"))
        if label:
            raise unknown_label(label)
        version = match["version"]
        if version and (len(version) > 1000 or int(version) > LARGEST_VERSION):
            raise invalid(f"A version is at most {LARGEST_VERSION}. Received: {version}")
        number = int(version) if version else None
        if method == "predict":
            return await self._predict(request, name, number)
        if method or match["metadata"]:
            raise unimplemented(f":{method}" if method else "/metadata")
        return status(self._versions.listed(name, number))

    async def _predict(self, request, name, number):
        document = rest_bodies.parse(await body_of(request))
        version = self._versions.get(name, number)
        wanted = document.get("signature_name", "")
        if not isinstance(wanted, str):
            raise invalid(f"Expected a string as signature_name. Received: {wanted!r}")

        def read(signature):
            return rest_bodies.inputs_of(document, signature, self._versions.options)

        def write(_, outputs):
            return rest_bodies.answer(outputs, rows="instances" in document)

        return await predict(version, wanted, read, write, self._timeout)


def status(versions):
    """The JSON of the versions' states."""
    states = []
    for version in versions:
        error = version.error
        code, text = ("OK", "") if error is None else (error.code.name, error.message)
        status = {"error_code": code, "error_message": text}
        states.append({"version": str(version.number), "state": version.state, "status": status})
    return rest_bodies.dump({"model_version_status": states})


async def body_of(request):
    """The body, up to the server's limit."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise StatusError(Code.RESOURCE_EXHAUSTED, error.text, http_status=413) from None
    except (web.RequestPayloadError, web.HTTPException, ConnectionError) as error:
        raise invalid(f"The body could not be read: {error}") from None


async def start(versions, options):
    """Listens; returns the started runner. Raises OSError if the address cannot be used."""
    app = web.Application(client_max_size=options.max_request_bytes)
    api = Api(versions, options.rest_api_timeout_in_ms / 1000)
    app.router.add_route("*", "/{path:.*}", api.answer)
    limits = {"handler_cancellation": True, "shutdown_timeout": options.grace_seconds}
    runner = web.AppRunner(app, access_log=None, **limits)
    await runner.setup()
    await web.TCPSite(runner, options.host, options.rest_api_port, backlog=1024).start()
    return runner
