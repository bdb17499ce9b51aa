"""Requests over gRPC, by the full names of the methods, which is all that official stubs do."""

import asyncio
import functools
import itertools
import json
import math
import re
import struct

import grpc

from keras_tfmr.client import connection, serving_pb2

_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"

# ModelVersionStatus.State of tensorflow_serving/apis/get_model_status.proto
_STATES = {0: "UNKNOWN", 10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}

# What gRPC says when the client refuses the server's certificate, or cannot read its own files.
_WRONG_CERTIFICATE = (
    "SSL_ERROR_SSL",
    "Hostname Verification Check failed",
    "Failed to create security handshaker",
)
# All that it says when the server refuses the client's; a server that ends hangs up, too.
_HUNG_UP = "Socket closed"
_GATEWAYS = re.compile(r"Received http2 header with status: (\d+)")  # no server's of gRPC

_MOST = 1 << 27  # elements of an answer: a shape of a few bytes may promise any number
_FLOAT, _DOUBLE, _INT32, _STRING, _INT64, _BOOL = 1, 2, 3, 7, 9, 10
# data type -> (field of TensorProto, struct letter of one value in tensor_content, zero)
_LAYOUT = {
    _FLOAT: ("float_val", "f", 0.0),
    _DOUBLE: ("double_val", "d", 0.0),
    _INT32: ("int_val", "i", 0),
    _STRING: ("string_val", None, b""),
    _INT64: ("int64_val", "q", 0),
    _BOOL: ("bool_val", "?", False),
}


