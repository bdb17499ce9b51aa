"""The address of a model, certificates, and what can go wrong: an exception for each kind."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

GRPC_PORT, REST_PORT = 8500, 8501  # TensorFlow Serving's defaults


@dataclass(frozen=True)
class Target:
    """A model on a server.

    Args:
        server: `HOST` or `HOST:PORT`; for gRPC also any of its addresses (`dns:///name:port`,
            `unix:path`), for REST also a URL (`https://host/prefix`).
        model: The model's name on the server. A server that is given no name calls it `default`.
        version: Version number; None for the newest.
        label: Version label, such as `stable`, instead of a version number.

    Raises:
        ValueError: If both a version and a label are given, or a name is empty.
    """

    server: str = "127.0.0.1"
    model: str = "default"
    version: int | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.label is not None:
            raise ValueError(
                f"Give a version or a label, not both. Received: version={self.version}, "
                f"label={self.label!r}"
            )
        if "" in (self.server, self.model, self.label):
            raise ValueError(f"A server, model or label must have a name. Received: {self}")

    def described(self) -> str:
        """`model NAME`, with the version or label if there is one."""
        which = f" version {self.version}" if self.version is not None else ""
        which += f" label {self.label}" if self.label is not None else ""
        return f"model {self.model}{which}"


@dataclass(frozen=True)
class TLS:
    """PEM files for an encrypted connection.

    Args:
        ca: CA certificates to check the server's certificate with; None for the system's.
        cert: The client's own certificate, if the server asks for one.
        key: The private key of `cert`.
        server_name: The name in the server's certificate, if it is not the host's. Over REST it
            does not count behind a proxy of the environment, where httpx has no such option.

    Raises:
        ValueError: If only one of `cert` and `key` is given.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError(
                "A client certificate and its key must be given together. Received: "
                f"cert={self.cert!r}, key={self.key!r}"
            )

    def read(self, path: str | None) -> bytes | None:
        """The bytes of one of the files, None for None."""
        if path is None:
            return None
        with open(path, "rb") as file:
            return file.read()


def with_default_port(server: str, port: int) -> str:
    """`HOST` becomes `HOST:PORT`; an address with a port or a scheme stays as it is.

    >>> with_default_port("localhost/prefix", 8501), with_default_port("::1", 8500)
    ('localhost:8501/prefix', '[::1]:8500')
    """
    host, slash, prefix = server.partition("/")
    try:
        host = f"[{ipaddress.IPv6Address(host.strip('[]'))}]"
    except ValueError:
        if ":" in host:
            return server
    return f"{host}:{port}{slash}{prefix}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, which no proxy can reach under that name.

    >>> is_loopback("[::1]"), is_loopback("localhost"), is_loopback("example.com")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


# Lower case, and not what the protocols themselves send or read; `-bin` marks bytes in gRPC.
_NAME = re.compile(
    r"(?!(connection|content-.*|grpc-.*|host|te|transfer-encoding|user-agent|.*-bin)$)[a-z0-9_.-]+"
)
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")


def checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers; a ValueError for one that HTTP or gRPC could not send, without its value.

    >>> checked_headers({"authorization": "Bearer secret"})
    {'authorization': 'Bearer secret'}
    """
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ValueError(
                "A header must have a name in lower case, like authorization, and none of the "
                f"protocol's own. Received: {name!r}"
            )
        if not _VALUE.fullmatch(value):
            raise ValueError(
                f"The header {name} must be printable ASCII without space or line end around it. "
                f"Received: {len(value)} characters"
            )
    return headers


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
    if code == "UNAUTHENTICATED":
        details += ". Headers must hold a token that it accepts"
    return ServingError(f"{target.server} refused the request ({code}): {details}", code)


# In TLS 1.3 a client is refused after the handshake, and may only see that the server hangs up.
PERHAPS_REFUSED = ", as from a server that refuses the client's certificate"


def untrusted(details, target):
    """The exception for a certificate that one of both sides refuses."""
    what = f"{target.server} and the client must trust each other's certificates"
    return ServingError(f"{what} (UNAUTHENTICATED): {details}", "UNAUTHENTICATED")


def from_http_status(status, details, target):
    """The exception for an HTTP status other than 200, with the server's message."""
    code = _CODE_OF_HTTP_STATUS.get(status, "UNKNOWN")
    if status == 413:
        details = f"request body larger than the server accepts: {details}"
    return from_status(code, f"{details} (HTTP {status})", target)
