"""Counters under TensorFlow Serving's names, in Prometheus' text format."""

import re

import prometheus_client

DEFAULT_PATH = "/monitoring/prometheus/metrics"
_BUCKETS = [10 * 1.8**power for power in range(33)]  # microseconds


class Metrics:
    """One registry per server process."""

    def __init__(self):
        self._registry = prometheus_client.CollectorRegistry()
        prometheus_client.disable_created_metrics()
        serving = ":tensorflow:serving:"
        self._requests = self._counter(serving + "request_count", "model_name", "status")
        self._latency = self._histogram(
            serving + "request_latency", "model_name", "API", "entrypoint"
        )
        self._runtime = self._histogram(serving + "runtime_latency", "model_name", "API", "runtime")
        self._queuing = self._histogram(
            serving + "batching_session:queuing_latency", "thread_pool_name"
        )
        self._batches = self._counter(serving + "batching_session:wrapped_run_count")
        self._loads = self._counter(
            ":tensorflow:cc:saved_model:load_attempt_count", "model_path", "status"
        )

    def _counter(self, name, *labels):
        return prometheus_client.Counter(name, "-", labels, registry=self._registry)

    def _histogram(self, name, *labels):
        return prometheus_client.Histogram(
            name, "-", labels, buckets=_BUCKETS, registry=self._registry
        )

    def request(self, model, code, api, entrypoint, seconds):
        """Counts an answered request."""
        self._requests.labels(model, code.name).inc()
        if code.value[0] == 0:
            self._latency.labels(model, api, entrypoint).observe(seconds * 1e6)

    def runtime(self, model, seconds):
        self._runtime.labels(model, "Predict", "TF1").observe(seconds * 1e6)

    def queued(self, seconds):
        self._queuing.labels("batch_threads").observe(seconds * 1e6)

    def batch_done(self):
        self._batches.inc()

    def load(self, path, status):
        self._loads.labels(path, status).inc()

    def page(self):
        """The text that Prometheus scrapes."""
        page = prometheus_client.generate_latest(self._registry).decode()
        page = re.sub(r"^# HELP.*\n", "", page, flags=re.MULTILINE)
        # prometheus_client appends _total to counters, TensorFlow Serving does not.
        return re.sub(r"^((?:# TYPE )?:tensorflow:\S+?)_total\b", r"\1", page, flags=re.MULTILINE)
