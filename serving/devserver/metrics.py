"""Metrics for Prometheus, under TensorFlow Serving's names: predictions and their time."""

import asyncio
import contextlib
import time

import prometheus_client

from .errors import Code, from_exception

PATH = "/monitoring/prometheus/metrics"
# A gauge, because the library adds `_total` to the names of counters.
COUNT = prometheus_client.Gauge(
    ":tensorflow:serving:request_count", "The total number of requests.", ["model_name", "status"]
)
LATENCY = prometheus_client.Histogram(
    ":tensorflow:serving:request_latency",
    "Distribution of wall time (in microseconds) for Tensorflow Serving request.",
    ["model_name", "API", "entrypoint"],
    buckets=[10 * 1.8**n for n in range(33)],
)


@contextlib.contextmanager
def request(model, entrypoint, api):
    """Turns a request's exception into a `StatusError`; counts the request if it is a Predict."""
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
        if api in ("Predict", "predict"):
            COUNT.labels(model, code.name).inc()
            LATENCY.labels(model, api, entrypoint).observe(1e6 * (time.monotonic() - started))
