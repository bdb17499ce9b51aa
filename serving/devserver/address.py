"""Addresses as people write them."""

import ipaddress


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
