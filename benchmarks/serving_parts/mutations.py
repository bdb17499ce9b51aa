"""Makes mutated requests to the development server, for the fuzz run.

No request names the model `slow`, which would wait as long as a mutated number says.
"""

import json
import random

import http2
import numpy as np
from google.protobuf.message import DecodeError
from server_models import request
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    regression_pb2,
)

PREDICTION, MODELS = "/tensorflow.serving.PredictionService/", "/tensorflow.serving.ModelService/"
RELOAD = MODELS + "HandleReloadConfigRequest"
LONGEST = 4096  # bytes of a mutated request
# Values that have broken this server or another one.
NASTY = (
    None, True, 0, -1, 1.5, 1e308, -1e-320, 1 << 31, 1 << 63, 1 << 64, float("nan"), float("inf"),
    "", "\x00", "é🙂", "\ud800", "\udcff", "x" * 300, {}, [], [[]], {"b64": "YQ=="}, {"b64": "a"},
    {"b64": 1}, {"b64": "YQ==", "x": 1}, [{"b64": "é"}], {"instances": 1}, [1, [2]], [[1], [1, 2]],
)  # fmt: skip
TOKENS = (
    b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\ud800", b"\\u0000", b"\xff", b"\xc3",
    b"NaN", b"1e999", b"-", b"0x1", b"9" * 400, b'{"b64":', b'"instances"', b'"inputs"', b"[" * 900,
    b"\r\n", b"\x00", b" ", b"\r\n\r\n", b"Content-Length: 5\r\n", b"%", b"/", b"true", b"null",
)  # fmt: skip
MODEL_NAMES = ("half", "echo", "nobody", "", "..", "%2e", "%ff", "é", "half%00", "a" * 300)
HEADERS = (
    b"Content-Length: 0", b"Content-Length: -1", b"Content-Length: 1e3", b"Content-Length: 999999",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Content-Encoding: gzip",
    b"Content-Encoding: br", b"Expect: 100-continue", b"Connection: close", b"Upgrade: h2c",
    b"Host:", b"Host: \xff", b": x", b"X" * 9000 + b": 1", b"Content-Type: text/plain; charset=x",
    b"Range: bytes=0-", b"Cookie: \x01", b"Content-Length: 5\r\nContent-Length: 6",
)  # fmt: skip
METHODS = (b"POST", b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT",
           b"post", b"P\xd6ST", b"")  # fmt: skip


