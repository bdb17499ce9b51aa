"""The loop around a decoder's body, over a state that grows with what has been decoded."""

from keras import ops


def decode_loop(step, max_length, loop, *, going, body, resize, result):
    """Runs `loop = body(*loop)` while `going(*loop)`, and returns `result(loop)`.

    A step that attends to all before it pays for the room in its state, filled or not. Where the
    step has `rooms`, the loop is run in stretches, each with as much room as the positions up to
    its end need: time then follows the length that is decoded, not the one that is allowed. Every
    shape stays static, and a stretch that is not reached costs nothing.

    Args:
        step: may have `rooms`, ascending lengths that end in `max_length`, and
            `resize(state, room)`.
        max_length: the greatest length.
        loop: a tuple of nested tensors, the position first.
        going: whether any hypothesis is unfinished, of the parts of `loop`.
        body: one step on the parts of `loop`.
        resize: `resize(loop, change)`: the loop with `change(state)` for its state.
        result: what is wanted of the loop in the end; shapes that do not depend on the room.
    """
    return _stretch(step, getattr(step, "rooms", (max_length,)), loop, going, body, resize, result)


def _stretch(step, rooms, loop, going, body, resize, result):
    room, *rest = rooms
    if hasattr(step, "rooms"):
        loop = resize(loop, lambda state: step.resize(state, room))
    if not rest:
        return result(tuple(ops.while_loop(going, body, loop)))
    loop = ops.while_loop(lambda *parts: (parts[0] < room) & going(*parts), body, loop)
    return ops.cond(
        going(*loop),
        lambda: _stretch(step, rest, tuple(loop), going, body, resize, result),
        lambda: result(tuple(loop)),
    )
