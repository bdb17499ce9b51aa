"""One error type for the whole server: a canonical status code and a message."""

import functools
import time

import grpc

CODES = {code.value[0]: code for code in grpc.StatusCode}

# Codes that are not listed are faults of the server: 500.
HTTP_STATUS = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}

MAX_MESSAGE = 1024  # longer texts do not fit the HTTP/2 trailer of a gRPC status


class ServingError(Exception):
    """A failed request or load, with the status that the client receives.

    Args:
        code: A `grpc.StatusCode`.
        message: The text of the status.
    """

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self):
        return f"{self.code.name}: {self.message}"


invalid = functools.partial(ServingError, grpc.StatusCode.INVALID_ARGUMENT)
not_found = functools.partial(ServingError, grpc.StatusCode.NOT_FOUND)
failed_precondition = functools.partial(ServingError, grpc.StatusCode.FAILED_PRECONDITION)
unavailable = functools.partial(ServingError, grpc.StatusCode.UNAVAILABLE)


def deadline_exceeded():
    return ServingError(grpc.StatusCode.DEADLINE_EXCEEDED, "Timed out waiting for notification")


def unimplemented(method):
    why = "is not implemented by the development server; use Predict, or TensorFlow Serving itself"
    return ServingError(grpc.StatusCode.UNIMPLEMENTED, f"{method} {why}")


def left(deadline):
    """Seconds until `deadline` (of the monotonic clock; None: never), at least 0."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def from_exception(error):
    """Converts any exception to a ServingError with its code and message."""
    if isinstance(error, ServingError):
        return error
    if isinstance(error, TimeoutError):
        return deadline_exceeded()
    code = CODES.get(getattr(error, "error_code", None))
    if code is not None:  # TensorFlow's errors carry the code and the text of the C++ status
        return ServingError(code, error.message)
    return ServingError(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")
