"""The clients: texts to a server, answers from it; one in coroutines, and one that waits for it."""

import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Self

from keras_tfmr.client import background
from keras_tfmr.client.requests import Requests, Version
from keras_tfmr.signatures.answers import Document
from keras_tfmr.signatures.calls import Waiting
from keras_tfmr.signatures.inputs import Inputs
from keras_tfmr.signatures.signature import Answer, Signature
from keras_tfmr.text.strings import Text


class ServingClient(Requests, Waiting):
    """A client of a translator, or of another text model, behind TensorFlow Serving.

    The calls are those of `Translator`, `Classifier`, `Tagger` and `Completer`, each for the export
    of such a model. They raise a `ServingError` if there is no answer; its subclass says why.
    Threads may share one client. For coroutines there is `AsyncServingClient`.

    A process forked from one that has used the client may go on with it over REST. gRPC cannot go
    on there: close all clients before the fork, or the next call is a `ServingError`.

    A list of any length is one call. It is sent in batches, some of them at the same time, and
    answered in order; an error names the texts of its batch and holds the answers to those before
    it.

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
        TypeError: If an argument is of another type.
        ValueError: If the timeout is not positive and finite, a limit is not positive, both a
            version and a label are given, the version is no int64, a header cannot be sent, or the
            server is no address of the protocol or a URL that a `TLS` contradicts.

    >>> client = ServingClient("localhost", model="translator", timeout=5)
    >>> client.target.described()
    'model translator'
    >>> client.close()
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        weakref.finalize(self, _close_quietly, self._transport).atexit = False

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

    def close(self) -> None:
        """Closes the connection; calls under way are cancelled."""
        self._transport.closed = True
        if self._transport.connected:
            background.run(self._transport.close(), self.timeout)

    # Requests alone are made in the thread of all clients. What makes inputs and reads pages may
    # take seconds, in which no other client would be answered.

    async def _ask(
        self, signature: Signature[Answer], inputs: Inputs, batch_size: int | None = None
    ) -> list[Answer]:
        return background.run(super()._ask(signature, inputs, batch_size), self.timeout)

    async def _versions(self) -> list[Version]:
        return background.run(super()._versions(), self.timeout)


def _close_quietly(transport):
    """Closes the connection of a client that nobody has closed and nobody can use any more."""
    if transport.connected:
        background.start(transport.close())


class AsyncServingClient(Requests):
    """A `ServingClient` for coroutines: `async with`, and `await` before each call.

    It starts no threads. It belongs to the event loop in which it is first asked; in another one,
    a call is a `ServingError` until that loop is closed.

    Args:
        server: As for `ServingClient`, and so are all others.

    >>> import asyncio
    >>> async def main():
    ...     async with AsyncServingClient("localhost", model="translator") as client:
    ...         return await client.translate([])  # `["bom dia"]` with a server at that address
    >>> asyncio.run(main())
    []
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def stream_document(self, text: Text) -> AsyncIterator[Document]:
        """`ServingClient.stream_document`, for `async for`."""
        for lines in self._some_lines(text):
            for document in await self.translate_document(lines):
                yield document

    async def close(self) -> None:
        """Closes the connection; calls under way are cancelled."""
        await self._transport.close()
