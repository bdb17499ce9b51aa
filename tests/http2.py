"""gRPC calls as bytes of HTTP/2 (RFC 9113), for what no client library would send."""

import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4  # kinds of frames
END_STREAM, END_HEADERS = 1, 4  # flags


def frame(kind, flags, stream, payload):
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def headers(path):
    """A call's headers in HPACK (RFC 7541): literal, neither indexed nor compressed."""
    pairs = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"x"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
    return b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([min(len(value), 126)]) + value[:126]
        for name, value in pairs
    )


def call(path, message):
    """The frames of one call behind the preface; a `path` is cut after 126 bytes."""
    content = b"\0" + struct.pack(">I", len(message)) + message
    return [
        frame(SETTINGS, 0, 0, b""),
        frame(HEADERS, END_HEADERS, 1, headers(path)),
        frame(DATA, END_STREAM, 1, content),
    ]
