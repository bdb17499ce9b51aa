"""Errors between a client and a server, an exception for each kind."""

from typing import Any


class ServingError(Exception):
    """The server refused a request, or its answer cannot be used.

    Attributes:
        code: Name of the gRPC status code.
        answers: The answers to the texts before the request that failed, if a list was sent in
            several requests.
    """

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code
        self.answers: list[Any] = []


class UnavailableError(ServingError):
    """There is no server at the address, or it accepts no requests now."""


class ModelNotFoundError(ServingError):
    """The server has no such model, version or label."""


class DeadlineExceededError(ServingError):
    """There was no answer within the client's timeout, retries included."""


# By the gRPC status: the exception, and the words of its message.
_KINDS = {
    "UNAVAILABLE": (UnavailableError, "does not answer"),
    "NOT_FOUND": (ModelNotFoundError, "has no such model"),
    "DEADLINE_EXCEEDED": (DeadlineExceededError, "gave no answer in time"),
}


def from_status(code: str, server: str, details: str) -> ServingError:
    """The exception for the name of a gRPC status and its details."""
    kind, says = _KINDS.get(code, (ServingError, "refused the request"))
    return kind(f"{server} {says}: {details} ({code})", code)
