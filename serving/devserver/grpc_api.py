"""PredictionService, ModelService and the health service over gRPC."""
# ruff: noqa: N802 - gRPC names the methods

import functools
import ipaddress
import urllib.parse

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from . import examples, grpc_server
from .errors import MAX_MESSAGE, ServingError, from_exception, invalid, unimplemented
from .predict import prepare
from .tensors import to_proto


def answering(method):
    """Wraps a method so that an exception ends the call with the status of its ServingError."""

    @functools.wraps(method)
    async def answer(self, request, context):
        try:
            return await method(self, request, context)
        except Exception as error:
            error = from_exception(error)
            cut = error.message[MAX_MESSAGE:] and "...TRUNCATED"  # as the real server does it
            await context.abort(error.code, error.message[:MAX_MESSAGE] + cut)

    return answer


async def classify(predictor, request, timeout):
    """Runs a ClassificationRequest of either front end; returns (result, model_spec)."""
    spec, arrays = await predictor.run("Classify", examples.prepare_classify, request, timeout)
    return examples.classifications(arrays, examples.count(request)), spec


async def regress(predictor, request, timeout):
    """Runs a RegressionRequest of either front end; returns (result, model_spec)."""
    spec, arrays = await predictor.run("Regress", examples.prepare_regress, request, timeout)
    return examples.regressions(arrays, examples.count(request)), spec


def metadata(manager, request):
    """Answers a GetModelMetadataRequest of either front end."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    if not request.metadata_field:
        raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != "signature_def":
            raise invalid(f"Metadata field {field} is not supported")
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    with manager.use(request.model_spec) as servable:
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in servable.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
        response.model_spec.name = servable.name
        response.model_spec.version.value = servable.version
    response.metadata["signature_def"].Pack(signatures)
    return response


def status(manager, request):
    """Answers a GetModelStatusRequest of either front end."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in manager.status(request.model_spec):
        entry = response.model_version_status.add(version=version.number, state=version.state)
        entry.status.SetInParent()
        if version.error is not None:
            entry.status.error_code = version.error.code.value[0]
            entry.status.error_message = version.error.message
    return response


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The Predict, Classify, Regress and GetModelMetadata calls.

    Args:
        predictor: predict.Predictor.
        metrics: metrics.Metrics.
    """

    def __init__(self, predictor, metrics):
        self._predictor = predictor
        self._metrics = metrics

    @answering
    async def Predict(self, request, context):
        with self._counted("Predict", request):
            run = self._predictor.run("Predict", prepare, request, context.time_remaining())
            spec, arrays = await run
            response = predict_pb2.PredictResponse(model_spec=spec)
            for alias, array in arrays.items():
                response.outputs[alias].CopyFrom(to_proto(array))
            return response

    def _counted(self, method, request):
        known = self._predictor.manager.known(request.model_spec.name)
        return self._metrics.request(known, method, "GRPC")

    @answering
    async def GetModelMetadata(self, request, context):
        return metadata(self._predictor.manager, request)

    @answering
    async def Classify(self, request, context):
        with self._counted("Classify", request):
            result, spec = await classify(self._predictor, request, context.time_remaining())
            return classification_pb2.ClassificationResponse(result=result, model_spec=spec)

    @answering
    async def Regress(self, request, context):
        with self._counted("Regress", request):
            result, spec = await regress(self._predictor, request, context.time_remaining())
            return regression_pb2.RegressionResponse(result=result, model_spec=spec)

    @answering
    async def MultiInference(self, request, context):
        raise unimplemented("MultiInference")


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """The GetModelStatus and HandleReloadConfigRequest calls.

    Args:
        manager: versions.Manager.
        remote_reload: Whether other hosts may change the config.
    """

    def __init__(self, manager, remote_reload=False):
        self._manager = manager
        self._remote_reload = remote_reload

    @answering
    async def GetModelStatus(self, request, context):
        return status(self._manager, request)

    @answering
    async def HandleReloadConfigRequest(self, request, context):
        if not self._remote_reload and not from_loopback(context.peer()):
            raise ServingError(
                grpc.StatusCode.PERMISSION_DENIED,
                "Only this host may reload the config. Start the server with "
                "--allow_remote_reload to let other hosts do it",
            )
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
                "ModelConfigList is currently supported"
            )
        await self._manager.reload(request.config)
        return model_management_pb2.ReloadConfigResponse()


def from_loopback(peer):
    """Whether gRPC's name of a peer is a loopback address or a UNIX socket.

    >>> [from_loopback(peer) for peer in ("ipv4:127.0.0.1:5", "ipv6:%5B::1%5D:5", "unix:/run/x")]
    [True, True, True]
    >>> [from_loopback(peer) for peer in ("ipv4:10.0.0.7:5", "ipv6:%5Bfe80::1%25eth0%5D:5", "")]
    [False, False, False]
    """
    kind, _, address = urllib.parse.unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind == "unix"
    address = ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def credentials(config):
    """Server credentials from an SSLConfig."""
    authority = config.custom_ca.encode() or None
    if config.client_verify and not authority:
        raise invalid("ssl_config_file: client_verify needs custom_ca")
    pair = (config.server_key.encode(), config.server_cert.encode())
    return grpc.ssl_server_credentials([pair], authority, config.client_verify)


class Decoding(grpc.aio.ServerInterceptor):
    """Answers INVALID_ARGUMENT to bytes that do not parse as the method's request message.

    Without it, gRPC would raise an exception in the server.
    """

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler

        async def answer(content, context):
            try:
                request = handler.request_deserializer(content)
            except DecodeError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return await handler.unary_unary(request, context)

        serializer = handler.response_serializer
        return grpc.unary_unary_rpc_method_handler(answer, response_serializer=serializer)


async def start(predictor, metrics, options, ssl_config=None):
    """Starts the gRPC server.

    Args:
        predictor: predict.Predictor.
        metrics: metrics.Metrics.
        options: Flags.
        ssl_config: SSLConfig, or None for plain text.

    Returns:
        The started grpc.aio.Server.

    Raises:
        ServingError: The SSLConfig is inconsistent.
        RuntimeError: The address cannot be bound.
    """
    server = grpc_server.server(
        interceptors=[Decoding()],
        options=[
            ("grpc.max_receive_message_length", options.max_request_bytes or -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # two servers on one port would share its calls
        ],
    )
    services = prediction_service_pb2.DESCRIPTOR.services_by_name["PredictionService"]
    grpc_server.register(server, services, PredictionService(predictor, metrics))
    services = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"]
    model = ModelService(predictor.manager, options.allow_remote_reload)
    grpc_server.register(server, services, model)
    if options.enable_grpc_healthcheck_service:
        servicer = health.aio.HealthServicer()
        for name in ("", "ModelService", "PredictionService"):
            await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if options.port and ssl_config is None:
        server.add_insecure_port(f"{options.host}:{options.port}")
    elif options.port:
        server.add_secure_port(f"{options.host}:{options.port}", credentials(ssl_config))
    if options.grpc_socket_path:
        server.add_insecure_port(f"unix:{options.grpc_socket_path}")
    await server.start()
    return server
