"""The stub translator without a network: a transport that asks its functions."""

import asyncio

from stub_translator import SIGNATURES

from keras_tfmr.client import AsyncServingClient, ServingClient
from keras_tfmr.client.transport import Transport


class InMemory(Transport):
    """Answers with the stub's functions.

    Attributes:
        requests: (signature's name, inputs, headers, timeout) of each request so far.
        behave: A coroutine function of these, awaited before each answer; may sleep or raise.
        signatures: The stub's functions, by name.
    """

    def __init__(self, target):
        super().__init__(target)
        self.requests, self.signatures = [], dict(SIGNATURES)
        self.behave = lambda *request: asyncio.sleep(0)

    def connect(self):
        return None

    async def disconnect(self, connection):
        pass

    async def predict(self, signature, inputs, headers, timeout):
        self.connection()
        self.requests.append((signature.name, inputs, headers, timeout))
        await self.behave(*self.requests[-1])
        if signature.name not in self.signatures:
            what = f'Serving signature key "{signature.name}" not found.'
            raise self.error("FAILED_PRECONDITION", what)
        columns = [read(inputs[name]) for name in sorted(inputs, reverse=True)]
        return {
            name: written(value)
            for name, value in self.signatures[signature.name](*columns).items()
        }

    async def status(self, headers, timeout):
        self.connection()
        return [(7, "AVAILABLE", "")]

    def sizes(self):
        """The number of texts of each request so far, which are forgotten."""
        sizes = [len(next(iter(inputs.values()))) for _, inputs, _, _ in self.requests]
        self.requests.clear()
        return sizes


def read(values):
    """Texts as the stub takes them; lists of texts as they are."""
    return [v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values]


def written(value):
    """An output of the stub as nested lists, with str for bytes."""
    value = value if isinstance(value, list) else value.tolist()
    if value and isinstance(value[0], list):
        return [*map(written, value)]
    return read(value)


def client(kind=ServingClient, **options):
    """A client, and its transport in memory."""
    made = kind(**options)
    made._transport = InMemory(made.target)
    return made, made._transport


def awaited(call, texts, *more, **options):
    """What the asynchronous client answers to a call, and its transport."""

    async def main():
        made, transport = client(AsyncServingClient, **options)
        return await getattr(made, call)(texts, *more), transport

    return asyncio.run(main())
