"""The client: lists of texts to a server over gRPC, answers from it in their order."""

import collections
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import grpc

from keras_tfmr.client import serving_pb2, tensors
from keras_tfmr.client.errors import ServingError, from_status
from keras_tfmr.signatures import signature as signatures
from keras_tfmr.signatures.answers import (
    Classification,
    Completion,
    Document,
    Explanation,
    Likelihood,
    Translation,
)
from keras_tfmr.signatures.inputs import Inputs, pairs_of, sampling_of, terms_of, text_of
from keras_tfmr.signatures.signature import Answer, Signature
from keras_tfmr.text.strings import Text

# The methods by their full names, which is all that the official stubs do; they import TensorFlow.
PREDICT = "/tensorflow.serving.PredictionService/Predict"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
# ModelVersionStatus.State of tensorflow_serving/apis/get_model_status.proto
STATES = {0: "UNKNOWN", 10: "START", 20: "LOADING", 30: "AVAILABLE", 40: "UNLOADING", 50: "END"}

REQUESTS = 4  # that wait for their answers at the same time: they fill the server's queue
# A server that is not there, does not accept requests yet, or has all its threads at work.
AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
EXPLAINED = 8  # most texts of a request of `explain`, whose answers are large
# Seconds before each time that a request is sent again to a server that cannot take it now.
PAUSES = (0.5, 1.0, 1.5, 2.0)
MOST_SECONDS = 24 * 60 * 60  # of a request; gRPC counts no thousand years


