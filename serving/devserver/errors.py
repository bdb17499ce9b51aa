"""One error type for the whole server: a gRPC status code and a sentence."""

import logging

import grpc

log = logging.getLogger("devserver")
Code = grpc.StatusCode
CODES = {code.value[0]: code for code in Code}
# TensorFlow Serving's table. Codes that are not listed are faults of the server: 500.
HTTP_STATUS = {
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
}
MAX_MESSAGE = 1024  # characters; a message may quote the request


class StatusError(Exception):
    """A failed request or load: the code, the sentence and the HTTP status for the client."""

    def __init__(self, code, message, http_status=None):
        message = message.encode("utf-8", "replace").decode()
        self.message = message[:MAX_MESSAGE] + "..." * (len(message) > MAX_MESSAGE)
        super().__init__(self.message)
        self.code = code
        self.http_status = http_status or HTTP_STATUS.get(code, 500)


def invalid(message):
    """The error for a request that is wrong."""
    return StatusError(Code.INVALID_ARGUMENT, message)


def unknown_label(label):
    """The error for a version label: labels are assigned in a file that this server has not."""
    return invalid(f"Unrecognized servable version label: {label}")


def unimplemented(what):
    """The error for what only TensorFlow Serving has."""
    where = "is not in the development server; TensorFlow Serving has it (serving/deploy)"
    return StatusError(Code.UNIMPLEMENTED, f"{what} {where}")


def from_exception(error):
    """Any exception as a `StatusError`; those that are the server's own fault are logged."""
    if isinstance(error, StatusError):
        return error
    if isinstance(error, TimeoutError):
        return StatusError(Code.DEADLINE_EXCEEDED, "The model did not answer before the deadline")
    if code := CODES.get(getattr(error, "error_code", None)):  # one of tf.errors
        return StatusError(code, error.message)
    log.error("Internal error", exc_info=error)
    return StatusError(Code.INTERNAL, f"{type(error).__name__}: {error}")
