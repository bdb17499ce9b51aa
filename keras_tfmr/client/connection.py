"""Where the model is and how to get there."""

from dataclasses import dataclass

GRPC_PORT, REST_PORT = 8500, 8501  # TensorFlow Serving's defaults


@dataclass(frozen=True)
class Target:
    """A model on a server.

    Args:
        server: `HOST` or `HOST:PORT`; for gRPC also any of its addresses (`dns:///name:port`,
            `unix:path`), for REST also a URL (`https://host/prefix`).
        model: The model's name on that server; `default` is what a server calls its model unless
            it is told a name.
        version: Version number; None for the newest.
        label: Version label, such as `stable`; at most one of version and label.
    """

    server: str = "127.0.0.1"
    model: str = "default"
    version: int | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.label is not None:
            raise ValueError(
                f"A model has a version or a label, not both. Received: version={self.version}, "
                f"label={self.label!r}"
            )

    def described(self) -> str:
        """`model NAME`, with the version or label where one is named."""
        which = f" version {self.version}" if self.version is not None else ""
        which += f" label {self.label}" if self.label is not None else ""
        return f"model {self.model}{which}"


@dataclass(frozen=True)
class TLS:
    """PEM files for an encrypted connection.

    Args:
        ca: Certificates that the server's is checked against; None for the system's.
        cert: The client's own certificate, where the server asks for one.
        key: The private key of `cert`.
        server_name: Name the server's certificate was issued to, when it differs from the host.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError(
                f"A client certificate needs its key and the key its certificate. Received: "
                f"cert={self.cert!r}, key={self.key!r}"
            )

    def read(self, path: str | None) -> bytes | None:
        """The bytes of one of the files, None for None."""
        if path is None:
            return None
        with open(path, "rb") as file:
            return file.read()


def with_default_port(server: str, port: int) -> str:
    """`HOST` becomes `HOST:PORT`; anything that names a port or a scheme stays.

    >>> with_default_port("localhost", 8500), with_default_port("[::1]", 8500)
    ('localhost:8500', '[::1]:8500')
    """
    bare_ipv6 = server.startswith("[") and server.endswith("]")
    if bare_ipv6 or ":" not in server:
        return f"{server}:{port}"
    return server
