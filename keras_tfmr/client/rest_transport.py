"""Requests over TensorFlow Serving's REST API, by httpx."""

import base64
import json
import math
import ssl
import urllib.parse

import httpx

from keras_tfmr._inputs import utf8
from keras_tfmr.client import connection


class RestTransport:
    """Requests over connections that are kept open, shared by all threads.

    Args:
        target: The `Target`; its server is `HOST:PORT` or a URL.
        tls: A `TLS`; if None, an `https` URL uses the system's certificates.
        max_message_bytes: Largest request and answer; -1 for no limit.
    """

    def __init__(self, target, tls, max_message_bytes):
        self.target = target
        self._limit = math.inf if max_message_bytes < 0 else max_message_bytes
        scheme = "" if "://" in target.server else "http://" if tls is None else "https://"
        url = urllib.parse.urlsplit(scheme + target.server)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(
                "The server must be HOST:PORT or an http(s) URL for REST. "
                f"Received: {target.server!r}"
            )
        model, label = (urllib.parse.quote(x or "", safe="") for x in (target.model, target.label))
        self._url = f"{url.geturl().rstrip('/')}/v1/models/{model}"
        self._url += f"/versions/{target.version}" if target.version is not None else ""
        self._url += f"/labels/{label}" if target.label is not None else ""
        verify = _context(tls) if url.scheme == "https" else False
        self._client = httpx.Client(verify=verify, limits=httpx.Limits(), trust_env=False)

    def predict(self, signature, inputs, timeout):
        """Sends {input name: texts or numbers}; returns {output name: nested lists}."""
        columns = {name: [json_value(value) for value in values] for name, values in inputs.items()}
        body = json.dumps({"signature_name": signature, "inputs": columns}).encode()
        return (self._ask("POST", f"{self._url}:predict", timeout, body))["outputs"]

    def status(self, timeout):
        """List of (version, state, message)."""
        answer = self._ask("GET", self._url, timeout)
        return [
            (int(one["version"]), one["state"], one.get("status", {}).get("error_message", ""))
            for one in answer["model_version_status"]
        ]

    def close(self):
        """Closes the connections."""
        self._client.close()

    def _ask(self, method, url, timeout, body=b""):
        """The decoded JSON answer; raises the error that the answer reports."""
        self._check_size("request", body)
        headers = {"Content-Type": "application/json"}
        try:
            response = self._client.request(
                method, url, content=body, headers=headers, timeout=timeout
            )
        except httpx.TimeoutException as error:
            raise self._error("DEADLINE_EXCEEDED", error) from error
        except httpx.TransportError as error:
            # Retrying does not help against wrong certificates.
            code = "UNAUTHENTICATED" if _is_from(error, ssl.SSLError) else "UNAVAILABLE"
            raise self._error(code, error) from error
        self._check_size("answer", response.content)
        return self._decoded(response)

    def _error(self, code, error):
        return connection.from_status(code, str(error) or type(error).__name__, self.target)

    def _check_size(self, what, content):
        if len(content) > self._limit:
            raise connection.MessageTooLargeError(
                f"Message too large: the {what} has {len(content)} bytes, more than the limit of "
                f"{self._limit}",
                "RESOURCE_EXHAUSTED",
            )

    def _decoded(self, response):
        try:
            answer = response.json()
        except ValueError:
            answer = {"error": response.text[:200]}
        if response.status_code != 200:
            details = answer.get("error", "") if isinstance(answer, dict) else ""
            raise connection.from_http_status(response.status_code, details, self.target)
        if not isinstance(answer, dict) or not {"outputs", "model_version_status"} & answer.keys():
            raise connection.ServingError(
                f"{self.target.server} must answer with TensorFlow Serving's JSON. "
                f"Received: {response.content[:80]!r}"
            )
        return answer


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