class ServingClient:
    """A client of a text model behind TensorFlow Serving, over gRPC.

    Its calls have the names and answers of those of `Translator`, `Classifier` and `Completer`,
    each for the export of such a model. They take a list of str or bytes of any length and return a
    list with an answer for each, in order. Threads may share a client; processes that fork make
    theirs afterwards.

    A list is sent in batches, four of them at a time. If one fails, the call raises a
    `ServingError`, whose subclass says why; it names the texts of the batch and holds the answers
    to those before. While the server is unavailable or has no thread free (`RESOURCE_EXHAUSTED`), a
    request is sent again up to four times, over 5 seconds and within the timeout; the error then
    has the cause, such as a refused connection.

    Args:
        server: `HOST:PORT`, or `dns:///NAME:PORT`.
        model: The model's name on the server.
        version: Its version number; None for the newest.
        label: Its version label, instead of a number.
        headers: Metadata of each request, such as a gateway's token, by names in lower case:
            `{"authorization": "Bearer …"}`. The attribute is read at each request, so that a new
            token can be put there.
        timeout: Seconds that a request may take, retries included, a day at most; each batch is a
            request.
        retry: Whether to send a request again while the server cannot take it.
        credentials: For TLS, such as `grpc.ssl_channel_credentials()`; None for a plain connection.
        batch_size: Largest number of texts in a request.

    Raises:
        ValueError: If the server is no such address, both a version and a label are given, a header
            cannot be sent, or the timeout or the batch size is out of range.

    >>> with ServingClient("127.0.0.1:8500", model="translator") as client:
    ...     client.translate([])  # `client.translate(["bom dia"])` with a server at that address
    []
    """

    def __init__(
        self,
        server: str = "127.0.0.1:8500",
        *,
        model: str = "default",
        version: int | None = None,
        label: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        retry: bool = True,
        credentials: grpc.ChannelCredentials | None = None,
        batch_size: int = 32,
    ) -> None:
        if version is not None and label is not None:
            raise ValueError(f"Give a version or a label, not both. Received: {version}, {label!r}")
        if not re.fullmatch(r"(dns:///)?[^/]+:\d+", server):
            raise ValueError(f"server must be HOST:PORT, as 127.0.0.1:8500. Received: {server!r}")
        if not 0 < timeout <= MOST_SECONDS:
            raise ValueError(
                f"timeout must be more than 0 and at most {MOST_SECONDS} seconds. "
                f"Received: {timeout}"
            )
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1. Received: {batch_size}")
        self.server, self.model, self.headers = server, model, headers or {}
        self.timeout, self.batch_size = timeout, batch_size
        self._metadata()  # an error for headers that cannot be sent
        self._spec = serving_pb2.ModelSpec(name=model, version_label=label)
        if version is not None:
            self._spec.version.value = version
        self._retry = retry
        options = _channel_options(server)
        if credentials is None:
            self._channel = grpc.insecure_channel(server, options)
        else:
            self._channel = grpc.secure_channel(server, credentials, options)
        self._predict = self._channel.unary_unary(
            PREDICT,
            serving_pb2.PredictRequest.SerializeToString,
            serving_pb2.PredictResponse.FromString,
        )
        self._get_status = self._channel.unary_unary(
            STATUS,
            serving_pb2.GetModelStatusRequest.SerializeToString,
            serving_pb2.GetModelStatusResponse.FromString,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; calls under way end with a `ServingError`."""
        self._channel.close()

    def status(self) -> list[tuple[int, str, str]]:
        """The versions of the model on the server: a list of (version, state, message)."""
        request = serving_pb2.GetModelStatusRequest(model_spec=self._spec)
        return [
            (one.version, STATES.get(one.state, "UNKNOWN"), one.status.error_message)
            for one in self._result(self._call(self._get_status, request)).model_version_status
        ]

    def translate(self, texts: Iterable[Text]) -> list[Translation]:
        """The best translation of each text, a str with a score."""
        return self._ask(signatures.TRANSLATE, text_of(texts))

    def translate_nbest(self, texts: Iterable[Text]) -> list[list[Translation]]:
        """The n best translations of each text, or fewer, best first; the export fixes n."""
        return self._ask(signatures.TRANSLATE_NBEST, text_of(texts))

    def translate_document(self, texts: Iterable[Text]) -> list[Document]:
        """The translation of each text sentence by sentence, whatever its length."""
        return self._ask(signatures.TRANSLATE_DOCUMENT, text_of(texts))

    def translate_with_terms(
        self, texts: Iterable[Text], terms: Mapping[str, str]
    ) -> list[Translation]:
        """The best translation of each text, in which terms have given translations.

        See `Translator.translate_with_terms`. With each text, only those terms are sent that may
        occur in it. A model without slots has no such signature.
        """
        return self._ask(signatures.TRANSLATE_WITH_TERMS, terms_of(texts, terms))

    def score(self, texts: Iterable[Text], references: Iterable[Text]) -> list[Likelihood]:
        """The log-probability of each reference as a translation of its text."""
        return self._ask(signatures.SCORE, pairs_of(texts, references))

    def explain(self, texts: Iterable[Text]) -> list[Explanation]:
        """The attention of each token of each translation; texts are sent eight at a time."""
        return self._ask(signatures.EXPLAIN, text_of(texts), EXPLAINED)

    def classify(self, texts: Iterable[Text]) -> list[Classification]:
        """The labels of each text, with their probabilities."""
        return self._ask(signatures.CLASSIFY, text_of(texts))

    def complete(
        self,
        prompts: Iterable[Text],
        *,
        length: int = 64,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
    ) -> list[Completion]:
        """One continuation of each prompt; an empty prompt starts a new text.

        Args:
            prompts: List of str or bytes.
            length: Maximum number of tokens of a completion; the server clips it to its own.
            temperature: Log-probabilities are divided by it; 0 for the most probable tokens.
            top_k: Draw from the k most probable tokens only; 0 for all.
            top_p: Draw from the most probable tokens whose probabilities sum to p; 1 for all.
            seed: Prompt i is completed with seed + i. None draws a new seed at each call.
        """
        inputs = sampling_of(prompts, length, temperature, top_k, top_p, seed)
        return self._ask(signatures.COMPLETE, inputs)

    def log_prob(self, texts: Iterable[Text]) -> list[Likelihood]:
        """The log-probability of each whole text, its end included."""
        return self._ask(signatures.LOG_PROB, text_of(texts))

    def _ask(
        self, signature: Signature[Answer], inputs: Inputs, most: int | None = None
    ) -> list[Answer]:
        """The answers to inputs with one value for each text, in requests of bounded size."""
        size = min(self.batch_size, most or self.batch_size)
        count = len(next(iter(inputs.values())))
        waiting: collections.deque[tuple[slice, _Call]] = collections.deque()  # by their rows
        found: list[Answer] = []
        try:
            for start in range(0, count, size):
                if len(waiting) == REQUESTS:
                    found += self._received(signature, *waiting.popleft(), count)
                rows = slice(start, min(start + size, count))
                waiting.append((rows, self._sent(signature, inputs, rows)))
            while waiting:
                found += self._received(signature, *waiting.popleft(), count)
        except ServingError as error:
            error.answers = found
            raise
        finally:
            for _, call in waiting:
                call.cancel()
        return found

    def _sent(self, signature, inputs, rows):
        """The call that asks for the answer to some rows of the inputs."""
        request = serving_pb2.PredictRequest(model_spec=self._spec)
        request.model_spec.signature_name = signature.name
        for name, values in inputs.items():
            request.inputs[name].CopyFrom(tensors.to_proto(values[rows], signature.inputs[name]))
        return self._call(self._predict, request)

    def _received(self, signature, rows, call, count):
        """The answers to some rows of `count`."""
        wanted = rows.stop - rows.start
        where = f"texts[{rows.start}:{rows.stop}] of {count}: " if count > wanted else ""
        outputs = self._result(call, where).outputs
        try:
            found = signature.read({name: tensors.to_lists(x) for name, x in outputs.items()})
            if len(found) != wanted:
                raise ValueError(f"it has {len(found)} rows. Expected: {wanted}")
        except (IndexError, TypeError, ValueError) as error:
            what = f"the answer to {signature.name} cannot be read: {error}"
            raise ServingError(f"{where}{self.server}: {what}") from error
        return found

    def _call(self, method, request):
        """The call of a method with a request."""

        def send(seconds):
            return method.future(request, timeout=seconds, metadata=self._metadata())

        return _Call(send, self.timeout, PAUSES if self._retry else ())

    def _result(self, call, where=""):
        """The message that a call brings."""
        try:
            return call.result()
        except grpc.RpcError as error:
            server, details = f"{where}{self.server}", error.details()
            raise from_status(error.code().name, server, details) from error

    def _metadata(self):
        """The headers as gRPC takes them; its own error would show their values."""
        for name, value in self.headers.items():
            if not re.fullmatch("[a-z0-9_.-]+", name) or not re.fullmatch("[ -~]+", value):
                raise ValueError(
                    "A header must have a name in lower case and a value of printable ASCII. "
                    f"Received: {name!r} with {len(value)} characters"
                )
        return [*self.headers.items()]


class _Call:
    """A request under way, which is sent again while the server cannot take it.

    gRPC's own retries would end with DEADLINE_EXCEEDED, and hide the cause.

    Args:
        send: A function from the seconds that an answer may take to its future.
        timeout: The seconds that all of it may take.
        pauses: Seconds before each time that it is sent again.
    """

    def __init__(self, send: Callable[[float], Any], timeout: float, pauses: Iterable[float]):
        self._send, self._pauses = send, pauses
        self._deadline = time.monotonic() + timeout
        self._future = send(timeout)

    def cancel(self) -> None:
        self._future.cancel()

    def result(self) -> Any:
        """The message that answers; the last `grpc.RpcError` if there is none."""
        for pause in self._pauses:
            try:
                return self._future.result()
            except grpc.RpcError as error:
                left = self._deadline - time.monotonic() - pause
                if error.code() not in AGAIN or left <= 0:
                    raise
                time.sleep(pause)
                self._future = self._send(left)
        return self._future.result()


def _channel_options(server):
    """Options that differ from gRPC's defaults, and why."""
    # A name with several addresses, such as a headless service: requests go to each in turn.
    config = {"loadBalancingConfig": [{"round_robin": {}}]}
    own = server.startswith(("localhost:", "127.0.0.1:", "[::1]:"))
    return [
        # The default is 4 MiB, less than the attention of a batch of long sentences.
        ("grpc.max_receive_message_length", -1),
        ("grpc.service_config", json.dumps(config)),
        # A server that comes is found at the next attempt, not minutes later.
        ("grpc.max_reconnect_backoff_ms", 1000),
        # No proxy of the environment reaches this machine under these names.
        ("grpc.enable_http_proxy", int(not own)),
    ]
