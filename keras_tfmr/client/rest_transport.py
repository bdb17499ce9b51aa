"""Requests over TensorFlow Serving's REST API, with only the standard library."""

import asyncio
import base64
import http.client
import json
import math
import ssl
import threading
import time
import urllib.parse

from keras_tfmr._inputs import utf8
from keras_tfmr.client import errors

_CHUNK = 1 << 20


class RestTransport:
    """One connection for each thread, kept open between requests.

    Args:
        target: The `Target`; its server is `HOST:PORT` or a URL.
        tls: A `TLS`; if None, an `https` URL uses the system's certificates.
        max_message_bytes: Largest request and answer; -1 for no limit.
    """

    def __init__(self, target, tls, max_message_bytes):
        self.target = target
        self.limit = math.inf if max_message_bytes < 0 else max_message_bytes
        server = target.server
        if "://" not in server:
            scheme = "http" if tls is None else "https"
            server = f"{scheme}://{server}"
        self._url = urllib.parse.urlsplit(server)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ValueError(
                "The server must be HOST:PORT or an http(s) URL for REST. "
                f"Received: {target.server!r}"
            )
        self._tls = _context(tls) if self._url.scheme == "https" else None
        self._local = threading.local()

    def predict(self, signature, inputs, timeout):
        """Output name -> nested lists, for input name -> texts."""
        body = {
            "signature_name": signature,
            "inputs": {
                name: [json_value(value) for value in values] for name, values in inputs.items()
            },
        }
        answer = self._ask("POST", self._path() + ":predict", timeout, json.dumps(body).encode())
        return answer["outputs"]

    def status(self, timeout):
        """List of (version, state, message)."""
        answer = self._ask("GET", self._path(), timeout)
        return [
            (int(one["version"]), one["state"], one.get("status", {}).get("error_message", ""))
            for one in answer["model_version_status"]
        ]

    def close(self):
        """Closes this thread's connection; other threads' close when their threads end."""
        connection = self._local.__dict__.pop("connection", None)
        if connection is not None:
            connection.close()

    def _path(self):
        target = self.target
        path = f"{self._url.path.rstrip('/')}/v1/models/{urllib.parse.quote(target.model, safe='')}"
        if target.version is not None:
            path += f"/versions/{target.version}"
        if target.label is not None:
            path += f"/labels/{urllib.parse.quote(target.label, safe='')}"
        return path

    def _ask(self, method, path, timeout, body=None):
        """The decoded JSON answer; raises the error that the answer reports."""
        if body is not None and len(body) > self.limit:
            raise errors.MessageTooLargeError(
                f"Message too large: the request has {len(body)} bytes, larger than the limit of "
                f"{self.limit}",
                "RESOURCE_EXHAUSTED",
            )
        try:
            status, content = self._exchange(method, path, time.monotonic() + timeout, body)
        except TimeoutError as error:
            self.close()
            raise errors.from_status("DEADLINE_EXCEEDED", str(error), self.target) from error
        except ssl.SSLError as error:  # retrying does not help against wrong certificates
            self.close()
            raise errors.from_status("UNAUTHENTICATED", str(error), self.target) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise errors.from_status(
                "UNAVAILABLE", str(error) or repr(error), self.target
            ) from error
        return self._decoded(status, content)

    def _exchange(self, method, path, deadline, body):
        """Sends the request and reads the whole answer.

        A socket's timeout holds for one read only, so it is set again before each.
        """
        connection = self._connection(deadline)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = bytearray()
        while chunk := response.read1(_CHUNK):
            content += chunk
            if len(content) > self.limit:
                connection.close()
                raise errors.MessageTooLargeError(
                    f"Message too large: the answer is larger than the limit of {self.limit} bytes",
                    "RESOURCE_EXHAUSTED",
                )
            if connection.sock is not None:
                connection.sock.settimeout(_remaining(deadline))
        response.close()  # read1 does not do so at the end, and the connection would stay in use
        return response.status, bytes(content)

    def _connection(self, deadline):
        connection = getattr(self._local, "connection", None)
        if connection is None:
            host, port = self._url.hostname, self._url.port
            if self._tls is None:
                connection = http.client.HTTPConnection(host, port)
            else:
                connection = http.client.HTTPSConnection(host, port, context=self._tls)
            self._local.connection = connection
        connection.timeout = _remaining(deadline)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        return connection

    def _decoded(self, status, content):
        try:
            answer = json.loads(content)
        except ValueError:
            answer = {"error": content[:200].decode("utf-8", "replace")}
        if status != 200:
            details = answer.get("error", "") if isinstance(answer, dict) else ""
            raise errors.from_http_status(status, details, self.target)
        if not isinstance(answer, dict) or not {"outputs", "model_version_status"} & answer.keys():
            raise errors.ServingError(
                f"{self.target.server} must answer with TensorFlow Serving's JSON. "
                f"Received: {content[:80]!r}"
            )
        return answer


class AsyncRestTransport:
    """A `RestTransport` that runs each request in a thread of the event loop's pool."""

    def __init__(self, target, tls, max_message_bytes):
        self._blocking = RestTransport(target, tls, max_message_bytes)

    async def predict(self, signature, inputs, timeout):
        """Output name -> nested lists, for input name -> texts."""
        return await asyncio.to_thread(self._blocking.predict, signature, inputs, timeout)

    async def status(self, timeout):
        """List of (version, state, message)."""
        return await asyncio.to_thread(self._blocking.status, timeout)

    async def close(self):
        """Connections close with the threads that opened them."""


def json_value(text):
    """A text as a JSON value, with bytes that are not UTF-8 in base64; a number as it is.

    >>> json_value("olá"), json_value(b"ol\\xe1"), json_value(0.5)
    ('olá', {'b64': 'b2zh'}, 0.5)
    """
    if isinstance(text, int | float):
        return text
    content = utf8(text)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(content).decode("ascii")}


def _context(tls):
    if tls is None:
        return ssl.create_default_context()
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return context


def _remaining(deadline):
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("Deadline Exceeded")
    return seconds
