"""Requests of a call: of bounded size, some at the same time, each until its timeout."""

import asyncio
import functools
import itertools
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import tenacity

from keras_tfmr.client.connection import (
    GRPC_PORT,
    REST_PORT,
    TLS,
    ServingError,
    Target,
    UnavailableError,
    check_types,
    checked_headers,
    with_default_port,
)
from keras_tfmr.client.grpc_transport import GrpcTransport
from keras_tfmr.client.rest_transport import RestTransport
from keras_tfmr.client.transport import Transport
from keras_tfmr.signatures.calls import (
    ClassifierCalls,
    CompleterCalls,
    TaggerCalls,
    TranslatorCalls,
    call,
)
from keras_tfmr.signatures.inputs import Inputs, batches, text_of
from keras_tfmr.signatures.signature import Answer, Signature
from keras_tfmr.text.strings import Text

FEW = 8  # texts of a request whose answers are large
STREAM_BYTES = 2000  # a batch of sentences on the server
Version = tuple[int, str, str]  # number, state, message

log = logging.getLogger("keras_tfmr.client")


def _bytes(value: Any) -> int:
    """The size of a text, or of the texts in a list; numbers do not count."""
    if isinstance(value, list):
        return sum(map(_bytes, value))
    return len(value) if isinstance(value, bytes) else 0


@dataclass(repr=False, eq=False)
class Requests(TranslatorCalls, ClassifierCalls, TaggerCalls, CompleterCalls):
    """What both clients share: their arguments and calls, and requests in coroutines.

    A call's inputs enter and its answers leave; the transport knows of neither calls nor answers,
    and this knows of no protocol.
    """

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
        checked_headers(self.headers)
        check_types(self)
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
        transport = RestTransport if self.rest else GrpcTransport
        self._transport: Transport = transport(self.target, self.tls, self.max_message_bytes)

    @call
    async def status(self) -> list[Version]:
        """The versions of the model on the server: a list of (version, state, message)."""
        return await self._versions()

    async def _versions(self) -> list[Version]:
        return await self._retried(self._transport.status)

    async def _ask(
        self, signature: Signature[Answer], inputs: Inputs, batch_size: int | None = None
    ) -> list[Answer]:
        """The answers to requests of bounded size, a bounded number of them at the same time."""
        if batch_size is None:
            batch_size = FEW if signature.large else self.batch_texts
        sizes = [sum(map(_bytes, row)) for row in zip(*inputs.values(), strict=True)]
        parts = batches(sizes, min(batch_size, self.batch_texts), self.batch_bytes)
        limit = asyncio.Semaphore(self.in_flight)
        failures: list[tuple[int, int, Exception]] = []

        async def ask(part):
            async with limit:
                if not failures:
                    try:
                        own = {name: values[part] for name, values in inputs.items()}
                        return await self._request(signature, own)
                    except Exception as error:  # those under way are waited for
                        failures.append((part.start, part.stop, error))
            return [None] * (part.stop - part.start)

        answers = [*itertools.chain(*await asyncio.gather(*map(ask, parts)))]
        if failures:
            start, stop, error = min(failures)
            if len(parts) == 1 or not isinstance(error, ServingError):
                raise error
            where = f"texts[{start}:{stop}] of {len(answers)}"
            named = type(error)(f"{where}: {error}", error.code)
            named.answers = answers
            raise named from error
        return answers

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
        (content,) = text_of([text])["text"]
        lines: list[Text] = re.findall(rb"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+", content)
        for rows in batches([*map(len, lines)], self.batch_texts, STREAM_BYTES):
            yield lines[rows]

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
            headers, left = checked_headers(self.headers), max(deadline - time.monotonic(), 1e-3)
            try:
                async with asyncio.timeout(left):
                    return await send(headers, left)
            except TimeoutError as error:
                details = f"no answer within {left:.3g} s"
                raise self._transport.error("DEADLINE_EXCEEDED", details) from error

        return await attempts(attempt)

    def _before_retry(self, state):
        if state.attempt_number == 1:
            error = state.outcome.exception()
            log.warning("%s. Trying again for up to %g s", error, self.timeout)
