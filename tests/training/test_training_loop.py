"""When a run evaluates, saves, skips and ends, without a model to wait for."""

import csv
import io
import signal
import time
from types import SimpleNamespace

import pytest
import tensorflow as tf

from training.run import loop
from training.run.claim import Claim
from training.run.clock import Budget, Clock
from training.run.files import RunError
from training.run.folder import RunFolder
from training.run.history import History, Progress
from training.run.interrupts import Interrupts
from training.run.settings import TrainingConfig
from training.run.state import RunState
from training.run.task import Translation

ALONE = SimpleNamespace(index=0, count=1, devices=1, chief=True)
EPOCH = 40  # updates


class Evaluator:
    """Finds the BLEU scores it is told."""

    texts = ("one", "three", "three")

    def __init__(self, scores):
        self.scores = iter(scores)

    def measure(self):
        bleu = next(self.scores)
        return {"bleu": bleu, "chrf": bleu + 10}, list(self.texts)

    def sample(self, number, text):
        return f"{number}  ->  {text}"


class Weights:
    """A model whose weights file says when it was saved."""

    def __init__(self, step):
        self.step = step

    def save_weights(self, path):
        path.write_text(str(self.step))


class Trainer:
    """Learns nothing; the updates of the steps in `bad` are not finite."""

    def __init__(self, state, bad=()):
        self.state, self.bad, self.numbers = state, bad, []

    def update(self, batches, number, control):
        self.numbers.append(number)
        made = float(self.state.step + 1 not in self.bad)
        loss = 2.0 * len(batches) if made else float("nan")
        sums = {"loss": loss, "weight": 1.0 * len(batches), "right": 0.5}
        control = dict(zip(("share", "stop", "overdue"), control, strict=True))
        return {**sums, **control, "norm": 1.0, "made": made, "rate": 0.1}

    def variables(self):
        return {}

    def take_averages(self):
        return Weights(self.state.step)


class Batches:
    """Numbers instead of batches."""

    def __init__(self, count):
        self.count = count

    def steps_per_epoch(self, epoch=0):
        return self.count

    def dataset(self, epoch, skip, **shard):
        return tf.data.Dataset.range(skip, self.count)


def make_run(claim, scores, bad=(), batches=EPOCH, workers=ALONE, **options):
    """A run whose checkpoints hold the state alone."""
    state = RunState()
    defaults = {"patience": 3, "evaluate_minutes": 9.0, "evaluate_steps": 10, "steps": 100}
    settings = TrainingConfig(**{**defaults, **options}).resolved()
    budget = Budget(Clock(time.monotonic()), settings.minutes, settings.epochs, settings.steps)
    return loop.Run(
        settings, Translation(settings), claim, Trainer(state, bad), Batches(batches), state,
        budget, Evaluator(scores), SimpleNamespace(received=None), workers,
    )  # fmt: skip


@pytest.fixture
def claim(tmp_path):
    claim = Claim(RunFolder(tmp_path / "run"))
    yield claim
    claim.close()


def steps_saved(run, monkeypatch):
    """The positions (epoch, update, step) of all checkpoints from now on."""
    saved, save = [], run.checkpoints.save

    def remember(step, variables, meta):
        saved.append((meta["epoch"], meta["update"], meta["step"]))
        return save(step, variables, meta)

    monkeypatch.setattr(run.checkpoints, "save", remember)
    return saved


def test_the_best_weights_are_kept_and_patience_ends_the_run(claim, capsys):
    run = make_run(claim, [10.0, 20.0, 15.0, 19.9, 12.0])
    run.fit()
    assert run.state.trained and run.state.step == 50
    assert run.folder.best.read_text() == "20" and run.state.best == 20.0
    shown = capsys.readouterr().out
    assert "step 20: BLEU 20.00, chrF 30.00" in shown and shown.count("1  ->  three") == 5
    assert "No better BLEU in 3 evaluations" in shown
    with run.folder.history.open() as file:
        rows = {int(row["step"]): row for row in csv.DictReader(file)}
    assert [step for step, row in rows.items() if row["bleu"]] == [10, 20, 30, 40, 50]
    assert rows[20]["loss"] == "2.0" and rows[20]["accuracy"] == "0.5"


