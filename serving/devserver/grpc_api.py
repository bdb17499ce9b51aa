"""The gRPC API: Predict, GetModelStatus, and gRPC's own health service."""

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from keras_tfmr.client import serving_pb2
from keras_tfmr.client.client import STATES

from . import metrics, tensors
from .address import with_default_port
from .errors import StatusError, invalid, unimplemented, unknown_label
from .predict import checker, naming, predict

NUMBERS = {state: number for number, state in STATES.items()}


class Api(grpc.GenericRpcHandler):
    """Answers every method, with the client's messages: the official ones import TensorFlow."""

    def __init__(self, versions):
        self._versions = versions
        self._methods = {
            "/tensorflow.serving.PredictionService/Predict": self._predict,
            "/tensorflow.serving.ModelService/GetModelStatus": self._status,
        }

    def service(self, details):
        """The handler of a method."""
        method = self._methods.get(details.method)
        name = details.method.rpartition("/")[2] if method else "other"

        async def handle(content, context):
            try:
                with metrics.request(self._versions.name, "GRPC", name):
                    if method is None:
                        raise unimplemented(details.method.strip("/"))
                    answer = await method(content, context)
                    return answer.SerializeToString()
            except StatusError as error:
                await context.abort(error.code, error.message)

        return grpc.unary_unary_rpc_method_handler(handle)

    async def _predict(self, content, context):
        request = parsed(serving_pb2.PredictRequest, content)
        spec, options = request.model_spec, self._versions.options
        version = self._versions.get(spec.name, number_of(request))

        def read(signature):
            if request.inputs.keys() != signature.inputs.keys():
                wanted, given = (", ".join(sorted(of.inputs)) for of in (signature, request))
                raise invalid(f"Expected the inputs {wanted}. Received: {given or 'none'}")
            inputs = {}
            for key, proto in request.inputs.items():
                with naming(f"Input {key}"):
                    check = checker(signature.inputs[key], options)
                    inputs[key] = tensors.from_proto(proto, check)
            return inputs

        def write(name, outputs):
            answer = serving_pb2.PredictResponse()
            for key, tensor in outputs.items():
                answer.outputs[key].CopyFrom(tensors.to_proto(tensor))
            answer.model_spec.name, answer.model_spec.signature_name = spec.name, name
            answer.model_spec.version.value = version.number
            return answer

        left, only = context.time_remaining(), request.output_filter
        return await predict(version, spec.signature_name, read, write, left, only)

    async def _status(self, content, context):
        request = parsed(serving_pb2.GetModelStatusRequest, content)
        answer = serving_pb2.GetModelStatusResponse()
        for version in self._versions.listed(request.model_spec.name, number_of(request)):
            state = NUMBERS[version.state]
            status = answer.model_version_status.add(version=version.number, state=state).status
            if version.error is not None:
                status.error_code = version.error.code.value[0]
                status.error_message = version.error.message
        return answer


def number_of(request):
    """The version that a request's ModelSpec asks for; None for the newest."""
    spec = request.model_spec
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    if not spec.name:
        raise invalid("ModelSpec has no name specified.")
    if spec.WhichOneof("version_choice") == "version_label":
        raise unknown_label(spec.version_label)
    return spec.version.value if spec.HasField("version") else None


def parsed(message, content):
    """The message in some bytes."""
    try:
        return message.FromString(content)
    except DecodeError:
        raise invalid(f"The request is not a {message.DESCRIPTOR.name}") from None


async def start(versions, options):
    """Listens; returns the started server, its health service and its port.

    Raises:
        RuntimeError: The address cannot be used.
    """
    limits = [
        ("grpc.max_receive_message_length", options.max_request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),  # two servers on one port would share its calls
    ]
    server, servicer = grpc.aio.server(options=limits), health.aio.HealthServicer()
    await set_serving(servicer, False)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    server.add_generic_rpc_handlers([Api(versions)])
    port = server.add_insecure_port(with_default_port(options.host, options.port))
    await server.start()
    return server, servicer, port


async def set_serving(servicer, serving):
    """The status of the health service."""
    status = health_pb2.HealthCheckResponse
    for name in ("", "PredictionService", "ModelService"):  # the real server's names
        await servicer.set(name, status.SERVING if serving else status.NOT_SERVING)
