"""The REST API: predictions and the model's status, with TensorFlow Serving's paths and JSON."""

import asyncio
import json

import numpy as np
from aiohttp import web
from grpc import StatusCode

from .inputs import from_json
from .session import code_and_text, signature_of

# Of TensorFlow Serving's table. Codes that are not listed are faults of the server: 500.
HTTP_STATUS = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.NOT_FOUND: 404,
    StatusCode.DEADLINE_EXCEEDED: 504,
}


class RestApi:
    """Answers with the versions of a model, in threads of a pool, within `timeout` seconds."""

    def __init__(self, versions, pool, timeout):
        self._versions, self._pool, self._timeout = versions, pool, timeout

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
            code, text = code_and_text(version.error) if version.error else (StatusCode.OK, "")
            state = {"version": str(version.number), "state": version.state}
            states.append(state | {"status": {"error_code": code.name, "error_message": text}})
        return web.json_response({"model_version_status": states})

    async def predict(self, request):
        _, session = self._versions.serving(*model_and_version(request))
        run = asyncio.get_running_loop().run_in_executor
        text = await run(self._pool, predicted, session, await request.read(), self._timeout)
        return web.Response(text=text, content_type="application/json")


def model_and_version(request):
    """The model's name and the version, or None for the newest, of a request's path."""
    version = request.match_info.get("version")
    return request.match_info["name"], version and int(version)


@web.middleware
async def errors_as_json(request, handler):
    """Answers what fails as TensorFlow Serving does: {"error": the reason}."""
    try:
        return await handler(request)
    except web.HTTPException as error:  # aiohttp's own, such as 404 and 413
        status, text = error.status, error.text
    except Exception as error:
        code, text = code_and_text(error)
        status = HTTP_STATUS.get(code, 500)
    return web.json_response({"error": text}, status=status)


def predicted(session, body, timeout):
    """The JSON that answers the JSON of a request."""
    document = json.loads(body)
    if not isinstance(document, dict) or ("instances" in document) == ("inputs" in document):
        raise ValueError("Expected an object with either 'instances' (rows) or 'inputs' (columns)")
    name = str(document.get("signature_name") or "serving_default")
    infos = signature_of(session, name).inputs
    columns = columns_of(document, infos.keys())
    inputs = {key: from_json(key, columns[key], info) for key, info in infos.items()}
    outputs = session.run(name, inputs, None, timeout)
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
    if not isinstance(document["instances"], list):
        raise ValueError("Expected a list of rows as 'instances'")
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
