"""The REST API, with TensorFlow Serving's paths, status codes and JSON."""

import asyncio
import re
import urllib.parse

import prometheus_client
from aiohttp import web
from google.protobuf import json_format

from . import grpc_api, metrics, tensors_json
from .errors import Code, ServingError, invalid, unimplemented
from .predict import predict

PATH = re.compile(
    r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d{1,18}))?"
    r"(?:/(?P<metadata>metadata)|:(?P<method>\w+))?",
    re.ASCII,
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
        method = match and (match["method"] or match["metadata"] or "status")
        method = method if method in ("predict", "metadata", "status") else "other"
        try:
            with metrics.request("rest", method):
                async with asyncio.timeout(self._timeout):
                    body, status = await self._answer(request, match), 200
        except ServingError as error:
            body, status = tensors_json.dump({"error": error.message}), error.http_status
        return web.Response(body=body, status=status, content_type="application/json")

    async def _answer(self, request, match):
        if match is None:
            text = f"No such path: {request.rel_url.raw_path}. Paths begin with /v1/models/NAME"
            raise ServingError(Code.NOT_FOUND, text)
        expected = "POST" if match["method"] else "GET"
        if request.method != expected:
            text = f"Expected {expected} for {match[0]}. Received: {request.method}"
            raise ServingError(Code.INVALID_ARGUMENT, text, http_status=405)
        name = urllib.parse.unquote(match["name"])
        number = int(match["version"]) if match["version"] else None
        if match["method"] == "predict":
            return await self._predict(request, name, number)
        if match["method"]:
            raise unimplemented(f":{match['method']}")
        if match["metadata"]:
            return metadata(name, self._versions.get(name, number))
        return status(self._versions.listed(name, number))

    async def _predict(self, request, name, number):
        document = tensors_json.parse(await body_of(request))
        version = self._versions.get(name, number)
        wanted = document.get("signature_name", "")
        if not isinstance(wanted, str):
            raise invalid(f"Expected a string as signature_name. Received: {wanted!r}")
        _, signature = version.model.signature(wanted)
        inputs = tensors_json.inputs_of(document, signature)
        _, outputs = await predict(version, wanted, inputs, self._timeout)
        return tensors_json.answer(outputs, rows="instances" in document)


def metadata(name, version):
    """The JSON of a version's signatures."""
    answer = json_format.MessageToDict(
        grpc_api.metadata(name, version),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    answer["metadata"]["signature_def"].pop("@type")
    return tensors_json.dump(answer)


def status(versions):
    """The JSON of the versions' states."""
    found = []
    for version in versions:
        error = version.error
        code, text = ("OK", "") if error is None else (error.code.name, error.message)
        one = {"version": str(version.number), "state": version.state}
        found.append(one | {"status": {"error_code": code, "error_message": text}})
    return tensors_json.dump({"model_version_status": found})


async def body_of(request):
    """The body, up to the server's limit."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise ServingError(Code.RESOURCE_EXHAUSTED, error.text, http_status=413) from None
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
