"""The loop around a search, over a state that grows and a batch that shrinks as it goes on."""

from keras import ops, tree


def decode_loop(search, loop):
    """Runs `search.extend` until every example has ended.

    Where the step has `rooms`, the loop is run in stretches, each with as much room as the
    positions up to its end need: time then follows the length that is decoded, not the one that is
    allowed. Where the step `shrinks`, the examples that have ended are left out of the next
    stretch, so that a batch does not wait for its longest example with all of its rows. Within a
    stretch every shape is fixed, and a stretch that is not reached costs nothing.

    Args:
        search: has
            `task`: what is to be decoded;
            `step`: a `DecodingStep`;
            `extend(*loop)`: the parts of the loop after one more token;
            `unfinished(*loop)`: bool `[batch]`, which examples may still change;
            `resize(loop, change)`: the loop with `change(state)` for its state;
            `result(loop)`: what is wanted in the end, nested tensors `[batch, ...]`;
            `take(loop, examples)`: a search and a loop for some of the examples.
        loop: a tuple of nested tensors, the position first.

    Returns:
        `search.result` of the last loop.

    Raises:
        ValueError: where more is to be decoded than the step was started for, its `max_length`.
    """
    room, wanted = search.step.max_length, search.task.max_length
    if room is not None and room < wanted:
        raise ValueError(
            f"The step was started for max_length={room} tokens; received max_length={wanted}"
        )
    return _stretches(search, search.step.rooms or (None,), loop)


def _stretches(search, rooms, loop):
    """The loop through a state of each of the rooms, as far as an example goes on."""
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
    """The stretches that are left, for the examples that have not ended."""
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
