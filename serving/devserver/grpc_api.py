"""PredictionService, ModelService and the health service over gRPC."""
# ruff: noqa: N802 - gRPC names the methods

import asyncio
import time

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from .errors import ServingError, from_exception, invalid, truncated, unimplemented
from .tensors import to_proto


async def finish(context, error):
    """Ends a call with the status that an exception stands for."""
    error = from_exception(error)
    await context.abort(error.code, truncated(error.message))


def metadata(manager, request):
    """Answers GetModelMetadata, for both front ends."""
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
    """Answers GetModelStatus, for both front ends."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    response = get_model_status_pb2.GetModelStatusResponse()
    for version in manager.status(request.model_spec):
        entry = response.model_version_status.add(version=version.number, state=version.state)
        entry.status.error_message = ""
        if version.error is not None:
            entry.status.error_code = version.error.code.value[0]
            entry.status.error_message = version.error.message
    return response


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Args: predictor: predict.Predictor; metrics: metrics.Metrics."""

    def __init__(self, predictor, metrics):
        self._predictor = predictor
        self._metrics = metrics

    async def Predict(self, request, context):
        started, code = time.monotonic(), grpc.StatusCode.OK
        try:
            spec, arrays = await self._predictor.predict(request, context.time_remaining())
            response = predict_pb2.PredictResponse(model_spec=spec)
            for alias, array in arrays.items():
                response.outputs[alias].CopyFrom(to_proto(array))
            return response
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:
            code = from_exception(error).code
            await finish(context, error)
        finally:
            model = request.model_spec.name
            self._metrics.request(model, code, "Predict", "GRPC", time.monotonic() - started)

    async def GetModelMetadata(self, request, context):
        try:
            return metadata(self._predictor.manager, request)
        except ServingError as error:
            await finish(context, error)

    async def Classify(self, request, context):
        await finish(context, unimplemented("Classify"))

    async def Regress(self, request, context):
        await finish(context, unimplemented("Regress"))

    async def MultiInference(self, request, context):
        await finish(context, unimplemented("MultiInference"))


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """Args: manager: versions.Manager."""

    def __init__(self, manager):
        self._manager = manager

    async def GetModelStatus(self, request, context):
        try:
            return status(self._manager, request)
        except ServingError as error:
            await finish(context, error)

    async def HandleReloadConfigRequest(self, request, context):
        try:
            if request.config.WhichOneof("config") != "model_config_list":
                raise invalid(
                    "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
                    "ModelConfigList is currently supported"
                )
            await self._manager.reload(request.config)
            return model_management_pb2.ReloadConfigResponse()
        except ServingError as error:
            await finish(context, error)


def credentials(config):
    """Server credentials from an SSLConfig."""
    authority = config.custom_ca.encode() or None
    if config.client_verify and not authority:
        raise invalid("ssl_config_file: client_verify needs custom_ca")
    pair = (config.server_key.encode(), config.server_cert.encode())
    return grpc.ssl_server_credentials([pair], authority, config.client_verify)


async def start(predictor, metrics, options, ssl_config=None):
    """Starts the gRPC server.

    Args:
        predictor: predict.Predictor.
        metrics: metrics.Metrics.
        options: flags.
        ssl_config: SSLConfig, or None for plain text.

    Returns:
        grpc.aio.Server, accepting calls.

    Raises:
        ServingError: the address cannot be bound.
    """
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", options.max_request_bytes or -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # two servers on one port would share its calls
        ]
    )
    prediction = PredictionService(predictor, metrics)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(prediction, server)
    model = ModelService(predictor.manager)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(model, server)
    if options.enable_grpc_healthcheck_service:
        servicer = health.aio.HealthServicer()
        for name in ("", "ModelService", "PredictionService"):
            await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if options.port:
        _bind(server, f"{options.host}:{options.port}", ssl_config)
    if options.grpc_socket_path:
        _bind(server, f"unix:{options.grpc_socket_path}", None)
    await server.start()
    return server


def _bind(server, address, ssl_config):
    try:
        if ssl_config is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, credentials(ssl_config))
    except RuntimeError as error:
        raise ServingError(
            grpc.StatusCode.UNAVAILABLE, f"cannot listen on {address}: {error}"
        ) from error
    if not bound and not address.startswith("unix:"):
        raise ServingError(grpc.StatusCode.UNAVAILABLE, f"cannot listen on {address}")
