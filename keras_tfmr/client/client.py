"""The clients: texts to a server, answers from it; one in coroutines, and one that waits for it."""

import asyncio
import functools
import logging
import math
import re
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
)
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import tenacity

from keras_tfmr.client.background import BackgroundLoop
from keras_tfmr.client.connection import (
    GRPC_PORT,
    REST_PORT,
    TLS,
    ServingError,
    Target,
    UnavailableError,
    checked_headers,
    with_default_port,
)
from keras_tfmr.client.grpc_transport import GrpcTransport
from keras_tfmr.client.rest_transport import RestTransport
from keras_tfmr.signatures.answers import Document
from keras_tfmr.signatures.calls import (
    ClassifierCalls,
    CompleterCalls,
    TaggerCalls,
    TranslatorCalls,
)
from keras_tfmr.signatures.inputs import Text, batches, checked_texts, utf8, utf8_of
from keras_tfmr.signatures.signature import Answer, Signature

FEW = 8  # texts of a request whose answers are large
SENT_AS: Mapping[str, Callable[[Any], Any]] = {
    "string": utf8_of,
    "float32": float,
    "int32": int,
    "int64": int,
}
STREAM_BYTES = 2000  # a batch of sentences on the server
Version = tuple[int, str, str]  # number, state, message
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

log = logging.getLogger("keras_tfmr.client")


def _bytes(value: Any) -> int:
    """The size of a text, or of the texts in a list; numbers do not count."""
    if isinstance(value, list):
        return sum(map(_bytes, value))
    return len(value) if isinstance(value, bytes) else 0


@dataclass(repr=False, eq=False)
class _Client:
    """Shared by both clients: the arguments, and requests in coroutines."""

    server: str = Target.server
    _: KW_ONLY
    rest: bool = False
    model: str = Target.model
    version: int | None = None
    label: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 30.0
    retry: bool = True
    tls: TLS | None = None
    max_message_bytes: int = 256 << 20
    batch_texts: int = 256  # servers refuse more: their max_batch_size
    batch_bytes: int = 64 << 10  # a thousand sentences; gateways refuse more than 1 MiB
    in_flight: int = 4  # keeps the server's queue filled while answers travel

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise ValueError(
                f"timeout must be a positive number of seconds. Received: {self.timeout}"
            )
        if self.max_message_bytes < 1 and self.max_message_bytes != -1:
            raise ValueError(
                f"max_message_bytes must be positive, or -1. Received: {self.max_message_bytes}"
            )
        for name in ("batch_texts", "batch_bytes", "in_flight"):
            if (count := getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 1. Received: {count}")
        address = with_default_port(self.server, REST_PORT if self.rest else GRPC_PORT)
        self.target = Target(address, self.model, self.version, self.label)
        checked_headers(self.headers)
        transport = RestTransport if self.rest else GrpcTransport
        self._transport = transport(self.target, self.tls, self.max_message_bytes)

    async def _answers(
        self,
        signature: Signature[Answer],
        inputs: dict[str, list[Any]],
        batch_size: int | None = None,
    ) -> list[Answer]:
        """The answers to requests of bounded size, a bounded number of them at the same time."""
        if batch_size is None:
            batch_size = FEW if signature.large else self.batch_texts
        columns = {
            name: [*map(SENT_AS[dtype], inputs[name])] for name, dtype in signature.inputs.items()
        }
        rows = zip(*columns.values(), strict=True)
        sizes = [sum(map(_bytes, row)) for row in rows]
        parts = batches(sizes, min(batch_size, self.batch_texts), self.batch_bytes)
        answers, waiting = {}, iter(parts)

        async def ask():
            for part in waiting:
                some = {name: values[part] for name, values in columns.items()}
                try:
                    answers[part.start] = await self._request(signature, some)
                except ServingError as error:
                    if len(parts) == 1:
                        raise
                    where = f"texts[{part.start}:{part.stop}] of {len(sizes)}"
                    raise type(error)(f"{where}: {error}", error.code) from error

        tasks = [asyncio.create_task(ask()) for _ in parts[: self.in_flight]]
        try:
            await asyncio.gather(*tasks)
        finally:  # after an error, nobody waits for the others
            for task in tasks:
                task.cancel()
        return [answer for part in parts for answer in answers[part.start]]

    async def _request(self, signature, inputs):
        """The answers to one request."""
        send = functools.partial(self._transport.predict, signature, inputs)
        try:
            outputs = await self._retried(send)
        except ServingError as error:
            if signature.needs and "ignature" in str(error):  # the server has none of this name
                why = f"{signature.name} needs a model with {signature.needs}"
                raise type(error)(f"{error}. {why}", error.code) from error
            raise
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
        if len(answers) != (count := len(next(iter(inputs.values())))):
            raise ServingError(f"The model answered {len(answers)} rows to {count} texts")
        return answers

    def _some_lines(self, text: Text) -> Iterator[list[Text]]:
        """The lines of a text, as many at a time as a request of `stream_document` holds."""
        (text,) = checked_texts([text])
        lines: list[Text] = re.findall(rb"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+", utf8(text))
        for rows in batches([*map(len, lines)], self.batch_texts, STREAM_BYTES):
            yield lines[rows]

    async def _status(self) -> list[Version]:
        """The versions of the model on the server: a list of (version, state, message)."""
        return await self._retried(self._transport.status)

    async def _retried(self, send: Callable[[Mapping[str, str], float], Awaitable[Any]]) -> Any:
        """Sends, again and again while the server is unavailable; all within the timeout."""
        deadline = time.monotonic() + self.timeout
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(UnavailableError),
            stop=tenacity.stop_before_delay(self.timeout if self.retry else 0),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=2),
            before_sleep=self._before_retry,
            reraise=True,
        )

        async def attempt():
            headers = checked_headers(self.headers)
            return await send(headers, max(deadline - time.monotonic(), 1e-3))

        return await attempts(attempt)

    def _before_retry(self, state):
        if state.attempt_number == 1:
            error = state.outcome.exception()
            log.warning("%s. Trying again for up to %g s", error, self.timeout)


