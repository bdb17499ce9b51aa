"""Batching across requests: what shares a run, what it is padded to, and who is told what."""

import asyncio
import threading
import time

import grpc
import numpy as np
import pytest
import server_models
from server_models import request
from server_process import ServerProcess, status_of

from serving.devserver import batching, configs
from serving.devserver.errors import ServingError
from serving.devserver.servable import Lease


class Doubler:
    """A servable that doubles `x`, remembers its batches and can be held up."""

    def __init__(self, **settings):
        self.batching = configs.BatchSettings(**settings)
        self.lease = Lease()
        self.batches = []
        self.running, self.open = threading.Event(), threading.Event()
        self.open.set()
        self.answer = lambda x: x * 2

    def run(self, feeds, fetches, deadline):
        self.running.set()
        self.open.wait(10)
        self.batches.append(feeds["x"].tolist())
        return [self.answer(feeds["x"]) for _ in fetches]


def settings(size=4, **others):
    return {"max_size": size, "execution_size": size, **others}


def serve(servable, scenario, threads=1):
    """Runs a coroutine function of (scheduler, ask) with a fresh scheduler."""

    async def main():
        scheduler = batching.Scheduler(threads)

        def ask(*rows, deadline=None, fetch="y"):
            feeds = {"x": np.array(rows)}
            return asyncio.create_task(scheduler.run(servable, feeds, (fetch,), deadline))

        try:
            return await asyncio.wait_for(scenario(scheduler, ask), 20)
        finally:
            servable.open.set()
            scheduler.close()

    return asyncio.run(main())


async def occupy(servable, ask):
    """Keeps the only batch thread busy, so that what comes next has to queue."""
    servable.running.clear()
    servable.open.clear()
    busy = ask(0)
    assert await asyncio.to_thread(servable.running.wait, 10)
    return busy


async def settle():
    """Lets every task go as far as it gets without waiting for a thread or the clock."""
    for _ in range(30):
        await asyncio.sleep(0)


async def outcome(task):
    try:
        return (await task)[0].tolist()
    except ServingError as error:
        return error.code.name, error.message


def test_waiting_requests_share_a_batch():
    servable = Doubler(**settings(4))

    async def scenario(scheduler, ask):
        busy = await occupy(servable, ask)
        tasks = [ask(1, 2), ask(3), ask(4, 5)]
        await settle()
        servable.open.set()
        return [await outcome(task) for task in (busy, *tasks)]

    assert serve(servable, scenario) == [[0], [2, 4], [6], [8, 10]]
    assert servable.batches == [[0], [1, 2, 3], [4, 5]]  # the third did not fit any more


def test_batches_are_padded_to_an_allowed_size_by_repeating_a_row():
    servable = Doubler(**settings(8, allowed=(2, 4, 8)))

    async def scenario(scheduler, ask):
        return [await outcome(ask(7, 8, 9)), await outcome(ask(1)), await outcome(ask(*range(8)))]

    answers = serve(servable, scenario)
    assert answers == [[14, 16, 18], [2], list(range(0, 16, 2))]
    assert servable.batches == [[7, 8, 9, 7], [1, 1], list(range(8))]


def test_timeout_waits_for_company():
    servable = Doubler(**settings(3, timeout=1.0))

    async def scenario(scheduler, ask):
        first = ask(1)
        await settle()
        assert servable.batches == []
        await asyncio.gather(first, ask(2))

    serve(servable, scenario)
    assert servable.batches == [[1, 2]]


def test_a_full_batch_waits_for_nobody():
    servable = Doubler(**settings(3, timeout=60.0))

    async def scenario(scheduler, ask):
        await asyncio.gather(ask(1), ask(2), ask(3))

    serve(servable, scenario)  # which gives up after 20 seconds
    assert servable.batches == [[1, 2, 3]]


def test_full_queue():
    servable = Doubler(**settings(2, max_enqueued=2))

    async def scenario(scheduler, ask):
        busy = await occupy(servable, ask)
        tasks = [ask(i) for i in range(1, 6)]
        await settle()
        servable.open.set()
        return [await outcome(task) for task in (busy, *tasks)]

    *served, refused = serve(servable, scenario)
    assert served == [[0], [2], [4], [6], [8]]
    assert refused == (
        "UNAVAILABLE",
        "The batch scheduling queue to which this task was submitted is full; currently 2 batches "
        "enqueued and max_enqueued_batches is 2",
    )
    assert servable.batches == [[0], [1, 2], [3, 4]]