def test_a_run_that_goes_on_knows_how_good_the_best_weights_are(claim):
    """Killed right after an evaluation, when no other checkpoint was due for long."""
    make_run(claim, [10.0, 20.0], steps=20).fit()
    again = make_run(claim, [15.0, 15.0], steps=30)
    assert again.restore() and again.state.best == 20.0
    again.state.trained = False
    again.fit()
    assert again.state.worse == 1 and again.folder.best.read_text() == "20"


def test_best_weights_that_a_kill_prevented_are_written_when_the_run_goes_on(claim, monkeypatch):
    run = make_run(claim, [10.0, 20.0])
    save_best = run.folder.save_best

    def killed(model):
        if run.state.step == 20:
            raise KeyboardInterrupt
        save_best(model)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run.folder, "save_best", killed)
        run.fit()
    assert run.folder.best.read_text() == "10"
    again = make_run(claim, [])
    assert again.restore() and again.state.best == 20.0
    assert run.folder.best.read_text() == "20"


def test_weights_that_were_not_the_best_do_not_replace_them_when_the_run_goes_on(claim):
    run = make_run(claim, [10.0, 20.0, 15.0], steps=30)
    run.fit()
    again = make_run(claim, [])
    assert again.restore() and again.state.step == 30
    assert run.folder.best.read_text() == "20"


def test_the_end_of_an_epoch_comes_before_its_evaluation_and_checkpoint(claim, monkeypatch):
    """A checkpoint of the last update stands at the begin of the next epoch."""
    run = make_run(claim, [10.0, 11.0, 12.0], batches=10, evaluate_steps=None,
                   evaluate_minutes=0.0, steps=25)  # fmt: skip
    saved = steps_saved(run, monkeypatch)
    run.fit()
    assert saved[:2] == [(1, 0, 10), (2, 0, 20)]
    assert [row["epoch"] for row in run.state.rows] == [1, 2, 3]
    assert run.state.evaluated == 25


def test_evaluations_keep_their_distance(claim):
    run = make_run(claim, [10.0, 11.0], batches=10, evaluate_steps=None, evaluate_minutes=1.0,
                   steps=35)  # fmt: skip
    run._evaluated_at -= 61
    run.fit()
    assert [row["step"] for row in run.state.rows if "bleu" in row] == [10, 35]


def test_an_update_takes_its_batches_from_one_epoch(claim):
    """Seven batches by three: updates of 3, 3 and 1, numbered by their first batch."""
    run = make_run(claim, [1.0], batches=7, accumulate=3, epochs=2, steps=None,
                   evaluate_steps=None)  # fmt: skip
    run.fit()
    assert run.state.step == 6 and (run.state.epoch, run.state.update) == (2, 0)
    second = 1 << 32
    assert run.trainer.numbers == [0, 3, 6, second, second + 3, second + 6]


def test_checkpoints_come_by_the_clock_and_hold_where_the_run_goes_on(claim, monkeypatch):
    run = make_run(claim, [1.0], checkpoint_minutes=0.0, evaluate_steps=None, batches=3, steps=5)
    saved = steps_saved(run, monkeypatch)
    run.fit()
    assert saved[:5] == [(0, 1, 1), (0, 2, 2), (1, 0, 3), (1, 1, 4), (1, 2, 5)]
    again = make_run(claim, [], batches=3)
    assert again.restore() and (again.state.epoch, again.state.update) == (1, 2)


def test_a_signal_ends_in_one_checkpoint(claim, monkeypatch):
    run = make_run(claim, [1.0], evaluate_steps=None)
    saved = steps_saved(run, monkeypatch)
    update = run.trainer.update

    def signalled(batches, number, control):
        if run.state.step == 3:
            run.interrupts.received = signal.SIGTERM
        return update(batches, number, control)

    monkeypatch.setattr(run.trainer, "update", signalled)
    run.fit()
    assert not run.state.trained and saved == [(0, 4, 4)]


def test_another_worker_s_signal_ends_this_one_too(claim, monkeypatch):
    run = make_run(claim, [1.0], evaluate_steps=None)
    update = run.trainer.update
    monkeypatch.setattr(
        run.trainer, "update",
        lambda *args: {**update(*args), "stop": float(run.state.step == 3)},
    )  # fmt: skip
    run.fit()
    assert run.state.step == 4 and not run.state.trained
    assert [path.name for path in run.checkpoints.paths()] == ["step-000000004.npz"]


