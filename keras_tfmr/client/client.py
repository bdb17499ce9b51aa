"""TranslatorClient and AsyncTranslatorClient."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from keras_tfmr._inputs import Text, checked_pairs, checked_texts
from keras_tfmr.client import answers
from keras_tfmr.client.answers import Explanation, Likelihood, Translation
from keras_tfmr.client.call import Answer, Call
from keras_tfmr.client.connection import GRPC_PORT, REST_PORT, TLS, Target, with_default_port
from keras_tfmr.client.errors import UnavailableError
from keras_tfmr.client.grpc_transport import AsyncGrpcTransport, GrpcTransport
from keras_tfmr.client.rest_transport import AsyncRestTransport, RestTransport
from keras_tfmr.client.retries import Backoff
from keras_tfmr.client.text_calls import AsyncTextCalls, TextCalls

MAX_MESSAGE_BYTES = 256 << 20
DEFAULT_BACKOFF = Backoff()
Version = tuple[int, str, str]  # number, state, message


def _translate(texts: Iterable[Text]) -> Call[Translation]:
    return Call("translate", {"text": checked_texts(texts)}, answers.translations)


def _translate_nbest(texts: Iterable[Text]) -> Call[list[Translation]]:
    inputs = {"text": checked_texts(texts)}
    return Call("translate_nbest", inputs, answers.nbest_translations)


def _score(texts: Iterable[Text], references: Iterable[Text]) -> Call[Likelihood]:
    texts, references = checked_pairs(texts, references)
    inputs = {"text": texts, "reference": references}
    return Call("score", inputs, answers.likelihoods)


def _explain(texts: Iterable[Text]) -> Call[Explanation]:
    return Call("explain", {"text": checked_texts(texts)}, answers.explanations)


class _Client:
    """The settings of both clients, and when they retry."""

    def __init__(
        self,
        server: str = Target.server,
        *,
        rest: bool = False,
        model: str = Target.model,
        version: int | None = None,
        label: str | None = None,
        timeout: float = 30.0,
        backoff: Backoff = DEFAULT_BACKOFF,
        tls: TLS | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout must be a positive number of seconds. Received: {timeout}")
        server = with_default_port(server, REST_PORT if rest else GRPC_PORT)
        self.target = Target(server, model, version, label)
        self.rest = rest
        self.timeout = timeout
        self.backoff = backoff
        self._transport = self._connection(self.target, tls, max_message_bytes)

    def _connection(self, target: Target, tls: TLS | None, max_message_bytes: int) -> Any:
        raise NotImplementedError

    def _attempts(self) -> Iterator[tuple[float, float | None]]:
        """Yields (timeout of the attempt, pause after it or None for the last).

        All attempts and pauses share the timeout of the call.
        """
        deadline = time.monotonic() + self.timeout
        for pause in [*self.backoff.pauses(), None]:
            left = deadline - time.monotonic()
            yield left, pause if pause is not None and pause < left else None


class TranslatorClient(TextCalls, _Client):
    """A client of a translator, or of another text model, behind TensorFlow Serving.

    Its methods block until the answer is there; `AsyncTranslatorClient` has coroutines. Threads may
    share one client. `classify`, `tag`, `complete` and `log_prob` are for the exports of
    classifiers, taggers and language models.

    Args:
        server: `HOST:PORT`; the default port is 8500, or 8501 for REST.
        rest: Whether to use the REST API instead of gRPC.
        model: The model's name on the server.
        version: Its version number; None for the newest.
        label: Its version label, instead of a number.
        timeout: Seconds that a call may take, retries included.
        backoff: When to retry while the server is unavailable; no other error is retried.
        tls: A `TLS` for an encrypted connection; None for a plain one.
        max_message_bytes: Largest request and answer in bytes; -1 for no limit.

    Raises:
        ValueError: If the timeout is not positive, or both a version and a label are given.

    >>> client = TranslatorClient("localhost", model="translator", timeout=5)
    >>> client.target.described()
    'model translator'
    >>> client.close()
    """

    def translate(self, texts: Iterable[Text]) -> list[Translation]:
        """The best translation of each text.

        Args:
            texts: List of str or bytes; bytes that are not UTF-8 are read as U+FFFD.

        Returns:
            List of `Translation(text, score, truncated)`, one for each text, in order.

        Raises:
            ServingError: If there is no answer; its subclass says why.
            TypeError: If `texts` is not a list of str or bytes. The other methods raise both, too.
        """
        return self._ask(_translate(texts))

    def translate_nbest(self, texts: Iterable[Text]) -> list[list[Translation]]:
        """The n best translations of each text: a list of `Translation`, best first, for each."""
        return self._ask(_translate_nbest(texts))

    def score(self, texts: Iterable[Text], references: Iterable[Text]) -> list[Likelihood]:
        """The log-probability of each reference as a translation of its text.

        Args:
            texts: List of str.
            references: List of str, one for each text.

        Returns:
            List of `Likelihood(log_prob, tokens, truncated)`, one for each text.

        Raises:
            ValueError: If there are more or fewer references than texts.
        """
        return self._ask(_score(texts, references))

    def explain(self, texts: Iterable[Text]) -> list[Explanation]:
        """What the translation of each text attended to: a list of `Explanation`."""
        return self._ask(_explain(texts))

    def status(self) -> list[Version]:
        """The versions of the model on the server: a list of (version, state, message)."""
        return self._retried(self._transport.status)

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _connection(self, target: Target, tls: TLS | None, max_message_bytes: int) -> Any:
        transport = RestTransport if self.rest else GrpcTransport
        return transport(target, tls, max_message_bytes)

    def _ask(self, call: Call[Answer]) -> list[Answer]:
        if call.is_empty():
            return []
        return call.read(self._retried(self._transport.predict, call.signature, call.inputs))

    def _retried(self, method, *arguments):
        for timeout, pause in self._attempts():
            try:
                return method(*arguments, timeout=timeout)
            except UnavailableError:
                if pause is None:
                    raise
            time.sleep(pause)


class AsyncTranslatorClient(AsyncTextCalls, _Client):
    """A `TranslatorClient` whose methods are coroutines, for use in one event loop.

    The arguments are those of `TranslatorClient`.

    >>> async def main():
    ...     async with AsyncTranslatorClient("localhost:8500") as client:
    ...         return await client.translate([])
    >>> asyncio.run(main())
    []
    """

    async def translate(self, texts: Iterable[Text]) -> list[Translation]:
        """As `TranslatorClient.translate`."""
        return await self._ask(_translate(texts))

    async def translate_nbest(self, texts: Iterable[Text]) -> list[list[Translation]]:
        """As `TranslatorClient.translate_nbest`."""
        return await self._ask(_translate_nbest(texts))

    async def score(self, texts: Iterable[Text], references: Iterable[Text]) -> list[Likelihood]:
        """As `TranslatorClient.score`."""
        return await self._ask(_score(texts, references))

    async def explain(self, texts: Iterable[Text]) -> list[Explanation]:
        """As `TranslatorClient.explain`."""
        return await self._ask(_explain(texts))

    async def status(self) -> list[Version]:
        """As `TranslatorClient.status`."""
        return await self._retried(self._transport.status)

    async def close(self) -> None:
        """Closes the connection."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _connection(self, target: Target, tls: TLS | None, max_message_bytes: int) -> Any:
        transport = AsyncRestTransport if self.rest else AsyncGrpcTransport
        return transport(target, tls, max_message_bytes)

    async def _ask(self, call: Call[Answer]) -> list[Answer]:
        if call.is_empty():
            return []
        return call.read(await self._retried(self._transport.predict, call.signature, call.inputs))

    async def _retried(self, method, *arguments):
        for timeout, pause in self._attempts():
            try:
                return await method(*arguments, timeout=timeout)
            except UnavailableError:
                if pause is None:
                    raise
            await asyncio.sleep(pause)
