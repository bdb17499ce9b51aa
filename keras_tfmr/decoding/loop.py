"""The loop of a search, in which the state can grow and the batch can shrink."""

from keras import ops, tree

# If shapes may change in the loop, examples that have ended leave the batch after this many steps,
STRETCH = 8
# or as soon as this many have ended: to leave costs a copy of the caches.
LEAVING = 16


def decode_loop(search, loop):
    """Runs `search.extend` until every example has ended.

    If the step `shrinks`, the loop runs in stretches of a few steps, fewer where many examples end.
    Each has room for its own positions only, and leaves out the examples that have ended before it.
    If the step has `rooms`, there is one stretch for each of them, all with the whole batch. The
    time then depends on the length that is decoded, not on the maximum.

    Args:
        search: An object with
            `task`: the `Task`;
            `step`: a `DecodingStep`;
            `extend(*loop)`: the parts of the loop after one more token;
            `unfinished(*loop)`: bool `[batch]`, which examples may still change;
            `resize(loop, room)`: the loop whose state has room for `room` tokens;
            `result(loop)`: the result of the search, nested tensors `[batch, ...]`;
            `take(examples)`: the search for some of the examples, int32 `[n]`;
            `keep(loop, examples)`: the loop of these examples.
        loop: A tuple of nested tensors, the position first.

    Returns:
        `search.result` of the last loop.

    Raises:
        ValueError: If the task has a greater `max_length` than the step was started with.
    """
    room, wanted = search.step.max_length, search.task.max_length
    if room is not None and room < wanted:
        raise ValueError(
            f"The step was started for max_length={room} tokens; received max_length={wanted}"
        )
    if search.step.shrinks:
        return _shrinking(search, loop)
    return _stretches(search, search.step.rooms or (None,), loop)


def _shrinking(search, loop):
    """Runs stretches of up to `STRETCH` steps, each for the examples that have not ended.

    Batch and room are known at run time only, so that one traced loop serves all stretches.
    """

    def stretch(examples, loop, results):
        some, count = search.take(examples), ops.shape(examples)[0]
        end = ops.minimum((loop[0] // STRETCH + 1) * STRETCH, search.task.max_length)
        loop = _run(some, some.resize(loop, end), end, ops.maximum(count - LEAVING, 0))
        results = tree.map_structure(
            lambda old, new: ops.scatter_update(old, examples[:, None], new),
            results,
            some.result(loop),
        )
        left = ops.nonzero(some.unfinished(*loop))[0]
        return ops.take(examples, left, axis=0), some.keep(loop, left), results

    examples = ops.nonzero(search.unfinished(*loop))[0]
    # Room that TensorFlow knows while it traces could not grow; it does not look into this loop.
    (none,) = ops.while_loop(lambda room: room < 0, lambda room: (room,), (loop[0],))
    first = search.keep(search.resize(loop, none), examples)
    return ops.while_loop(
        lambda examples, *_: ops.shape(examples)[0] > 0,
        stretch,
        (examples, first, search.result(loop)),
    )[2]


def _stretches(search, rooms, loop):
    """Runs one stretch for each of the rooms, until every example has ended."""
    room, *later_rooms = rooms
    if room is not None:
        loop = search.resize(loop, room)
    if not later_rooms:
        return search.result(_run(search, loop))
    loop = _run(search, loop, room)
    return ops.cond(
        ops.any(search.unfinished(*loop)),
        lambda: _stretches(search, later_rooms, loop),
        lambda: search.result(loop),
    )


def _run(search, loop, end=None, few=0):
    """Runs steps up to the position `end`, or until at most `few` examples are unfinished."""

    def going(position, *parts):
        more = ops.sum(ops.cast(search.unfinished(position, *parts), "int32")) > few
        return more if end is None else (position < end) & more

    return tuple(ops.while_loop(going, search.extend, tuple(loop)))
