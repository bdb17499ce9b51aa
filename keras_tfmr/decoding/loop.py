"""The loop of a search, in which the state can grow and the batch can shrink."""

from keras import ops, tree


def decode_loop(search, loop):
    """Runs `search.extend` until every example has ended.

    If the step has `rooms`, the loop runs in stretches, each with room for the positions up to its
    end, so that the time depends on the length that is decoded, not on the maximum. If the step
    `shrinks`, the next stretch leaves out the examples that have ended, so that the whole batch
    does not wait for its longest example. Within a stretch every shape is fixed, and a stretch that
    is not reached costs nothing.

    Args:
        search: An object with
            `task`: the `Task`;
            `step`: a `DecodingStep`;
            `extend(*loop)`: the parts of the loop after one more token;
            `unfinished(*loop)`: bool `[batch]`, which examples may still change;
            `resize(loop, change)`: the loop with `change(state)` for its state;
            `result(loop)`: the result of the search, nested tensors `[batch, ...]`;
            `take(loop, examples)`: a search and a loop for some of the examples.
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
    return _stretches(search, search.step.rooms or (None,), loop)


def _stretches(search, rooms, loop):
    """Runs one stretch for each of the rooms, until every example has ended."""
    room, *later_rooms = rooms
    if room is not None:
        loop = search.resize(loop, lambda state: search.step.resize(state, room))

    def going(*parts):
        return ops.any(search.unfinished(*parts))

    if not later_rooms:
        return search.result(tuple(ops.while_loop(going, search.extend, loop)))
    loop = tuple(
        ops.while_loop(lambda *parts: (parts[0] < room) & going(*parts), search.extend, loop)
    )
    return ops.cond(
        going(*loop),
        lambda: _later_stretches(search, later_rooms, loop),
        lambda: search.result(loop),
    )


def _later_stretches(search, rooms, loop):
    """Runs the remaining stretches, for the examples that have not ended."""
    if not search.step.shrinks:
        return _stretches(search, rooms, loop)
    examples = ops.nonzero(search.unfinished(*loop))[0]
    fewer, rest = search.take(loop, examples)
    found = _stretches(fewer, rooms, rest)
    return tree.map_structure(
        lambda old, new: ops.scatter_update(old, examples[:, None], new),
        search.result(loop),
        found,
    )
