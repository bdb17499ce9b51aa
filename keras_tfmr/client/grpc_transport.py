"""Requests over gRPC, by the full names of the methods, which is all that official stubs do."""

import contextlib
import functools
import json

import grpc

from keras_tfmr.client import errors, serving_pb2, tensors

_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"

# ModelVersionStatus.State of tensorflow_serving/apis/get_model_status.proto
_STATES = {0: "UNKNOWN", 10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}


def channel_options(tls, max_message_bytes):
    """What differs from gRPC's defaults, and why."""
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


def credentials(tls):
    """Credentials from PEM files, for gRPC."""
    return grpc.ssl_channel_credentials(tls.read(tls.ca), tls.read(tls.key), tls.read(tls.cert))


class _Channel:
    """A channel and the two methods that are called on it.

    Args:
        library: `grpc` for a blocking channel, `grpc.aio` for one whose calls are awaited.
    """

    def __init__(self, library, target, tls, max_message_bytes):
        options = channel_options(tls, max_message_bytes)
        if tls is None:
            self._channel = library.insecure_channel(target.server, options)
        else:
            self._channel = library.secure_channel(target.server, credentials(tls), options)
        self.close = self._channel.close
        self.predict = self._method(_PREDICT, serving_pb2.PredictResponse)
        self.status = self._method(_STATUS, serving_pb2.GetModelStatusResponse)

    def _method(self, path, response):
        return self._channel.unary_unary(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )


class GrpcTransport:
    """Requests over one channel, shared by all threads.

    Args:
        target: The `Target`.
        tls: A `TLS`, or None for a plain connection.
        max_message_bytes: Largest request and answer; -1 for no limit.
    """

    def __init__(self, target, tls, max_message_bytes):
        self.target = target
        self._channel = _Channel(grpc, target, tls, max_message_bytes)

    def predict(self, signature, inputs, timeout):
        """Sends {input name: texts}; returns {output name: nested lists}."""
        request = predict_request(self.target, signature, inputs)
        with translated_errors(self.target):
            return outputs_of(self._channel.predict(request, timeout=timeout))

    def status(self, timeout):
        """List of (version, state, message)."""
        with translated_errors(self.target):
            return versions_of(self._channel.status(status_request(self.target), timeout=timeout))

    def close(self):
        """Closes the channel; calls under way are cancelled."""
        self._channel.close()


class AsyncGrpcTransport:
    """A `GrpcTransport` with coroutines; the first call makes the channel, for its event loop."""

    def __init__(self, target, tls, max_message_bytes):
        self.target = target
        self._settings = (target, tls, max_message_bytes)

    @functools.cached_property
    def _channel(self):
        return _Channel(grpc.aio, *self._settings)

    async def predict(self, signature, inputs, timeout):
        """Sends {input name: texts}; returns {output name: nested lists}."""
        request = predict_request(self.target, signature, inputs)
        with translated_errors(self.target):
            return outputs_of(await self._channel.predict(request, timeout=timeout))

    async def status(self, timeout):
        """List of (version, state, message)."""
        with translated_errors(self.target):
            response = await self._channel.status(status_request(self.target), timeout=timeout)
            return versions_of(response)

    async def close(self):
        """Closes the channel; calls under way are cancelled."""
        channel = self.__dict__.pop("_channel", None)
        if channel is not None:
            await channel.close()


def predict_request(target, signature, inputs):
    """The PredictRequest for {input name: texts or `Numbers`}."""
    request = serving_pb2.PredictRequest()
    _fill_spec(request.model_spec, target)
    request.model_spec.signature_name = signature
    for name, texts in inputs.items():
        request.inputs[name].CopyFrom(tensors.tensor(texts))
    return request


def status_request(target):
    """The GetModelStatusRequest for the model."""
    request = serving_pb2.GetModelStatusRequest()
    _fill_spec(request.model_spec, target)
    return request


def outputs_of(response):
    """Output name -> nested lists."""
    return {name: tensors.to_lists(tensor) for name, tensor in response.outputs.items()}


def versions_of(response):
    """List of (version, state, message)."""
    return [
        (status.version, _STATES.get(status.state, "UNKNOWN"), status.status.error_message)
        for status in response.model_version_status
    ]


@contextlib.contextmanager
def translated_errors(target):
    """Turns gRPC's errors into this package's."""
    try:
        yield
    except grpc.RpcError as error:
        raise errors.from_status(error.code().name, error.details(), target) from error


def _fill_spec(spec, target):
    spec.name = target.model
    if target.version is not None:
        spec.version.value = target.version
    if target.label is not None:
        spec.version_label = target.label
