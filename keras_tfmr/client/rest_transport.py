"""Requests over TensorFlow Serving's REST API, by httpx."""

import json
import math
import re
import ssl
import urllib.parse

import httpx

from keras_tfmr.client import connection, tensors
from keras_tfmr.client.transport import Transport

_HUNG_UP = (httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError)


class RestTransport(Transport):
    """Requests over connections that are kept open.

    Args:
        target: The `Target`; its server is `HOST:PORT` or a URL.
        tls: A `TLS`; if None, an `https` URL uses the system's certificates.
        max_message_bytes: Largest request and answer; -1 for no limit.

    Raises:
        ValueError: If the server is no such address, a `TLS` is given for an `http` URL, or httpx
            cannot use the environment's proxies.
    """

    def __init__(self, target, tls, max_message_bytes):
        super().__init__(target)
        self._limit = math.inf if max_message_bytes < 0 else max_message_bytes
        url = _url(target.server, tls)
        model, label = (urllib.parse.quote(x or "", safe="") for x in (target.model, target.label))
        self._url = f"{str(url).rstrip('/')}/v1/models/{model}"
        self._url += f"/versions/{target.version}" if target.version is not None else ""
        self._url += f"/labels/{label}" if target.label is not None else ""
        self._options = {}
        if tls is not None and tls.server_name is not None:
            self._options["extensions"] = {"sni_hostname": tls.server_name}
        self._verify = _context(tls) if url.scheme == "https" else False
        self._trust_env = not connection.is_loopback(url.host)
        try:  # now, and not at the first request
            self.connect()
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise ValueError(f"The environment's proxy cannot be used: {error}") from error

    async def predict(self, signature, inputs, headers, timeout):
        request = {"signature_name": signature.name, "inputs": inputs}
        body = json.dumps(request, default=tensors.text_or_base64).encode()
        outputs = await self._read("POST", ":predict", headers, body, "outputs")
        return outputs if isinstance(outputs, dict) else {"outputs": outputs}  # the only one

    async def status(self, headers, timeout):
        versions = await self._read("GET", "", headers, b"", "model_version_status")
        try:
            return [
                (
                    int(version["version"]),
                    version["state"],
                    version.get("status", {}).get("error_message", ""),
                )
                for version in versions
            ]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._not_servings(versions) from error

    def connect(self):
        return httpx.AsyncClient(
            verify=self._verify, trust_env=self._trust_env, limits=httpx.Limits(), timeout=None
        )

    async def disconnect(self, client):
        await client.aclose()

    async def _read(self, method, path, headers, body, key):
        """The value of a key in the JSON answer; raises the error that the answer reports."""
        try:
            status, content = await self._send(method, self._url + path, headers, body)
        except (httpx.HTTPError, ssl.SSLError) as error:
            details = str(error) or type(error).__name__
            # In TLS 1.3 a server refuses our certificate after the handshake, which may come past
            # httpx.
            if _is_from(error, ssl.SSLError):
                raise connection.untrusted(details, self.target) from error
            if self.closed:
                raise self.error("CANCELLED", "the client was closed") from error
            if self._url.startswith("https") and isinstance(error, _HUNG_UP):
                details += connection.PERHAPS_REFUSED
            # Trying again does not help against broken encodings.
            code = "UNAVAILABLE" if isinstance(error, httpx.TransportError) else "UNKNOWN"
            raise self.error(code, details) from error
        return self._decoded(status, content, key)

    async def _send(self, method, url, headers, body):
        """(status, content) of the answer."""
        self._check_size("request", body)
        headers = {"Content-Type": "application/json", **headers}
        sent = self.connection().stream(method, url, content=body, headers=headers, **self._options)
        content = bytearray()
        async with sent as response:
            async for chunk in response.aiter_bytes():
                content += chunk
                self._check_size("answer", content)
        return response.status_code, bytes(content)

    def _not_servings(self, received):
        return connection.ServingError(
            f"{self.target.server} must answer with TensorFlow Serving's JSON. "
            f"Received: {received!r:.80}"
        )

    def _check_size(self, what, content):
        if len(content) > self._limit:
            raise connection.MessageTooLargeError(
                f"Message too large: the {what} has {len(content)} bytes or more, above the limit "
                f"of {self._limit}",
                "RESOURCE_EXHAUSTED",
            )

    def _decoded(self, status, content, key):
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            page = re.sub(rb"<[^>]*>", b" ", content[:1000])  # a gateway's
            answer = {"error": " ".join(page.decode("utf-8", "replace").split())[:200]}
        answer = answer if isinstance(answer, dict) else {}
        if status != 200:
            raise connection.from_http_status(status, answer.get("error", ""), self.target)
        if key not in answer:
            raise self._not_servings(content)
        return answer[key]


def _url(server, tls):
    scheme = "" if "://" in server else "http://" if tls is None else "https://"
    try:
        url = httpx.URL(scheme + server)
    except httpx.InvalidURL:
        url = httpx.URL()
    port = url.port or 0 if url.host else -1
    if url.scheme not in ("http", "https") or not 0 <= port < 1 << 16 or url.query or url.fragment:
        expected = "HOST:PORT or an http(s) URL without query and fragment"
        raise ValueError(f"The server must be {expected} for REST. Received: {server!r}")
    if tls is not None and url.scheme == "http":
        raise ValueError(f"An http URL is not encrypted. Received: {server!r} with {tls}")
    return url


def _context(tls):
    context = ssl.create_default_context(cafile=tls and tls.ca)
    if tls is not None and tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return context


def _is_from(error, kind):
    """Whether an exception of a kind caused an error."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None
