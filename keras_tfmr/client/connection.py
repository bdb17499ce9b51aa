"""The address of a model, certificates, and what can go wrong: an exception for each kind."""

import collections.abc
import dataclasses
import ipaddress
import numbers
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GRPC_PORT, REST_PORT = 8500, 8501  # TensorFlow Serving's defaults
LARGEST_VERSION = 2**63 - 1  # an int64

# What an annotation takes: any number that can stand for one, but no bool.
_NUMBERS = {int: numbers.Integral, float: numbers.Real}


def check_types(instance: Any) -> None:
    """Raises a TypeError for a field of a dataclass whose value its annotation does not allow.

    The protocols would disagree about it: one of them sends the string "1" as a version.
    """
    hints = typing.get_type_hints(type(instance))
    for name in (field.name for field in dataclasses.fields(instance)):
        hint = hints[name]
        kinds = [typing.get_origin(kind) or kind for kind in typing.get_args(hint)]
        if typing.get_origin(hint) is collections.abc.Mapping or not kinds:
            kinds = [typing.get_origin(hint) or hint]
        value = getattr(instance, name)
        if isinstance(value, bool):
            allowed = bool in kinds
        else:
            allowed = isinstance(value, tuple(_NUMBERS.get(kind, kind) for kind in kinds))
        if not allowed:
            expected = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
            raise TypeError(f"{name} must be {expected}. Received: {value!r:.80}")


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
        TypeError: If an argument is of another type.
        ValueError: If both a version and a label are given, a version is no int64 of 0 or more, or
            a name is empty or no Unicode.
    """

    server: str = "127.0.0.1"
    model: str = "default"
    version: int | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.version is not None and self.label is not None:
            raise ValueError(
                f"Give a version or a label, not both. Received: version={self.version}, "
                f"label={self.label!r}"
            )
        if self.version is not None and not 0 <= self.version <= LARGEST_VERSION:
            raise ValueError(f"version must be 0 to {LARGEST_VERSION}. Received: {self.version}")
        for name in filter(lambda name: name is not None, (self.server, self.model, self.label)):
            if not name or not name.isprintable():
                raise ValueError(
                    f"A server, model or label must have a printable name. Received: {self}"
                )

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
        TypeError: If an argument is no str.
        ValueError: If only one of `cert` and `key` is given.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        check_types(self)
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
    name, colon, number = host.rpartition(":")
    if not host or (colon and not name):
        raise ValueError(f"A server must be HOST or HOST:PORT. Received: {server!r}")
    # What is no number may be a path, as in gRPC's `unix:path`, and before a slash nothing.
    wrong = not 0 < int(number) < 2**16 if number.isdecimal() else not number and not slash
    # Another colon is that of an IPv6 address, or of a scheme.
    if colon and wrong and (":" not in name or name.endswith("]")):
        raise ValueError(
            f"A server must have a port from 1 to 65535 after its colon. Received: {server!r}"
        )
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
    """The headers; a TypeError unless they are a dict of str.

    A ValueError for one that HTTP or gRPC could not send, without its value.

    >>> checked_headers({"authorization": "Bearer secret"})
    {'authorization': 'Bearer secret'}
    """
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a dict of str. Received a {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(
                "headers must be a dict of str. Received a pair of "
                f"{type(name).__name__} and {type(value).__name__}"
            )
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

    Attributes:
        answers: Of a list that was sent in several requests: the answer to each text, None for
            those without one. Otherwise empty.
    """

    exit_code = 1

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.code = code
        self.answers: list[Any] = []


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