class Mutator:
    """Makes requests of random mutations; the same seed makes the same ones.

    Args:
        seed: Seed of the random numbers.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self, depth=0):
        """A JSON value: a special one, a plain one, or a list or object of such values."""
        draw = self.random.random()
        if depth > 3 or draw < 0.5:
            return self.random.choice(NASTY)
        if draw < 0.75:
            return [self.value(depth + 1) for _ in range(self.random.randrange(4))]
        return {self.name(): self.value(depth + 1) for _ in range(self.random.randrange(3))}

    def name(self):
        names = ("x", "text", "number", "vector", "b64", "", "\ud800", "é", "q" * 50)
        return self.random.choice(names)

    def document(self):
        """The body of a REST request, valid or nearly valid."""
        body = {}
        for key in ("instances", "inputs", "signature_name", "examples", "context"):
            if self.random.random() < 0.35:
                body[key] = self.value()
        if self.random.random() < 0.5:
            body[self.random.choice(("instances", "inputs"))] = self.random.choice(
                ([1.0, 2.0], ["a", "b"], [[1.0], [2.0]], {"x": [1.0]}, {"text": ["a"]}, [1])
            )
        return json.dumps(body).encode()

    def bytes(self, content):
        """Changes bytes by a few cuts, swaps, doublings and insertions."""
        content = bytearray(content)
        for _ in range(self.random.randrange(4)):
            place = self.random.randrange(len(content) + 1)
            kind = self.random.randrange(5)
            if kind == 0:
                content[place : place + self.random.randrange(8)] = b""
            elif kind == 1:
                content[place:place] = self.random.choice(TOKENS)
            elif kind == 2 and content:
                content[place - 1] ^= 1 << self.random.randrange(8)
            elif kind == 3:
                content[place:place] = self.random.randbytes(self.random.randrange(1, 9))
            else:
                content[place:place] = content[place : place + self.random.randrange(64)]
        return bytes(content[:LONGEST])

    def path(self):
        version = self.random.choice(
            ("", "", "", "/versions/1", "/versions/-1", "/versions/" + "9" * 25, "/labels/stable")
        )
        method = self.random.choice(
            (":predict", ":predict", ":classify", ":regress", ":x", "", "/metadata")
        )
        return f"/v1/models/{self.random.choice(MODEL_NAMES)}{version}{method}".encode()

    def rest_body(self):
        """A well-formed HTTP request with a mutated body."""
        body = self.document()
        if self.random.random() < 0.6:
            body = self.bytes(body)
        return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
            self.path(),
            len(body),
            body,
        )

    def rest_head(self):
        """An HTTP request with a mutated method, path or headers."""
        lines = [
            b"%s %s HTTP/%s"
            % (
                self.random.choice(METHODS),
                self.bytes(self.path()),
                self.random.choice((b"1.1", b"1.0", b"0.9", b"2.0", b"9.9", b"")),
            ),
            b"Host: x",
            *self.random.sample(HEADERS, self.random.randrange(3)),
        ]
        body = self.document()
        if self.random.random() < 0.7:
            lines.append(b"Content-Length: %d" % len(body))
        whole = b"\r\n".join(lines) + b"\r\n\r\n" + body
        return self.bytes(whole) if self.random.random() < 0.5 else whole

    def grpc(self):
        """(path, bytes) of a gRPC call."""
        path, message = self.random.choice(CALLS)
        content = message.SerializeToString()
        if self.random.random() < 0.1:
            path = self.random.choice(("/", "/x/y", PREDICTION, path + "x", path.lower(), "/é"))
        draw = self.random.random()
        if draw < 0.15:
            content = self.tensor_request().SerializeToString()
        elif draw < 0.9:
            content = self.bytes(content)
        if path == RELOAD and _changes_models(content):
            content = message.SerializeToString()
        return path, content

    def tensor_request(self):
        """A Predict request with a tensor whose parts do not fit each other."""
        proto = tensor_pb2.TensorProto(dtype=self.random.choice((*range(-1, 26), 101, 107, 999)))
        for _ in range(self.random.randrange(5)):
            sizes = (0, 1, 2, 3, -1, 100, 1 << 40, -(1 << 63))
            proto.tensor_shape.dim.add(size=self.random.choice(sizes))
        proto.tensor_shape.unknown_rank = self.random.random() < 0.05
        if self.random.random() < 0.4:
            proto.tensor_content = self.random.randbytes(self.random.randrange(20))
        proto.float_val.extend([1.0, float("nan")][: self.random.randrange(3)])
        proto.string_val.extend([b"a", b"\xff"][: self.random.randrange(3)])
        proto.int_val.extend([1, -1][: self.random.randrange(3)])
        if self.random.random() < 0.1:
            proto.resource_handle_val.add(device="x", name="y")
        if self.random.random() < 0.1:
            proto.variant_val.add(type_name="x", metadata=b"y")
        model, alias = self.random.choice((("half", "x"), ("echo", "text")))
        return request(model, **{alias: proto})

    def http2(self):
        """The bytes of an HTTP/2 connection: frames, some of a real call, some of none."""
        path, content = self.grpc()
        while path == RELOAD:  # mutated bytes might be a config without the models
            path, content = self.grpc()
        frames = http2.call(self.bytes(path.encode()), content)
        for _ in range(self.random.randrange(1, 4)):
            kind = self.random.choice((*range(11), 255))
            stream = self.random.choice((0, 1, 2, 3, (1 << 31) - 1))
            payload = self.random.randbytes(self.random.randrange(20))
            made = http2.frame(kind, self.random.randrange(256), stream, payload)
            frames.insert(self.random.randrange(len(frames) + 1), made)
        if self.random.random() < 0.3:
            self.random.shuffle(frames)
        return http2.PREFACE + self.bytes(b"".join(frames))


def _classify():
    message = classification_pb2.ClassificationRequest()
    message.model_spec.name = "half"
    message.input.example_list.examples.add().features.feature["x"].float_list.value.append(1.0)
    return message


def _named(message):
    message.model_spec.name = "half"
    return message


def _metadata():
    message = _named(get_model_metadata_pb2.GetModelMetadataRequest())
    message.metadata_field.append("signature_def")
    return message


def _reload():
    """A config that the server refuses, because its model directories do not exist."""
    message = model_management_pb2.ReloadConfigRequest()
    message.config.model_config_list.config.add(
        name="fuzz", base_path="/nowhere/at/all", model_platform="tensorflow"
    )
    return message


def _changes_models(content):
    """Whether a reload would remove the models that the real requests use."""
    try:
        message = model_management_pb2.ReloadConfigRequest.FromString(content)
    except DecodeError:
        return False
    listed = message.config.model_config_list.config
    return message.config.HasField("model_config_list") and not listed


CALLS = [
    (PREDICTION + "Predict", request("half", x=[1.0, 2.0])),
    (PREDICTION + "Predict", request("half", version=1, output_filter=["y"], x=[[1.0], [2.0]])),
    (PREDICTION + "Predict", request("half", label="stable", x=np.zeros((2, 3), "float32"))),
    (PREDICTION + "Predict", request("echo", text=[b"a", "é".encode(), b"\xff"])),
    (PREDICTION + "Predict", request("echo", "pair", number=[1], vector=[[1.0, 2.0]])),
    (PREDICTION + "Predict", request("echo", "boom", text=["boom"])),
    (PREDICTION + "Classify", _classify()),
    (PREDICTION + "Regress", _named(regression_pb2.RegressionRequest())),
    (PREDICTION + "MultiInference", inference_pb2.MultiInferenceRequest()),
    (PREDICTION + "GetModelMetadata", _metadata()),
    (MODELS + "GetModelStatus", _named(get_model_status_pb2.GetModelStatusRequest())),
    (RELOAD, _reload()),
]
