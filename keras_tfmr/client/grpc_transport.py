"""Requests over gRPC, by the full names of the methods, which is all that official stubs do."""

import asyncio
import json
import math
import os
import re
import weakref

import grpc

from keras_tfmr.client import connection, serving_pb2, tensors
from keras_tfmr.client.transport import Transport

_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"

# ModelVersionStatus.State of tensorflow_serving/apis/get_model_status.proto
STATES = {0: "UNKNOWN", 10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}

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

# Of this process. A channel that is closed has its threads until nothing refers to it any more.
_channels: weakref.WeakSet[grpc.aio.Channel] = weakref.WeakSet()
_threads_lost = False  # whether gRPC has threads in the parent that this process lacks


def _count_losses() -> None:
    """In the child of a fork: gRPC, which had channels, would wait for its threads for ever."""
    global _threads_lost
    _threads_lost = _threads_lost or bool(_channels)


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_count_losses)


class GrpcTransport(Transport):
    """Requests over one channel.

    Args:
        target: The `Target`.
        tls: A `TLS`, or None for a plain connection.
        max_message_bytes: Largest request and answer; -1 for no limit.
    """

    def __init__(self, target, tls, max_message_bytes):
        super().__init__(target)
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
        request = predict_request(self.target, signature, inputs)
        kind = serving_pb2.PredictResponse
        response = await self._call(_PREDICT, request, kind, headers, timeout)
        return {name: answered(name, proto) for name, proto in response.outputs.items()}

    async def status(self, headers, timeout):
        request = serving_pb2.GetModelStatusRequest(model_spec=_spec(self.target))
        kind = serving_pb2.GetModelStatusResponse
        response = await self._call(_STATUS, request, kind, headers, timeout)
        return [
            (version.version, STATES.get(version.state, "UNKNOWN"), version.status.error_message)
            for version in response.model_version_status
        ]

    def connect(self):
        if _threads_lost:
            raise connection.ServingError(
                "gRPC cannot go on in a process that was forked while a client was connected. "
                "Close the clients before the fork, or use rest=True",
                "FAILED_PRECONDITION",
            )
        if self._credentials is None:
            channel = grpc.aio.insecure_channel(self.target.server, self._options)
        else:
            channel = grpc.aio.secure_channel(self.target.server, self._credentials, self._options)
        _channels.add(channel)
        return channel

    async def disconnect(self, channel):
        await channel.close()

    async def _call(self, path, request, response, headers, timeout):
        method = self.connection().unary_unary(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        try:
            return await method(request, timeout=timeout, metadata=[*headers.items()])
        except grpc.RpcError as error:
            raise self._failed(error.code().name, error.details() or "") from error
        except asyncio.CancelledError as error:
            if not self.closed:
                raise
            raise self.error("CANCELLED", "the client was closed") from error

    def _failed(self, code, details):
        if code == "UNAVAILABLE" and any(sign in details for sign in _WRONG_CERTIFICATE):
            return connection.untrusted(details, self.target)  # trying again does not help
        if code == "UNAVAILABLE" and self._credentials is not None and _HUNG_UP in details:
            details += connection.PERHAPS_REFUSED
        if status := _GATEWAYS.search(details):
            return connection.from_http_status(int(status[1]), details, self.target)
        return self.error(code, details)


def predict_request(target, signature, inputs):
    """The PredictRequest for {input name: bytes or numbers} of a `Signature`."""
    request = serving_pb2.PredictRequest(model_spec=_spec(target))
    request.model_spec.signature_name = signature.name
    for name, values in inputs.items():
        tensor = tensors.from_lists(values, signature.inputs[name])
        request.inputs[name].CopyFrom(tensors.to_proto(tensor))
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


def answered(name, proto):
    """The values of an output as nested lists, with str for bytes.

    Raises:
        ServingError: If the message is no tensor that a client reads.
    """
    try:
        tensor = tensors.from_proto(proto, _check)
    except ValueError as error:
        raise connection.ServingError(f"The output {name} of the server {error}") from error
    if tensor.dtype == "string":
        texts = [value.decode("utf-8", "replace") for value in tensor.values]
        tensor = tensor._replace(values=texts)
    return tensors.to_lists(tensor)


def _check(dtype, shape):
    if math.prod(shape) > _MOST:
        raise ValueError(f"has the shape {shape}, more than {_MOST} elements")
