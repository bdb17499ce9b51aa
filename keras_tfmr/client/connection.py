"""The address of a model, and the certificates of an encrypted connection."""

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
        ValueError: If both a version and a label are given.
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
        server_name: The name in the server's certificate, if it is not the host's.

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

    >>> with_default_port("localhost", 8500), with_default_port("[::1]", 8500)
    ('localhost:8500', '[::1]:8500')
    """
    bare_ipv6 = server.startswith("[") and server.endswith("]")
    if bare_ipv6 or ":" not in server:
        return f"{server}:{port}"
    return server
