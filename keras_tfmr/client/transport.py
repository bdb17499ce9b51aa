"""What both protocols share: a connection that belongs to one process and one event loop."""

import abc
import asyncio
import os
from collections.abc import Mapping
from typing import Any

from keras_tfmr.client.connection import ServingError, Target, from_status
from keras_tfmr.signatures.signature import Signature

# What a fork has copied is kept as it is: its sockets are the parent's too.
of_parents: list[Any] = []


class Transport(abc.ABC):
    """Requests to a model over one protocol.

    The connection is made at the first request. In a forked process, or when its event loop is
    closed, the next request makes another one.

    Args:
        target: The `Target`.
    """

    def __init__(self, target: Target) -> None:
        self.target, self.closed = target, False
        self._connection: Any = None
        self._owner: tuple[int, asyncio.AbstractEventLoop] | None = None

    @abc.abstractmethod
    async def predict(
        self,
        signature: Signature[Any],
        inputs: Mapping[str, list[Any]],
        headers: Mapping[str, str],
        timeout: float,
    ) -> Mapping[str, Any]:
        """Sends {input name: bytes or numbers}; returns {output name: nested lists}."""

    @abc.abstractmethod
    async def status(
        self, headers: Mapping[str, str], timeout: float
    ) -> list[tuple[int, str, str]]:
        """List of (version, state, message)."""

    @abc.abstractmethod
    def connect(self) -> Any:
        """A new connection."""

    @abc.abstractmethod
    async def disconnect(self, connection: Any) -> None:
        """Closes it; requests under way fail."""

    def connection(self) -> Any:
        """The connection, for a request.

        Raises:
            ServingError: After `close`, or if it belongs to another event loop that is not closed.
        """
        if self.closed:
            raise self.error("CANCELLED", "the client is closed")
        process, loop = os.getpid(), asyncio.get_running_loop()
        if self._owner != (process, loop):
            if self._owner is not None and self._owner[0] != process:
                of_parents.append(self._connection)
            elif self._owner is not None and not self._owner[1].is_closed():
                what = "The client belongs to another event loop, and each needs its own"
                raise ServingError(what, "FAILED_PRECONDITION")
            self._connection, self._owner = self.connect(), (process, loop)
        return self._connection

    @property
    def connected(self) -> bool:
        """Whether this process has a connection."""
        return self._owner is not None and self._owner[0] == os.getpid()

    async def close(self) -> None:
        """Closes the connection; requests under way fail, and so do those that come."""
        self.closed = True
        if self._owner == (os.getpid(), asyncio.get_running_loop()):
            connection, self._connection = self._connection, None
            await self.disconnect(connection)

    def error(self, code: str, details: str) -> ServingError:
        """The exception for a status."""
        return from_status(code, details, self.target)
