"""TensorFlow Serving's batching of concurrent requests, by the rules of its sources.

shared_batch_scheduler.h puts requests into batches (`ScheduleWithoutOrEagerSplitImpl`), and
batching_session.cc joins their inputs, runs the session once, and splits its outputs again.
"""

import re

import numpy as np


class RefusedError(Exception):
    """What the server answers instead, or that it dies."""


def parameters_of(text):
    """{field: number or bool} of the text of BatchingParameters."""
    found = re.findall(r"^(\w+) \{ value: (\w+) \}$", text, re.MULTILINE)
    return {name: value == "true" if value.isalpha() else int(value) for name, value in found}


def answers(session, signature, requests, parameters):
    """The answers to requests that come at once, in order: for each {output: array}.

    Args:
        session: A `SavedSession`.
        signature: The name of a signature.
        requests: List of {input: array}.
        parameters: See `parameters_of`.
    """
    parts = [[] for _ in requests]
    for batch in batches_of(requests, parameters):
        outputs = answers_of_batch(session, signature, [inputs for _, inputs in batch])
        for (number, _), own in zip(batch, outputs, strict=True):
            parts[number].append(own)
    return [joined(own) for own in parts]


def batches_of(requests, parameters):
    """Lists of (number of a request, its inputs or a slice of them)."""
    most, split = parameters["max_batch_size"], parameters.get("enable_large_batch_splitting")
    largest = parameters["max_execution_batch_size"] if split else most
    batches, used = [[]], 0
    for number, inputs in enumerate(requests):
        rows = rows_of(inputs)
        if rows > most:
            raise RefusedError(f"Task size {rows} is larger than maximum input batch size {most}")
        start = 0
        while start < rows:
            if used == largest or (not split and used + rows > largest):
                batches.append([])
                used = 0
            stop = min(start + largest - used, rows)
            batches[-1].append((number, {name: x[start:stop] for name, x in inputs.items()}))
            used, start = used + stop - start, stop
    return batches


def rows_of(inputs):
    """The number of rows of a request."""
    if any(x.ndim == 0 for x in inputs.values()):
        raise RefusedError("Batching input tensors must have at least one dimension")
    [rows] = {len(x) for x in inputs.values()}
    return rows


def answers_of_batch(session, signature, requests):
    """The answers to requests that one run of the session answers."""
    merged = {}
    for name in requests[0]:
        columns = [inputs[name] for inputs in requests]
        if len({x.shape[1:] for x in columns}) > 1:
            raise RefusedError(f"{name} has different shapes and padding is turned off")
        merged[name] = np.concatenate(columns)
    outputs = session.run(signature, merged)
    rows = rows_of(merged)
    if any(x.ndim == 0 or len(x) != rows for x in outputs.values()):
        raise RefusedError(
            "Batched output tensor's 0th dimension does not equal that of the inputs"
        )
    ends = np.cumsum([rows_of(inputs) for inputs in requests])
    columns = {name: np.split(x, ends[:-1]) for name, x in outputs.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def joined(parts):
    """The answer to a request that was split; of others the only part."""
    if any(len({part[name].shape[1:] for part in parts}) > 1 for name in parts[0]):
        raise RefusedError(
            "the server aborts: tensor::Concat copies parts of different shapes over the end"
        )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
