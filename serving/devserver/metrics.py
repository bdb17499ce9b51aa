"""What Prometheus scrapes: requests by protocol, method and status code, and their seconds."""

import asyncio
import contextlib
import time

import prometheus_client

from .errors import Code, from_exception

PATH = "/monitoring/prometheus/metrics"
REQUESTS = prometheus_client.Counter(
    "devserver_requests", "Requests that have ended", ["protocol", "method", "code"]
)
SECONDS = prometheus_client.Histogram(
    "devserver_request_seconds", "Duration of requests", ["protocol", "method"]
)


@contextlib.contextmanager
def request(protocol, method):
    """Counts a request, and turns its exception into a `ServingError`."""
    started, code = time.monotonic(), Code.OK
    try:
        yield
    except asyncio.CancelledError:
        code = Code.CANCELLED
        raise
    except Exception as error:
        error = from_exception(error)
        code = error.code
        raise error from None
    finally:
        REQUESTS.labels(protocol, method, code.name).inc()
        SECONDS.labels(protocol, method).observe(time.monotonic() - started)
