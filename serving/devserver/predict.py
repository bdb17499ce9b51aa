"""Checks requests of both front ends against their signatures, and runs them."""

import asyncio
import dataclasses
import time

from tensorflow_serving.apis import predict_pb2

from . import tensors
from .errors import deadline_exceeded, failed_precondition, invalid, left

DEFAULT_SIGNATURE = "serving_default"


@dataclasses.dataclass
class Call:
    """One request against one signature of one servable, ready to run."""

    signature: str
    feeds: dict  # tensor name: numpy array
    outputs: dict  # output alias: tensor name

    @property
    def fetches(self):
        return tuple(self.outputs.values())


def prepare(servable, request):
    """Checks a PredictRequest against its signature and decodes its tensors.

    Args:
        servable: The Servable that answers.
        request: PredictRequest.

    Returns:
        Call.

    Raises:
        ServingError: The request does not fit the signature; code and text are the real server's.
    """
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    signature = servable.signatures.get(name)
    if signature is None:
        raise failed_precondition(f'Serving signature key "{name}" not found.')
    _check_size(signature, request)
    feeds = {}
    for alias, info in signature.inputs.items():
        proto = _input_value(signature, request, alias, info.name)
        feeds[info.name] = tensors.to_array(proto, alias)
        if proto.dtype != info.dtype:
            raise invalid(
                f"Type mismatch: actual {tensors.dtype_name(proto.dtype)} vs. expect "
                f"{tensors.dtype_name(info.dtype)}"
            )
    return Call(name, feeds, _outputs(signature, request.output_filter))


def _check_size(signature, request):
    sent, wanted = set(request.inputs), set(signature.inputs)
    if len(sent) > len(wanted) or (len(sent) < len(wanted) and not signature.defaults):
        raise invalid(
            f"input size does not match signature: {len(sent)}!={len(wanted)} "
            f"len({_names(sent)}) != len({_names(wanted)}). Sent extra: {_names(sent - wanted)}. "
            f"Missing but required: {_names(wanted - sent)}."
        )


def _names(aliases):
    return "{" + ",".join(sorted(aliases)) + "}"


def _input_value(signature, request, alias, feed_name):
    for values in (request.inputs, signature.defaults):
        if alias in values:
            return values[alias]
    raise invalid(
        f"Signature input alias: {alias}(feed name: {feed_name}) not found in request and no "
        f"default value provided. Inputs expected to be in the request {_names(request.inputs)}, "
        f"or default input alias set: {','.join(sorted(signature.defaults))}"
    )


def _outputs(signature, output_filter):
    for number, alias in enumerate(output_filter):
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in "
                f"the set {_names(signature.outputs)}."
            )
        if alias in output_filter[:number]:
            raise invalid(f"duplicate output tensor alias: {alias}")
    # Sorted, so that requests for the same outputs share their batches.
    return {
        alias: signature.outputs[alias].name for alias in sorted(output_filter or signature.outputs)
    }


class Predictor:
    """Runs requests for both front ends.

    Args:
        manager: versions.Manager.
        scheduler: batching.Scheduler, which runs the batched requests.
        pool: Executor of the runs that are not batched.
        metrics: metrics.Metrics.
    """

    def __init__(self, manager, scheduler, pool, metrics):
        self.manager = manager
        self._scheduler = scheduler
        self._pool = pool
        self._metrics = metrics

    async def run(self, method, prepare, request, timeout=None):
        """Runs a request and returns its outputs.

        Args:
            method: `Predict`, `Classify` or `Regress`, for the metrics.
            prepare: Function of (Servable, request) to Call, such as `prepare`.
            request: PredictRequest, or another with a `model_spec`.
            timeout: Seconds until the client stops waiting, or None.

        Returns:
            (model_spec of the response, dict from output alias to numpy array).

        Raises:
            ServingError: The request is invalid, is too late, or failed in the session.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if not request.HasField("model_spec"):
            raise invalid("Missing ModelSpec")
        with self.manager.use(request.model_spec) as servable:
            call = prepare(servable, request)
            run = self._run_alone if servable.batching is None else self._scheduler.run
            started = time.monotonic()
            values = await run(servable, call.feeds, call.fetches, deadline)
            self._metrics.runtime(servable.name, method, time.monotonic() - started)
            spec = predict_pb2.PredictResponse().model_spec
            spec.name = servable.name
            spec.signature_name = call.signature
            spec.version.value = servable.version
        return spec, dict(zip(call.outputs, values, strict=True))

    async def _run_alone(self, servable, feeds, fetches, deadline):
        job = self._pool.submit(servable.run, feeds, fetches, deadline)
        # The run goes on if its client has gone: do not unload the version under it.
        servable.lease.hold(job)
        try:
            async with asyncio.timeout(left(deadline)):
                return await asyncio.wrap_future(job)
        except TimeoutError:
            raise deadline_exceeded() from None
