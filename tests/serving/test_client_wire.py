"""The client's own messages against the official stubs, field by field and byte by byte."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import predict_pb2

from keras_tfmr.client import ServingError, Target, serving_pb2
from keras_tfmr.client.grpc_transport import answered, predict_request
from keras_tfmr.signatures import signature as signatures

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [b"bom dia", b"", "olá 🙂".encode(), b"ol\xe1"]


def test_generated_messages_are_those_of_the_proto_file(tmp_path):
    """Compared as descriptors: compilers of different versions lay the Python out differently."""
    source = serving_pb2.DESCRIPTOR.name
    compiled = tmp_path / "compiled"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--descriptor_set_out={compiled}"]
    subprocess.run([*command, source], cwd=ROOT, check=True, timeout=60)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes()).file
    for message in [*file.message_type, *(n for m in file.message_type for n in m.nested_type)]:
        for field in message.field:
            field.ClearField("json_name")
    committed = descriptor_pb2.FileDescriptorProto()
    serving_pb2.DESCRIPTOR.CopyToProto(committed)
    assert file == committed, f"generate it anew, as {source} says"


@pytest.mark.parametrize("target", [Target(), Target(model="m", version=0), Target(label="b")])
def test_requests_are_the_official_ones(target):
    ours = predict_request(target, signatures.TRANSLATE, {"text": TEXTS})
    spec = {"name": target.model, "signature_name": "translate"}
    if target.version is not None:
        spec["version"] = {"value": target.version}
    if target.label is not None:
        spec["version_label"] = target.label
    inputs = {"text": tf.make_tensor_proto(TEXTS)}
    official = predict_pb2.PredictRequest(model_spec=spec, inputs=inputs)
    assert ours.SerializeToString() == official.SerializeToString()
    inputs = {"text": TEXTS[:2], "terms": [[b"bom", b"dia"], [b"", b""]]}
    inputs["translations"] = [[b"good", b"day"], [b"", b""]]
    ours = predict_request(target, signatures.TRANSLATE_WITH_TERMS, inputs)
    official = predict_pb2.PredictRequest.FromString(ours.SerializeToString())
    for name, values in inputs.items():
        assert official.inputs[name] == tf.make_tensor_proto(values)


ARRAYS = {
    "float_val": np.array([[0.5, -1.25], [3e-9, np.inf]], "float32"),
    "double_val": np.zeros((2, 0, 3)),
    "int_val": np.array(7, "int32"),
    "int64_val": np.array([[[1 << 60], [-1]]]),
    "bool_val": np.array([[True], [False]]),
}


def test_answers_are_read_in_both_encodings():
    """Values in the field of their type, as the C++ server writes them, or all in one string."""
    for field, array in ARRAYS.items():
        for content in ({field: array.ravel().tolist()}, {"tensor_content": array.tobytes()}):
            proto = TensorProto(dtype=tf.as_dtype(array.dtype).as_datatype_enum, **content)
            proto.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
            read = serving_pb2.TensorProto.FromString(proto.SerializeToString())
            assert answered("y", read) == array.tolist()


def test_repeated_other_and_broken_values():
    proto = tf.make_tensor_proto(0.5, dtype="float32", shape=[2, 3])  # one, for all of them
    read = serving_pb2.TensorProto.FromString(proto.SerializeToString())
    assert answered("y", read) == tf.make_ndarray(proto).tolist() == [[0.5] * 3] * 2
    with pytest.raises(ServingError, match="data type 17"):
        answered("y", serving_pb2.TensorProto(dtype=17))
    shape = {"dim": [{"size": 2}]}
    with pytest.raises(ServingError, match="3 bytes"):
        answered("y", serving_pb2.TensorProto(dtype=1, tensor_content=b"abc", tensor_shape=shape))