def test_too_large_and_splitting():
    small = Doubler(**settings(2))

    async def too_large(scheduler, ask):
        return await outcome(ask(1, 2, 3))

    assert serve(small, too_large) == (
        "INVALID_ARGUMENT",
        "Task size 3 is larger than maximum input batch size 2",
    )
    splitting = Doubler(max_size=6, execution_size=2, splitting=True, max_enqueued=4)

    async def split(scheduler, ask):
        return [await outcome(ask(1, 2, 3, 4, 5)), await outcome(ask(*range(7)))]

    whole, refused = serve(splitting, split)
    assert whole == [2, 4, 6, 8, 10] and splitting.batches == [[1, 2], [3, 4], [5]]
    assert refused[0] == "INVALID_ARGUMENT"


def test_deadlines():
    servable = Doubler(**settings(2))

    async def scenario(scheduler, ask):
        busy = await occupy(servable, ask)
        queued = ask(1, deadline=time.monotonic() + 0.1)
        queued = await outcome(queued)
        servable.open.set()
        await busy
        servable.open.clear()
        running = await outcome(ask(2, deadline=time.monotonic() + 0.1))
        servable.open.set()
        return queued, running

    queued, running = serve(servable, scenario)
    assert queued == (
        "RESOURCE_EXHAUSTED",
        "Run() timeout exceeded while waiting in batching queue",
    )
    assert running[0] == "DEADLINE_EXCEEDED"
    assert servable.batches == [[0], [2]]  # what came too late was not run


def test_who_goes_away_is_dropped_from_the_queue():
    servable = Doubler(**settings(2, max_enqueued=1))

    async def scenario(scheduler, ask):
        busy = await occupy(servable, ask)
        gone, stays = ask(1), ask(2)
        await settle()
        gone.cancel()
        await settle()
        late = ask(3)  # has the room that was given up
        await settle()
        servable.open.set()
        return [await outcome(task) for task in (busy, stays, late)]

    assert serve(servable, scenario) == [[0], [4], [6]]
    assert servable.batches == [[0], [2, 3]]
    assert servable.lease.users == 0


def test_a_run_keeps_its_servable_though_nobody_waits_for_it():
    servable = Doubler(**settings(1))

    async def scenario(scheduler, ask):
        (await occupy(servable, ask)).cancel()
        await settle()
        users = servable.lease.users
        servable.open.set()
        return users

    assert serve(servable, scenario) == 1
    assert servable.lease.users == 0


def test_trailing_dimensions_must_agree_or_are_padded():
    async def scenario(scheduler, ask):
        busy = await occupy(servable, ask)
        tasks = [ask([1, 1]), ask([2, 2, 2])]
        await settle()
        servable.open.set()
        await busy
        return [await outcome(task) for task in tasks]

    servable = Doubler(**settings(4))
    for code, text in serve(servable, scenario):
        assert code == "FAILED_PRECONDITION" and "padding is turned off" in text
    servable = Doubler(**settings(4, pad_inputs=True))
    assert serve(servable, scenario) == [[[2, 2, 2]], [[4, 4, 4]]]


def test_inputs_and_outputs_without_rows():
    servable = Doubler(**settings(4))

    async def scenario(scheduler, ask):
        async def run(**feeds):
            feeds = {name: np.array(value) for name, value in feeds.items()}
            return await outcome(scheduler.run(servable, feeds, ("y",), None))

        answers = [await run(x=1), await run(x=[1, 2], z=[1])]
        servable.answer = np.sum
        answers.append(await run(x=[1, 2]))
        servable.answer = lambda x: x[:1]
        answers.append(await run(x=[1, 2]))
        servable.answer = lambda x: x
        answers.append(await run(x=np.zeros(0, np.int64)))
        return answers

    scalar, unequal, reduced, short, empty = serve(servable, scenario)
    least = "Batching Run() input tensors must have at least one dimension"
    assert scalar == ("INVALID_ARGUMENT", least)
    assert unequal[1] == "Batching Run() input tensors must have equal 0th-dimension size"
    assert reduced == ("FAILED_PRECONDITION", "Batched output tensor has 0 dimensions")
    assert short[0] == "FAILED_PRECONDITION" and "0th dimension does not equal" in short[1]
    assert empty == []


def test_an_error_fails_the_batch_and_nothing_else():
    servable = Doubler(**settings(2))

    def fail(x):
        if 13 in x:
            raise ValueError("unlucky")
        return x

    servable.answer = fail

    async def scenario(scheduler, ask):
        busy = await occupy(servable, ask)
        tasks = [ask(13), ask(1), ask(2)]
        await settle()
        servable.open.set()
        await busy
        return [await outcome(task) for task in tasks]

    bad, neighbour, other = serve(servable, scenario)
    assert bad == neighbour == ("INTERNAL", "ValueError: unlucky") and other == [2]


