"""The client's exceptions: one class for each kind of error that callers handle differently."""

# HTTP status -> gRPC code, the inverse of TensorFlow Serving's own table. 400 stands for three
# codes, which only the message tells apart; callers handle them in the same way.
_CODE_OF_HTTP_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class ServingError(Exception):
    """The server refused a request, or its answer cannot be used.

    Args:
        message: The error message.
        code: Name of the gRPC status code, for requests over REST too.
    """

    exit_code = 1

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code


class UnavailableError(ServingError):
    """There is no server at the address, or it accepts no requests now; the client retries."""

    exit_code = 3


class ModelNotFoundError(ServingError):
    """The server has no such model, version or path."""

    exit_code = 4


class MessageTooLargeError(ServingError):
    """A request or an answer is larger than the server or the client accepts."""

    exit_code = 5


class DeadlineExceededError(ServingError):
    """There was no answer within the client's timeout, retries included."""

    exit_code = 6


def from_status(code, details, target):
    """The exception for a gRPC status.

    Args:
        code: Name of the status code.
        details: The server's or the library's text.
        target: The `Target` that was asked.

    >>> from keras_tfmr.client.connection import Target
    >>> target = Target("host:8500", model="m")
    >>> from_status("NOT_FOUND", "Servable not found for request: Latest(m)", target)
    ModelNotFoundError('host:8500 has no model m: Servable not found for request: Latest(m)')
    """
    details = details or "no details"
    if code == "UNAVAILABLE":
        return UnavailableError(f"{target.server} does not answer: {details}", code)
    if code == "DEADLINE_EXCEEDED":
        return DeadlineExceededError(f"{target.server} gave no answer in time: {details}", code)
    if code == "NOT_FOUND":
        return ModelNotFoundError(f"{target.server} has no {target.described()}: {details}", code)
    if code == "RESOURCE_EXHAUSTED" and "larger than" in details.lower():
        return MessageTooLargeError(f"Message too large for {target.server}: {details}", code)
    return ServingError(f"{target.server} refused the request ({code}): {details}", code)


def from_http_status(status, details, target):
    """The exception for an HTTP status other than 200, with the server's message."""
    code = _CODE_OF_HTTP_STATUS.get(status, "UNKNOWN")
    if status == 413:
        details = f"request body larger than the server accepts: {details}"
    return from_status(code, f"{details} (HTTP {status})", target)