class GrpcTransport:
    """Requests over one channel.

    Args:
        target: The `Target`.
        tls: A `TLS`, or None for a plain connection.
        max_message_bytes: Largest request and answer; -1 for no limit.
    """

    def __init__(self, target, tls, max_message_bytes):
        self.target, self._closed = target, False
        if target.server.startswith(("http://", "https://")):
            raise ValueError(f"A URL needs rest=True; gRPC, HOST:PORT. Received: {target.server!r}")
        host = target.server.rpartition("/")[2].rpartition(":")[0]
        no_proxy = [("grpc.enable_http_proxy", 0)] if connection.is_loopback(host) else []
        self._options = channel_options(tls, max_message_bytes) + no_proxy
        self._credentials = None
        if tls is not None:
            files = map(tls.read, (tls.ca, tls.key, tls.cert))
            self._credentials = grpc.ssl_channel_credentials(*files)

    async def predict(self, signature, inputs, headers, timeout):
        """Sends {input name: bytes or numbers}; returns {output name: nested lists}."""
        request = predict_request(self.target, signature, inputs)
        kind = serving_pb2.PredictResponse
        response = await self._call(_PREDICT, request, kind, headers, timeout)
        return {name: to_lists(value) for name, value in response.outputs.items()}

    async def status(self, headers, timeout):
        """List of (version, state, message)."""
        request = serving_pb2.GetModelStatusRequest(model_spec=_spec(self.target))
        kind = serving_pb2.GetModelStatusResponse
        response = await self._call(_STATUS, request, kind, headers, timeout)
        return [
            (each.version, _STATES.get(each.state, "UNKNOWN"), each.status.error_message)
            for each in response.model_version_status
        ]

    async def close(self):
        """Closes the channel; calls under way are cancelled."""
        self._closed = True
        if "_channel" in self.__dict__:
            await self._channel.close()

    @functools.cached_property
    def _channel(self):
        """Made at the first request, because it belongs to the event loop that runs then."""
        if self._credentials is None:
            return grpc.aio.insecure_channel(self.target.server, self._options)
        return grpc.aio.secure_channel(self.target.server, self._credentials, self._options)

    async def _call(self, path, request, response, headers, timeout):
        if self._closed:
            raise self._error("CANCELLED", "the client is closed")
        method = self._channel.unary_unary(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        try:
            return await method(request, timeout=timeout, metadata=[*headers.items()])
        except grpc.RpcError as error:
            raise self._error(error.code().name, error.details() or "") from error
        except asyncio.CancelledError as error:
            if not self._closed:
                raise
            raise self._error("CANCELLED", "the client was closed") from error

    def _error(self, code, details):
        if code == "UNAVAILABLE" and any(sign in details for sign in _WRONG_CERTIFICATE):
            return connection.untrusted(details, self.target)  # trying again does not help
        if code == "UNAVAILABLE" and self._credentials is not None and _HUNG_UP in details:
            details += connection.PERHAPS_REFUSED
        if status := _GATEWAYS.search(details):
            return connection.from_http_status(int(status[1]), details, self.target)
        return connection.from_status(code, details, self.target)


def predict_request(target, signature, inputs):
    """The PredictRequest for {input name: bytes or numbers} of a `Signature`."""
    request = serving_pb2.PredictRequest(model_spec=_spec(target))
    request.model_spec.signature_name = signature.name
    for name, values in inputs.items():
        request.inputs[name].CopyFrom(tensor(values, signature.inputs[name]))
    return request


def _spec(target):
    spec = serving_pb2.ModelSpec(name=target.model)
    if target.version is not None:
        spec.version.value = target.version
    if target.label is not None:
        spec.version_label = target.label
    return spec


def channel_options(tls, max_message_bytes):
    """Options that differ from gRPC's defaults, and why."""
    options = [
        # The default is 4 MiB, less than the attention of a batch of long sentences.
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        # The client retries by itself, as over REST; gRPC's retries would multiply its own.
        ("grpc.enable_retries", 0),
        # Reconnects between the client's attempts, and not only after a second or more.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Otherwise a new client shares an older client's connection and its backoff.
        ("grpc.use_local_subchannel_pool", 1),
        # A name with several addresses (a headless service): requests go to each in turn.
        ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    ]
    if tls is not None and tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return options


def tensor(values, dtype):
    """A TensorProto [batch] of bytes or numbers, or [batch, n] of lists of them."""
    kind = {"string": _STRING, "float32": _FLOAT, "int32": _INT32, "int64": _INT64}[dtype]
    shape = [len(values)]
    if values and isinstance(values[0], list):
        shape.append(len(values[0]))
        values = [*itertools.chain.from_iterable(values)]
    filled = serving_pb2.TensorProto(dtype=kind, **{_LAYOUT[kind][0]: values})
    for size in shape:
        filled.tensor_shape.dim.add(size=size)
    return filled


def to_lists(tensor):
    """The values of a TensorProto as lists nested like its shape; bytes become str.

    >>> to_lists(tensor([b"bom", b"dia"], "string"))
    ['bom', 'dia']
    """
    if tensor.dtype not in _LAYOUT:
        raise connection.ServingError(
            f"The server answered with a tensor of data type {tensor.dtype}; expected float32, "
            "float64, int32, int64, bool or string"
        )
    field, letter, zero = _LAYOUT[tensor.dtype]
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    size, content = math.prod(shape), tensor.tensor_content
    if min(shape, default=0) < 0 or size > _MOST:
        raise connection.ServingError(f"The server answered with a tensor of shape {shape}")
    if content:
        if len(content) != struct.calcsize(f"<{size}{letter}"):
            raise connection.ServingError(
                f"The server answered with a tensor of {size} elements in {len(content)} bytes"
            )
        values = list(struct.unpack(f"<{size}{letter}", content))
    else:  # fewer values than elements: the last one stands for the rest
        values = list(getattr(tensor, field))[:size]
        values += [values[-1] if values else zero] * (size - len(values))
    if tensor.dtype == _STRING:
        values = [value.decode("utf-8", "replace") for value in values]
    return _nest(values, shape)


def _nest(values, shape):
    if len(shape) < 2:
        return values if shape else values[0]
    step = len(values) // max(shape[0], 1)
    return [_nest(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
