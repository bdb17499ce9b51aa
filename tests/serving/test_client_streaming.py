"""Requests in order from a thread of their own: what happens to it when nobody listens any more."""

import threading
import time

import pytest

from keras_tfmr.client.streaming import in_order


@pytest.fixture
def complaints(monkeypatch):
    """What Python would print of threads that died."""
    found = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def ended(before, seconds=10):
    """Waits until no thread is left that was not there before; whether that came to pass."""
    end = time.monotonic() + seconds
    while (left := set(threading.enumerate()) - before) and time.monotonic() < end:
        left.pop().join(0.1)
    return not left


def test_a_request_that_comes_after_the_end_is_dropped_in_silence(complaints):
    before, closed, asked = set(threading.enumerate()), threading.Event(), []

    def requests():
        yield 1
        closed.wait(10)
        yield 2

    answers = in_order(lambda request: asked.append(request) or request, requests(), 2)
    assert next(answers) == 1
    answers.close()
    closed.set()
    assert ended(before)
    assert asked == [1] and complaints == []


def test_a_reader_that_waits_for_room_ends_with_its_listener(complaints):
    before, go = set(threading.enumerate()), threading.Event()

    def ask(request):
        if request:
            go.wait(10)
        return request

    def requests():
        yield 0
        yield 1
        go.set()  # the next is asked for, so the one before has been handed over
        yield from range(2, 1000)

    answers = in_order(ask, requests(), 1)
    assert next(answers) == 0
    go.wait(10)
    answers.close()
    assert ended(before) and complaints == []


@pytest.mark.parametrize("error", [OSError("no file"), UnicodeError("no text"), KeyError("bug")])
def test_an_error_of_the_input_arrives_behind_what_came_before_it(error, complaints):
    def requests():
        yield "um"
        raise error

    answers = in_order(str.upper, requests(), 2)
    assert next(answers) == "UM"
    with pytest.raises(type(error), match=str(error.args[0])):
        next(answers)
    assert complaints == []
