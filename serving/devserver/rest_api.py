"""The HTTP/REST API and the metrics page."""

import asyncio
import logging
import re
import urllib.parse

import grpc
import yarl
from aiohttp import http_exceptions, web
from google.protobuf import json_format
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    predict_pb2,
    regression_pb2,
)

from . import grpc_api, json_examples, json_request, json_response, predict
from .errors import HTTP_STATUS, ServingError, from_exception, invalid
from .metrics import DEFAULT_PATH

_TARGET = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_PREDICT = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){_TARGET}:(?P<method>classify|regress|predict)",
    re.IGNORECASE | re.ASCII,
)
_STATUS = re.compile(
    rf"/v1/models(?:/(?P<name>[^/:]+))?{_TARGET}(?:/(?P<metadata>metadata))?",
    re.IGNORECASE | re.ASCII,
)
LARGE = 1 << 16  # bytes; parsing or writing so many takes a millisecond or more
MAX_ERROR = 1 << 13  # characters; an error may quote a name that is as long as the request
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}


class RestApi:
    """Answers HTTP requests.

    Args:
        predictor: predict.Predictor.
        metrics: metrics.Metrics.
        options: Flags.
        monitoring: MonitoringConfig or None.
    """

    def __init__(self, predictor, metrics, options, monitoring=None):
        self._predictor = predictor
        self._metrics = metrics
        self._timeout = options.rest_api_timeout_in_ms / 1000
        self._cors = options.rest_api_enable_cors_support
        self._methods = {
            "predict": self._predict,
            "classify": self._classify,
            "regress": self._regress,
        }
        self._metrics_path = None
        if monitoring is not None and monitoring.prometheus_config.enable:
            self._metrics_path = monitoring.prometheus_config.path or DEFAULT_PATH

    async def handle(self, request):
        """aiohttp handler of every request."""
        path = request.rel_url.raw_path
        if path == self._metrics_path:
            return web.Response(text=self._metrics.page(), content_type="text/plain")
        if not path.lower().startswith("/v1/"):
            return web.Response(status=404)
        status, body = await self._answer(request, path)
        headers = _CORS if self._cors else None
        return web.Response(
            status=status, body=body, content_type="application/json", headers=headers
        )

    async def _answer(self, request, path):
        if request.method == "OPTIONS" and self._cors:
            return 200, b""
        try:
            matched = _match(request.method, path)
            spec = _spec(matched)
            if spec is None:
                return 400, b""  # the real server's answer to a version number beyond int64
            if request.method == "GET":
                return 200, self._describe(matched, spec)
            method = matched["method"].lower()
            known = self._predictor.manager.known(spec.name)
            with self._metrics.request(known, method.capitalize(), "REST"):
                # The time limit includes reading the body, in case a client stops sending.
                async with asyncio.timeout(self._timeout):
                    return 200, await self._methods[method](spec, await _body(request))
        except Exception as error:
            error = from_exception(error)
            message = error.message[:MAX_ERROR] + (error.message[MAX_ERROR:] and "...TRUNCATED")
            text = f'{{\n    "error": {json_response.quote(message)}\n}}'
            return HTTP_STATUS.get(error.code, 500), text.encode("utf-8", "surrogateescape")

    async def _predict(self, spec, body):
        request = predict_pb2.PredictRequest(model_spec=spec)
        document = await _aside(len(body), json_request.parse, body)
        inputs = self._inputs(spec, json_request.signature_name(document))
        row = await _aside(len(body), json_request.fill_request, document, inputs, request)
        _, arrays = await self._predictor.run("Predict", predict.prepare, request, self._timeout)
        size = sum(array.nbytes for array in arrays.values())
        return await _aside(size, json_response.format_response, arrays, row)

    async def _classify(self, spec, body):
        request = classification_pb2.ClassificationRequest(model_spec=spec)
        await _aside(len(body), _fill_examples, body, request)
        result, _ = await grpc_api.classify(self._predictor, request, self._timeout)
        return json_response.format_classes(result)

    async def _regress(self, spec, body):
        request = regression_pb2.RegressionRequest(model_spec=spec)
        await _aside(len(body), _fill_examples, body, request)
        result, _ = await grpc_api.regress(self._predictor, request, self._timeout)
        return json_response.format_values(result)

    def _inputs(self, spec, name):
        name = name or predict.DEFAULT_SIGNATURE
        with self._predictor.manager.use(spec) as servable:
            if name not in servable.signatures:
                raise invalid(f'Serving signature name: "{name}" not found in signature def')
            return dict(sorted(servable.signatures[name].inputs.items()))

    def _describe(self, matched, spec):
        if not spec.name:
            raise invalid("Missing model name in request.")
        if not matched["metadata"]:
            request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
            return _json(grpc_api.status(self._predictor.manager, request), names=False).encode()
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=spec, metadata_field=["signature_def"]
        )
        response = grpc_api.metadata(self._predictor.manager, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        return (
            f'{{\n"model_spec":{_json(response.model_spec)},\n'
            f'"metadata": {{"signature_def": {_json(signatures)}}}\n}}\n'
        ).encode()


def _fill_examples(body, request):
    json_examples.fill(json_request.parse(body), request)


def _match(method, path):
    pattern = {"POST": _PREDICT, "GET": _STATUS}.get(method)
    matched = pattern.fullmatch(path) if pattern else None
    if matched is None:
        raise invalid(f"Malformed request: {method} {path}")
    return matched


def _spec(matched):
    """The ModelSpec of a path; None if the version does not fit an int64."""
    spec = predict_pb2.PredictRequest().model_spec
    spec.name = urllib.parse.unquote(matched["name"] or "", errors="replace")
    if matched["label"]:
        spec.version_label = urllib.parse.unquote(matched["label"], errors="replace")
    if matched["version"]:
        if len(matched["version"]) > 30 or int(matched["version"]) >= 1 << 63:
            return None
        spec.version.value = int(matched["version"])
    return spec


async def _body(request):
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise ServingError(grpc.StatusCode.RESOURCE_EXHAUSTED, error.text) from error
    except (web.RequestPayloadError, web.HTTPException) as error:
        raise invalid(f"Failed to read the request's body: {error}") from error


async def _aside(size, function, *arguments):
    """Calls a function of `size` bytes: in a thread if that would block the event loop for long."""
    if size < LARGE:
        return function(*arguments)
    return await asyncio.to_thread(function, *arguments)


def _json(message, names=True):
    return json_format.MessageToJson(
        message,
        preserving_proto_field_name=names,
        always_print_fields_with_no_presence=True,
        ensure_ascii=False,
        indent=1,
    )


class _ClientsFault(logging.Filter):
    """Drops log records about requests that are not HTTP or whose body cannot be decoded.

    Their clients already have an answer: a 400, or one that did not need the body.
    """

    def filter(self, record):
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, http_exceptions.HttpProcessingError | web.RequestPayloadError)


async def start(predictor, metrics, options, monitoring=None):
    """Starts the HTTP server.

    Returns:
        The started aiohttp ServerRunner.

    Raises:
        OSError: The address cannot be bound.
    """
    api = RestApi(predictor, metrics, options, monitoring)
    logger = logging.getLogger("devserver.http")
    logger.addFilter(_ClientsFault())

    loop = asyncio.get_running_loop()

    def request(message, payload, protocol, writer, task):
        if message.url is None:  # a CONNECT without a target, which aiohttp lets through
            message = message._replace(url=yarl.URL("*"))
        return web.BaseRequest(
            message,
            payload,
            protocol,
            writer,
            task,
            loop,
            client_max_size=options.max_request_bytes,
        )

    server = web.Server(api.handle, request_factory=request, logger=logger, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=options.shutdown_grace_seconds)
    await runner.setup()
    await web.TCPSite(runner, options.host, options.rest_api_port, backlog=1024).start()
    return runner
