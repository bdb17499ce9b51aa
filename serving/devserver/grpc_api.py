"""The gRPC API: Predict and GetModelStatus. The other methods answer UNIMPLEMENTED."""

import time

import grpc
import tensorflow as tf
from tensorflow_serving.apis import get_model_status_pb2 as status_pb2
from tensorflow_serving.apis import model_service_pb2_grpc as model_service
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc as prediction_service

from .inputs import from_proto
from .session import code_and_text, signature_of

MOST_SECONDS = 24 * 60 * 60  # of a request without a deadline


class GrpcApi(prediction_service.PredictionServiceServicer, model_service.ModelServiceServicer):
    """Answers both services with the versions of a model, in the threads of `Workers`."""

    def __init__(self, versions, workers):
        self._versions, self._workers = versions, workers

    async def Predict(self, request, context):  # noqa: N802
        seconds = context.time_remaining()
        seconds = MOST_SECONDS if seconds is None else min(seconds, MOST_SECONDS)
        try:
            return await self._workers.run(seconds, predicted, self._versions, request)
        except Exception as error:
            await context.abort(*code_and_text(error))

    async def GetModelStatus(self, request, context):  # noqa: N802
        try:
            listed = self._versions.listed(*model_and_version(request.model_spec))
        except Exception as error:
            await context.abort(*code_and_text(error))
        answer = status_pb2.GetModelStatusResponse()
        for version in listed:
            state = status_pb2.ModelVersionStatus.State.Value(version.state)
            status = answer.model_version_status.add(version=version.number, state=state).status
            code, status.error_message = version.status
            status.error_code = code.value[0]
        return answer


def predicted(versions, request, deadline):
    """The PredictResponse to a PredictRequest."""
    model, asked = model_and_version(request.model_spec)
    number, session = versions.serving(model, asked)
    name = request.model_spec.signature_name or "serving_default"
    signature = signature_of(session, name)
    if request.inputs.keys() != signature.inputs.keys():
        wanted, given = sorted(signature.inputs), sorted(request.inputs)
        raise ValueError(f"{name} has the inputs {wanted}. Received: {given}")
    if unknown := set(request.output_filter) - signature.outputs.keys():
        raise ValueError(f"{name} has the outputs {sorted(signature.outputs)}. Received: {unknown}")
    infos = signature.inputs
    inputs = {key: from_proto(key, request.inputs[key], infos[key]) for key in infos}
    seconds = deadline - time.monotonic()
    outputs = session.run(name, inputs, [*request.output_filter] or None, seconds)
    answer = predict_pb2.PredictResponse()
    for key, array in outputs.items():
        answer.outputs[key].CopyFrom(tf.make_tensor_proto(array))
    answer.model_spec.name, answer.model_spec.signature_name = model, name
    answer.model_spec.version.value = number
    return answer


def model_and_version(spec):
    """The model's name and the version, or None for the newest, of a ModelSpec."""
    if spec.WhichOneof("version_choice") == "version_label":
        raise ValueError(f"Unrecognized servable version label: {spec.version_label}")
    return spec.name, spec.version.value if spec.HasField("version") else None


def server_of(versions, workers, max_request_bytes):
    """The server of gRPC, which refuses larger requests."""
    options = [
        ("grpc.max_receive_message_length", max_request_bytes),
        ("grpc.so_reuseport", 0),  # two servers on one port would share its calls
    ]
    server, api = grpc.aio.server(options=options), GrpcApi(versions, workers)
    prediction_service.add_PredictionServiceServicer_to_server(api, server)
    model_service.add_ModelServiceServicer_to_server(api, server)
    return server
