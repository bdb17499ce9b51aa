"""The few messages of TensorFlow Serving's API that a client needs, without TensorFlow.

The official stubs (`tensorflow_serving.apis`) import TensorFlow's own protos and with them all of
TensorFlow: seconds, and a gigabyte of memory. The wire format knows field numbers and types only,
so the messages below carry those of `tensorflow/core/framework/tensor.proto` and
`tensorflow_serving/apis/*.proto` under short names, in a descriptor pool of their own: a process
may hold the official stubs beside them.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "translator_client"
_FIELD = descriptor_pb2.FieldDescriptorProto

SCHEMA = {
    # tensorflow.TensorShapeProto, tensorflow.TensorProto (an enum is an int32 on the wire)
    "Dim": "int64 size = 1; string name = 2",
    "Shape": "repeated Dim dim = 2; bool unknown_rank = 3",
    "Tensor": (
        "int32 dtype = 1; Shape tensor_shape = 2; bytes tensor_content = 4; "
        "repeated float float_val = 5; repeated double double_val = 6; repeated int32 int_val = 7; "
        "repeated bytes string_val = 8; repeated int64 int64_val = 10; repeated bool bool_val = 11"
    ),
    # google.protobuf.Int64Value, tensorflow.serving.ModelSpec
    "Version": "int64 value = 1",
    "ModelSpec": (
        "string name = 1; Version version = 2; string signature_name = 3; string version_label = 4"
    ),
    # tensorflow.serving.PredictionService.Predict
    "PredictRequest": (
        "ModelSpec model_spec = 1; map<string, Tensor> inputs = 2; "
        "repeated string output_filter = 3"
    ),
    "PredictResponse": "map<string, Tensor> outputs = 1; ModelSpec model_spec = 2",
    # tensorflow.serving.ModelService.GetModelStatus
    "StatusRequest": "ModelSpec model_spec = 1",
    "Status": "int32 error_code = 1; string error_message = 2",
    "VersionStatus": "int64 version = 1; int32 state = 2; Status status = 3",
    "StatusResponse": "repeated VersionStatus model_version_status = 1",
}


def build_messages(package, schema):
    """Makes message classes at run time, in a descriptor pool of their own.

    Args:
        package: Name of the proto package they live in.
        schema: Dict from message name to its fields in proto3 notation, separated by `;`:
            `[repeated] TYPE NAME = NUMBER` or `map<string, TYPE> NAME = NUMBER`, where TYPE is a
            scalar type or a message of the same schema.

    Returns:
        Dict from message name to class.

    >>> messages = build_messages("example", {"Point": "int32 x = 1; int32 y = 2"})
    >>> messages["Point"](x=1, y=2).SerializeToString()
    b'\\x08\\x01\\x10\\x02'
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in schema.items():
        message = file.message_type.add(name=name)
        for field in fields.split(";"):
            _add_field(message, package, *field.rsplit("=", 1))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in schema
    }


def _add_field(message, package, declaration, number):
    """Adds `[repeated] TYPE NAME` or `map<string, TYPE> NAME` to a message's descriptor."""
    kind, name = declaration.strip().rsplit(" ", 1)
    field = message.field.add(name=name, number=int(number), label=_FIELD.LABEL_OPTIONAL)
    if kind.startswith("map<"):
        entry_name = name.capitalize() + "Entry"  # protoc's rule for a one-word field
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _add_field(entry, package, "string key", 1)
        _add_field(entry, package, kind[len("map<string,") : -1].strip() + " value", 2)
        kind = f"repeated {message.name}.{entry_name}"
    if kind.startswith("repeated "):
        field.label = _FIELD.LABEL_REPEATED
        kind = kind.removeprefix("repeated ")
    scalar = getattr(_FIELD, f"TYPE_{kind.upper()}", None)
    if kind.islower() and scalar is not None:
        field.type = scalar
    else:
        field.type = _FIELD.TYPE_MESSAGE
        field.type_name = f".{package}.{kind}"


_CLASSES = build_messages(_PACKAGE, SCHEMA)
Tensor = _CLASSES["Tensor"]
PredictRequest = _CLASSES["PredictRequest"]
PredictResponse = _CLASSES["PredictResponse"]
StatusRequest = _CLASSES["StatusRequest"]
StatusResponse = _CLASSES["StatusResponse"]