def test_a_worker_beside_the_chief_writes_nothing(claim):
    workers = SimpleNamespace(index=1, count=2, devices=1, chief=False)
    run = make_run(claim, [10.0, 11.0], steps=20, workers=workers)
    run.fit()
    assert run.state.step == 20 and run.state.best == 11.0
    assert [path.name for path in run.folder.path.iterdir()] == [".lock"]


def test_nothing_is_saved_before_the_first_update(claim):
    run = make_run(claim, [])
    run.interrupts.received = signal.SIGINT
    run.fit()
    assert not run.checkpoints.paths()


def test_updates_that_are_not_finite_are_counted_and_learned_around(claim):
    run = make_run(claim, [1.0], bad={5, 6, 9}, evaluate_steps=None, steps=20)
    run.fit()
    assert run.state.skipped == 3 and run.state.trained
    assert run.state.rows[-1]["skipped"] == 3 and run.state.rows[-1]["loss"] == 2.0


def test_too_many_of_them_end_the_run_and_leave_the_last_good_checkpoint(claim):
    run = make_run(claim, [1.0], bad=range(8, 99), evaluate_steps=None, skip_limit=4,
                   checkpoint_minutes=0.0)  # fmt: skip
    with pytest.raises(RunError) as error:
        run.fit()
    assert "4 updates in a row was not finite, the last one at step 11" in str(error.value)
    assert "step-000000007.npz" in str(error.value)
    assert run.checkpoints.paths()[-1].name == "step-000000007.npz"


def test_the_budget_that_is_used_up_first_counts():
    clock = Clock(time.monotonic() - 60)
    clock.before = 60
    state = RunState(epoch=1, update=5, step=25)
    assert Budget(clock, minutes=4).share(state, 20) == pytest.approx(0.5, abs=0.01)
    assert Budget(clock, epochs=5).share(state, 20) == pytest.approx(0.25)
    assert Budget(clock, steps=250).share(state, 20) == pytest.approx(0.1)
    assert Budget(clock, 4, 5, 250).share(state, 20) == pytest.approx(0.5, abs=0.01)
    assert Budget(clock, minutes=0.1).share(state, 20) == 1


def test_a_pause_counts_for_the_budget_and_not_for_the_speed():
    clock = Clock(time.monotonic())
    with clock.pause():
        time.sleep(0.05)
    assert clock.seconds() >= 0.05 and clock.training() < clock.seconds() - 0.04


def test_the_time_of_training_stands_still_in_a_pause():
    """A row of history that is written inside one must not begin before it."""
    clock = Clock(time.monotonic())
    with clock.pause():
        inside = clock.training()
        time.sleep(0.05)
        with clock.pause():
            time.sleep(0.05)
        assert clock.training() == inside
    assert inside <= clock.training() < inside + 0.05


def test_a_correction_of_the_date_costs_no_budget(monkeypatch):
    clock = Clock(time.monotonic())
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= clock.seconds() < 5


def test_progress_is_a_line_an_epoch_where_nobody_watches(tmp_path):
    state, out = RunState(), io.StringIO()
    history = History(RunFolder(tmp_path), state, Clock(time.monotonic()), (), writes=False)
    progress = Progress(history, out=out)
    progress.began(state, 0.25)
    progress.updated(state, 7)
    progress.ended(state, 7, {"loss": 2.0, "accuracy": 0.5, "tokens_per_second": 1234})
    assert out.getvalue() == (
        "Epoch 1, 25% of the budget used\n7 updates, loss 2.0000, accuracy 0.5000, 1,234 tokens/s\n"
    )


def test_the_first_interrupt_waits_and_the_second_does_not(capsys):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts, interrupts.waiting():
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.received == signal.SIGTERM
        assert "again to stop at once" in capsys.readouterr().out
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_where_nothing_is_lost_the_first_interrupt_does_not_wait():
    interrupts = Interrupts()
    with interrupts, interrupts.waiting():
        pass
    with pytest.raises(KeyboardInterrupt), interrupts:
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("not interrupted")
    assert interrupts.received == signal.SIGTERM