class ServingClient(_Client, TranslatorCalls, ClassifierCalls, TaggerCalls, CompleterCalls):
    """A client of a translator, or of another text model, behind TensorFlow Serving.

    The calls are those of `Translator`, `Classifier`, `Tagger` and `Completer`, each for the export
    of such a model. They raise a `ServingError` if there is no answer; its subclass says why.
    Threads may share one client. For coroutines there is `AsyncServingClient`.

    A list of any length is one call. It is sent in batches, some of them at the same time, and
    answered in order; an error names the texts of its batch.

    While there is no server at the address, as while it starts, or it accepts no requests, the
    client sends a request again, with growing random pauses, until the timeout. It logs a warning
    at the first failure, to the logger `keras_tfmr.client`.

    Proxies are those of the environment: `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` over REST,
    `grpc_proxy`, `https_proxy`, `http_proxy` and `no_proxy`, in lower case, over gRPC. A server on
    this machine is asked without.

    Args:
        server: `HOST:PORT`; the default port is 8500, or 8501 for REST.
        rest: Whether to use the REST API instead of gRPC.
        model: The model's name on the server.
        version: Its version number; None for the newest.
        label: Its version label, instead of a number.
        headers: What a gateway asks for, by its name in lower case:
            `{"authorization": "Bearer …"}`. HTTP headers over REST, metadata over gRPC. The
            attribute `headers` is read at each request: put a new token there.
        timeout: Seconds that a request may take, its retries included. A list of several batches
            may take longer: each batch has its own.
        retry: Whether to send a request again while the server is unavailable; no other error is
            retried.
        tls: A `TLS` for an encrypted connection; None for a plain one.
        max_message_bytes: Largest request and answer in bytes; -1 for no limit.
        batch_texts: Largest number of texts in a request.
        batch_bytes: Largest size of the texts of a request in bytes; a longer text is a request of
            its own.
        in_flight: Largest number of requests of a call that wait for their answers at the same
            time.

    Raises:
        ValueError: If the timeout is not positive and finite, a limit is not positive, both a
            version and a label are given, a header cannot be sent, or the server is no address of
            the protocol or a URL that a `TLS` contradicts.

    >>> client = ServingClient("localhost", model="translator", timeout=5)
    >>> client.target.described()
    'model translator'
    >>> client.close()
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._loop = BackgroundLoop(self._transport.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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
        for lines in self._some_lines(text):
            yield from self.translate_document(lines)

    def status(self) -> list[Version]:
        """The versions of the model on the server: a list of (version, state, message)."""
        return self._loop.run(self._status())

    def close(self) -> None:
        """Closes the connection; calls under way are cancelled."""
        self._loop.close()

    def _ask(self, signature, inputs, batch_size=None):
        return self._loop.run(self._answers(signature, inputs, batch_size))


def _awaited(
    call: Callable[Concatenate[Any, Parameters], Result],
) -> Callable[Concatenate[Any, Parameters], Coroutine[Any, Any, Result]]:
    """The call of `ServingClient` as a coroutine function."""

    @functools.wraps(call)
    async def awaited(self, *args, **kwargs):
        return await call(self, *args, **kwargs)

    return awaited


class AsyncServingClient(_Client):
    """A `ServingClient` for coroutines: `async with`, and `await` before each call.

    It starts no threads. It belongs to the event loop in which it is first asked.

    Args:
        server: As for `ServingClient`, and so are all others.

    >>> import asyncio
    >>> async def main():
    ...     async with AsyncServingClient("localhost", model="translator") as client:
    ...         return await client.translate([])  # `["bom dia"]` with a server at that address
    >>> asyncio.run(main())
    []
    """

    translate = _awaited(TranslatorCalls.translate)
    translate_nbest = _awaited(TranslatorCalls.translate_nbest)
    translate_document = _awaited(TranslatorCalls.translate_document)
    translate_with_terms = _awaited(TranslatorCalls.translate_with_terms)
    translate_html = _awaited(TranslatorCalls.translate_html)
    translate_markdown = _awaited(TranslatorCalls.translate_markdown)
    score = _awaited(TranslatorCalls.score)
    explain = _awaited(TranslatorCalls.explain)
    classify = _awaited(ClassifierCalls.classify)
    tag = _awaited(TaggerCalls.tag)
    complete = _awaited(CompleterCalls.complete)
    log_prob = _awaited(CompleterCalls.log_prob)
    status = _Client._status
    _ask = _Client._answers

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def stream_document(self, text: Text) -> AsyncIterator[Document]:
        """`ServingClient.stream_document`, for `async for`."""
        for lines in self._some_lines(text):
            for document in await self.translate_document(lines):
                yield document

    async def _translate_pages(self, steps):
        try:
            texts = next(steps)
            while True:
                documents = await self.translate_document(texts)
                texts = steps.send([document.text for document in documents])
        except StopIteration as end:
            return end.value

    async def close(self) -> None:
        """Closes the connection; calls under way are cancelled."""
        await self._transport.close()
