"""The client: texts to a server, answers from it."""

import functools
import itertools
import logging
import math
import re
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import tenacity

from keras_tfmr._inputs import Text, batches, checked_texts, utf8
from keras_tfmr.answers import Document
from keras_tfmr.calls import ClassifierCalls, CompleterCalls, TaggerCalls, TranslatorCalls
from keras_tfmr.client.connection import (
    GRPC_PORT,
    REST_PORT,
    TLS,
    ServingError,
    Target,
    UnavailableError,
    with_default_port,
)
from keras_tfmr.client.grpc_transport import GrpcTransport, Numbers
from keras_tfmr.client.rest_transport import RestTransport
from keras_tfmr.signatures import Answer, Signature

MAX_MESSAGE_BYTES = 256 << 20
STREAM_BYTES = 2000  # in which the lines of a request begin: a batch of sentences on the server
STREAM_LINES = 256  # at most in a request, which servers limit
Version = tuple[int, str, str]  # number, state, message

log = logging.getLogger("keras_tfmr.client")


class ServingClient(TranslatorCalls, ClassifierCalls, TaggerCalls, CompleterCalls):
    """A client of a translator, or of another text model, behind TensorFlow Serving.

    Threads may share one client; a coroutine calls `asyncio.to_thread(client.translate, texts)`.
    The calls are those of `Translator`, `Classifier`, `Tagger` and `Completer`, each for the export
    of such a model. They raise a `ServingError` if there is no answer; its subclass says why.

    While there is no server at the address, as while it starts, or it accepts no requests, the
    client sends a request again, with growing random pauses, until the timeout. It logs a warning
    at the first failure, to the logger `keras_tfmr.client`.

    Args:
        server: `HOST:PORT`; the default port is 8500, or 8501 for REST.
        rest: Whether to use the REST API instead of gRPC.
        model: The model's name on the server.
        version: Its version number; None for the newest.
        label: Its version label, instead of a number.
        timeout: Seconds that a call may take, retries included.
        retry: Whether to send a request again while the server is unavailable; no other error is
            retried.
        tls: A `TLS` for an encrypted connection; None for a plain one.
        max_message_bytes: Largest request and answer in bytes; -1 for no limit.

    Raises:
        ValueError: If the timeout is not positive and finite, the limit is neither positive nor
            -1, both a version and a label are given, or the server is no address of the protocol
            or a URL that a `TLS` contradicts.

    >>> client = ServingClient("localhost", model="translator", timeout=5)
    >>> client.target.described()
    'model translator'
    >>> client.close()
    """

    def __init__(
        self,
        server: str = Target.server,
        *,
        rest: bool = False,
        model: str = Target.model,
        version: int | None = None,
        label: str | None = None,
        timeout: float = 30.0,
        retry: bool = True,
        tls: TLS | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        if not 0 < timeout < math.inf:
            raise ValueError(f"timeout must be a positive number of seconds. Received: {timeout}")
        if max_message_bytes < 1 and max_message_bytes != -1:
            raise ValueError(
                f"max_message_bytes must be positive, or -1. Received: {max_message_bytes}"
            )
        server = with_default_port(server, REST_PORT if rest else GRPC_PORT)
        self.target = Target(server, model, version, label)
        self.rest, self.timeout, self.retry = rest, timeout, retry
        transport = RestTransport if rest else GrpcTransport
        self._transport = transport(self.target, tls, max_message_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def stream_document(self, text: Text) -> Iterator[Document]:
        """The translation of one text paragraph by paragraph, for texts of any size.

        Each request has its own timeout, and holds whole paragraphs of some 30 sentences.

        Args:
            text: str or bytes.

        Yields:
            A `Document` for each line of the text, its line end included, in order. Their texts
            joined are the text of `translate_document`.
        """
        (text,) = checked_texts([text])
        lines = re.findall(rb"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+", utf8(text))
        begun = itertools.accumulate(map(len, lines), initial=0)
        numbered = zip(begun, lines, strict=False)
        for _, group in itertools.groupby(numbered, lambda line: line[0] // STREAM_BYTES):
            some = [line for _, line in group]
            for start in range(0, len(some), STREAM_LINES):
                yield from self.translate_document(some[start : start + STREAM_LINES])

    def status(self) -> list[Version]:
        """The versions of the model on the server: a list of (version, state, message)."""
        return self._retried(self._transport.status)

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def _ask(
        self,
        signature: Signature[Answer],
        inputs: dict[str, list[Any]],
        batch_size: int | None = None,
    ) -> list[Answer]:
        """The answers to requests of `batch_size` texts, or to one of all of them."""
        count = len(next(iter(inputs.values())))
        answers: list[Answer] = []
        for rows in batches(count, max(count, 1) if batch_size is None else batch_size):
            some = {name: values[rows] for name, values in inputs.items()}
            answers += self._ask_once(signature, some, len(range(count)[rows]))
        return answers

    def _ask_once(self, signature, inputs, count):
        inputs = {
            name: inputs[name] if dtype == "string" else Numbers(dtype, inputs[name])
            for name, dtype in signature.inputs.items()
        }
        send = functools.partial(self._transport.predict, signature.name, inputs)
        outputs = self._retried(send)
        try:
            answers = signature.read(outputs)
        except KeyError as error:
            raise ServingError(
                f"The model answered without {error.args[0]}: it was exported without the "
                f"signature {signature.name} of keras_tfmr"
            ) from error
        except (AttributeError, IndexError, TypeError, ValueError) as error:
            what = f"The model's answer to {signature.name} cannot be read"
            raise ServingError(what) from error
        if len(answers) != count:
            raise ServingError(f"The model answered {len(answers)} rows to {count} texts")
        return answers

    def _retried(self, send: Callable[[float], Any]) -> Any:
        """Sends, again and again while the server is unavailable; all within the timeout."""
        deadline = time.monotonic() + self.timeout
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(UnavailableError),
            stop=tenacity.stop_before_delay(self.timeout if self.retry else 0),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=2),
            before_sleep=self._before_retry,
            reraise=True,
        )
        return attempts(lambda: send(max(deadline - time.monotonic(), 1e-3)))

    def _before_retry(self, state):
        if state.attempt_number == 1:
            error = state.outcome.exception()
            log.warning("%s. Trying again for up to %g s", error, self.timeout)
