"""The REST API: predictions and the model's status, with TensorFlow Serving's paths and JSON."""

import json
import time

import numpy as np
from aiohttp import web
from grpc import StatusCode

from .inputs import from_json
from .session import code_and_text, signature_of

# Of TensorFlow Serving's table. Codes that are not listed are faults of the server: 500.
HTTP_STATUS = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.NOT_FOUND: 404,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.CANCELLED: 499,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}


class RestApi:
    """Answers with the versions of a model, in the threads of `Workers`, within some seconds."""

    def __init__(self, versions, workers, seconds):
        self._versions, self._workers, self._seconds = versions, workers, seconds

    def application(self, max_request_bytes):
        """The application of aiohttp, which refuses larger requests."""
        app = web.Application(client_max_size=max_request_bytes, middlewares=[errors_as_json])
        model = r"/v1/models/{name:[^/:]+}"
        for path in (model, model + r"/versions/{version:\d+}"):
            app.router.add_get(path, self.status)
            app.router.add_post(path + ":predict", self.predict)
        return app

    async def status(self, request):
        states = []
        for version in self._versions.listed(*model_and_version(request)):
            code, text = version.status
            state = {"version": str(version.number), "state": version.state}
            states.append(state | {"status": {"error_code": code.name, "error_message": text}})
        return web.json_response({"model_version_status": states})

    async def predict(self, request):
        _, session = self._versions.serving(*model_and_version(request))
        text = await self._workers.run(self._seconds, predicted, session, await request.read())
        return web.Response(text=text, content_type="application/json")


def model_and_version(request):
    """The model's name and the version, or None for the newest, of a request's path."""
    version = request.match_info.get("version")
    if version and int(version) >= 2**63:
        raise ValueError(f"A version is a number of 64 bits. Received: {version}")
    return request.match_info["name"], version and int(version)


@web.middleware
async def errors_as_json(request, handler):
    """Answers what fails as TensorFlow Serving does: {"error": the reason}."""
    try:
        return await handler(request)
    except web.HTTPException as error:  # aiohttp's own, such as 413
        status, text = error.status, error.text
        if status in (404, 405) and request.path.startswith("/v1/"):
            status, text = 400, f"Malformed request: {request.method} {request.path}"
    except Exception as error:
        code, text = code_and_text(error)
        status = HTTP_STATUS.get(code, 500)
    return web.json_response({"error": text}, status=status)


def predicted(session, body, deadline):
    """The JSON that answers the JSON of a request."""
    document = json.loads(body)
    if not isinstance(document, dict) or ("instances" in document) == ("inputs" in document):
        raise ValueError("Expected an object with either 'instances' (rows) or 'inputs' (columns)")
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise ValueError(f"Expected a string as 'signature_name'. Received: {name!r:.80}")
    infos = signature_of(session, name := name or "serving_default").inputs
    columns = columns_of(document, infos.keys())
    inputs = {key: from_json(key, columns[key], info) for key, info in infos.items()}
    outputs = session.run(name, inputs, None, deadline - time.monotonic())
    sizes = {array.shape[:1] for array in outputs.values()}
    if "instances" in document and (len(sizes) > 1 or () in sizes):
        raise ValueError(f"{name} has outputs without a value for each row: ask for 'inputs'")
    answer = {key: lists_of(array) for key, array in outputs.items()}
    if "instances" in document and len(outputs) > 1:
        answer = [dict(zip(answer, row, strict=True)) for row in zip(*answer.values(), strict=True)]
    elif len(outputs) == 1:
        (answer,) = answer.values()
    key = "predictions" if "instances" in document else "outputs"
    return json.dumps({key: answer}, ensure_ascii=False)


def columns_of(document, names):
    """{input: its values} of the columns in `inputs`, or of the rows in `instances`."""
    if "inputs" in document:
        return by_name(document["inputs"], names)
    if not isinstance(document["instances"], list) or not document["instances"]:
        raise ValueError("Expected a list of rows, one at least, as 'instances'")
    rows = [by_name(row, names) for row in document["instances"]]
    return {name: [row[name] for row in rows] for name in names}


def by_name(value, names):
    """{input: value} of an object with all inputs; a value by itself stands for the only one."""
    is_object = isinstance(value, dict) and value.keys() != {"b64"}
    if not is_object and len(names) == 1:
        return dict.fromkeys(names, value)
    if not is_object or value.keys() != names:
        wanted = sorted(names)
        raise ValueError(f"Expected an object with the inputs {wanted}. Received: {value!r:.80}")
    return value


def lists_of(array):
    """Nested lists for JSON."""
    if array.dtype == object:
        array = np.vectorize(lambda text: text.decode("utf-8", "replace"), [object])(array)
    elif array.dtype == np.float32:
        array = array.astype(str).astype(np.float64)  # 0.1 instead of 0.10000000149011612
    return array.tolist()
