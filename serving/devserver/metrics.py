"""Counters with TensorFlow Serving's names, in the text format of Prometheus."""

import asyncio
import contextlib
import re
import time

import grpc
import prometheus_client

from .errors import from_exception

DEFAULT_PATH = "/monitoring/prometheus/metrics"
_BUCKETS = [10 * 1.8**power for power in range(33)]  # microseconds


class Metrics:
    """The counters of one server."""

    def __init__(self):
        self._registry = prometheus_client.CollectorRegistry()
        prometheus_client.disable_created_metrics()
        serving = ":tensorflow:serving:"
        self._requests = prometheus_client.Counter(
            serving + "request_count", "-", ["model_name", "status"], registry=self._registry
        )
        self._latency, self._runtime = (
            prometheus_client.Histogram(
                serving + name, "-", labels, buckets=_BUCKETS, registry=self._registry
            )
            for name, labels in (
                ("request_latency", ["model_name", "API", "entrypoint"]),
                ("runtime_latency", ["model_name", "API", "runtime"]),
            )
        )

    @contextlib.contextmanager
    def request(self, model, method, entrypoint):
        """Counts a request, its status and, if it succeeds, its latency."""
        started, code = time.monotonic(), grpc.StatusCode.OK
        try:
            yield
            seconds = time.monotonic() - started
            self._latency.labels(model, method, entrypoint).observe(seconds * 1e6)
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:
            code = from_exception(error).code
            raise
        finally:
            self._requests.labels(model, code.name).inc()

    def runtime(self, model, method, seconds):
        """Records the seconds of a run, including its wait for a batch."""
        self._runtime.labels(model, method, "TF1").observe(seconds * 1e6)

    def page(self):
        """The text that Prometheus scrapes."""
        page = prometheus_client.generate_latest(self._registry).decode()
        page = re.sub(r"^# HELP.*\n", "", page, flags=re.MULTILINE)
        # prometheus_client appends _total to the names of counters; TensorFlow Serving does not.
        return re.sub(r"^((?:# TYPE )?:tensorflow:\S+?)_total\b", r"\1", page, flags=re.MULTILINE)