def test_queues_of_different_outputs_take_turns():
    servable = Doubler(**settings(1))

    async def scenario(scheduler, ask):
        busy = await occupy(servable, ask)
        tasks = [ask(1), ask(2), ask(3), ask(10, fetch="z")]
        await settle()
        servable.open.set()
        await asyncio.gather(busy, *tasks)

    serve(servable, scenario)
    assert servable.batches.index([10]) < servable.batches.index([3])


PARAMETERS = """
max_batch_size {{ value: {} }}
batch_timeout_micros {{ value: {} }}
max_enqueued_batches {{ value: 2 }}
num_batch_threads {{ value: 1 }}
allowed_batch_sizes: 4
allowed_batch_sizes: 8
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batching")
    server_models.warmup(server_models.slow(folder / "slow"), request("slow", ms=[1] * 3))
    # Long enough for eight requests to meet on a busy machine.
    (folder / "batching.config").write_text(PARAMETERS.format(8, 200_000))
    with ServerProcess(
        folder,
        "--model_name=slow",
        f"--model_base_path={folder}/slow",
        "--enable_batching",
        f"--batching_parameters_file={folder}/batching.config",
    ) as running:
        yield running


def ask(server, *ms):
    return server.prediction.Predict.future(request("slow", ms=list(ms)), timeout=30)


def rows(future):
    return list(future.result().outputs["rows"].int_val)


def arrive(server):
    """Returns when all that was asked before is in the queue, or refused: this one comes last."""
    call = server.prediction.Predict
    assert status_of(call, request("slow", ms=[1] * 9)) == (
        "INVALID_ARGUMENT",
        "Task size 9 is larger than maximum input batch size 8",
    )


def has_room(server):
    """Whether another whole batch is let into the queue; one that is not is refused at once."""
    try:
        # Answers to two calls may arrive in another order than they were sent: wait for this one.
        return ask(server, *[1] * 8).exception(timeout=0.5) is None
    except grpc.FutureTimeoutError:
        return True  # it is in the queue


def test_real_requests_share_a_run(server):
    assert rows(ask(server, 1)) == [4]  # padded
    assert rows(ask(server, *range(5))) == [8] * 5
    futures = [ask(server, 1) for _ in range(8)]
    assert [rows(future) for future in futures] == [[8]] * 8


def test_flood_gets_unavailable_and_the_rest_is_served(server):
    long = ask(server, 2000, *[1] * 7)
    arrive(server)
    futures = [ask(server, *[1] * 8) for _ in range(20)]
    codes = [future.code() for future in futures]
    assert codes.count(grpc.StatusCode.OK) == 2
    assert codes.count(grpc.StatusCode.UNAVAILABLE) == 18
    assert long.code() == grpc.StatusCode.OK
    assert server.http("/v1/models/slow:predict", {"instances": [1]})[0] == 200


def test_cancelled_clients_leave_the_queue(server):
    long = ask(server, 4000, *[1] * 7)
    arrive(server)
    waiting = [ask(server, *[1] * 8) for _ in range(2)]
    arrive(server)
    assert not has_room(server)
    for future in waiting:
        future.cancel()
    server.wait_for(lambda: has_room(server))
    assert not long.done()
    assert long.code() == grpc.StatusCode.OK


@pytest.mark.parametrize(
    "text, message",
    [
        ("max_batch_size { value: 4 } allowed_batch_sizes: 8", "must match max_batch_size"),
        ("max_batch_size { value: 8 } allowed_batch_sizes: [4, 2, 8]", "increasing order"),
        ("num_batch_threads { value: 0 }", "threads must be positive"),
        ("batch_timeout_micros { value: -1 }", "must be non-negative; was -1"),
        ("max_batch_size: 4", "Error parsing text-format tensorflow.serving.BatchingParameters"),
    ],
)
def test_parameters_that_cannot_be(tmp_path, text, message):
    (tmp_path / "file").write_text(text)
    with pytest.raises(ServingError, match=message):
        configs.batch_settings(configs.read(str(tmp_path / "file"), configs.BatchingParameters))


def test_parameters():
    text = PARAMETERS.format(8, 20_000)
    file = configs.text_format.Parse(text, configs.BatchingParameters())
    assert configs.batch_settings(file) == configs.BatchSettings(
        max_size=8,
        execution_size=8,
        timeout=0.02,
        max_enqueued=2,
        threads=1,
        allowed=(4, 8),
    )
    default = configs.batch_settings(configs.BatchingParameters())
    assert (default.max_size, default.timeout, default.max_enqueued) == (1000, 0.0, 10)
