"""TranslatorClient and AsyncTranslatorClient."""

import asyncio
import time

from keras_tfmr.client import answers
from keras_tfmr.client.connection import GRPC_PORT, REST_PORT, Target, with_default_port
from keras_tfmr.client.errors import UnavailableError
from keras_tfmr.client.grpc_transport import AsyncGrpcTransport, GrpcTransport
from keras_tfmr.client.rest_transport import AsyncRestTransport, RestTransport
from keras_tfmr.client.retries import Backoff

MAX_MESSAGE_BYTES = 256 << 20
DEFAULT_BACKOFF = Backoff()


class _Calls:
    """The calls of a translator, written once: `_predict` returns it or an awaitable."""

    def __init__(
        self,
        server=Target.server,
        *,
        rest=False,
        model=Target.model,
        version=None,
        label=None,
        timeout=30.0,
        backoff=DEFAULT_BACKOFF,
        tls=None,
        max_message_bytes=MAX_MESSAGE_BYTES,
    ):
        if timeout <= 0:
            raise ValueError(f"timeout must be a positive number of seconds. Received: {timeout}")
        server = with_default_port(server, REST_PORT if rest else GRPC_PORT)
        self.target = Target(server, model, version, label)
        self.rest = rest
        self.timeout = timeout
        self.backoff = backoff
        self._transport = self._connection(self.target, tls, max_message_bytes)

    def translate(self, texts):
        """The best translation of each text.

        Args:
            texts: List of str; bytes that are no UTF-8 are translated with U+FFFD in their place.

        Returns:
            List of `Translation(text, score, truncated)`, one for each text, in order.

        Raises:
            ServingError: One of its subclasses says what to do about it.
        """
        texts = answers.checked_texts(texts)
        return self._predict("translate", {"text": texts}, answers.translations)

    def translate_nbest(self, texts):
        """Several translations of each text: a list of `Translation`, best first."""
        texts = answers.checked_texts(texts)
        return self._predict("translate_nbest", {"text": texts}, answers.nbest_translations)

    def score(self, texts, references):
        """How likely each reference is as a translation: `ReferenceScore(log_prob, tokens)`."""
        texts = answers.checked_texts(texts)
        references = answers.checked_texts(references, "references")
        if len(texts) != len(references):
            raise ValueError(
                f"Each text needs one reference. Received: {len(texts)} texts, "
                f"{len(references)} references"
            )
        inputs = {"text": texts, "reference": references}
        return self._predict("score", inputs, answers.reference_scores)

    def explain(self, texts):
        """What the translation of each text attended to, as `Explanation`."""
        texts = answers.checked_texts(texts)
        return self._predict("explain", {"text": texts}, answers.explanations)

    def _attempts(self):
        """Yields (timeout of the attempt, pause after it or None for the last).

        Deadline and pauses are those of the whole call.
        """
        deadline = time.monotonic() + self.timeout
        for pause in [*self.backoff.pauses(), None]:
            left = deadline - time.monotonic()
            yield left, pause if pause is not None and pause < left else None


class TranslatorClient(_Calls):
    """A translator behind TensorFlow Serving, called and waited for. Threads may share one.

    Args:
        server: `HOST:PORT`; the port is 8500 unless named, and 8501 for REST.
        rest: Ask the REST API instead of gRPC.
        model: The model's name on the server.
        version: Its version number; None for the newest.
        label: Its version label, instead of a number.
        timeout: Seconds that a call may take, retries included.
        backoff: When to try again while the server is unavailable; no other error is retried.
        tls: A `TLS` for an encrypted connection.
        max_message_bytes: Largest request and answer; -1 for no limit.

    >>> client = TranslatorClient("localhost", model="translator", timeout=5)
    >>> client.target.described()
    'model translator'
    >>> client.close()
    """

    def _connection(self, *settings):
        return RestTransport(*settings) if self.rest else GrpcTransport(*settings)

    def status(self):
        """The model's versions, newest first: list of (version, state, message)."""
        return self._call(self._transport.status)

    def close(self):
        """Closes the connection."""
        self._transport.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def _predict(self, signature, inputs, read):
        if not inputs["text"]:
            return []
        return read(self._call(self._transport.predict, signature, inputs))

    def _call(self, method, *arguments):
        for timeout, pause in self._attempts():
            try:
                return method(*arguments, timeout=timeout)
            except UnavailableError:
                if pause is None:
                    raise
            time.sleep(pause)


class AsyncTranslatorClient(_Calls):
    """The same calls, awaited; for use inside one event loop.

    Takes TranslatorClient's arguments.

    >>> async def main():
    ...     async with AsyncTranslatorClient("localhost:8500") as client:
    ...         return await client.translate([])
    >>> asyncio.run(main())
    []
    """

    def _connection(self, *settings):
        return AsyncRestTransport(*settings) if self.rest else AsyncGrpcTransport(*settings)

    async def status(self):
        """The model's versions, newest first: list of (version, state, message)."""
        return await self._call(self._transport.status)

    async def close(self):
        """Closes the connection."""
        await self._transport.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()

    async def _predict(self, signature, inputs, read):
        if not inputs["text"]:
            return []
        return read(await self._call(self._transport.predict, signature, inputs))

    async def _call(self, method, *arguments):
        for timeout, pause in self._attempts():
            try:
                return await method(*arguments, timeout=timeout)
            except UnavailableError:
                if pause is None:
                    raise
            await asyncio.sleep(pause)
