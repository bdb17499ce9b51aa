"""When a run evaluates, saves and ends, without a model to wait for."""

import signal
import time
from types import SimpleNamespace

import keras
import pytest

from training.run import callbacks, session
from training.run.folder import RunFolder
from training.run.settings import TrainingConfig
from training.run.state import Budget, Clock, Interrupts, RunState


class Evaluator:
    """Finds the BLEU scores it is told."""

    sources, references = ["um", "dois", "três"], ["one", "two", "three"]

    def __init__(self, scores):
        self.scores = iter(scores)

    def measure(self):
        bleu = next(self.scores)
        return bleu, bleu + 10, ["one", "three", "three"]


class Weights:
    """A model whose weights file says when it was saved."""

    def __init__(self, state):
        self.state = state

    def save_weights(self, path):
        path.write_text(str(self.state.step))


def make_run(folder, scores):
    """A run that trains nothing; its checkpoints hold the state alone."""
    state = RunState()
    trainer = SimpleNamespace(
        take_averages=lambda: Weights(state), stop_training=False, metrics_variables=[]
    )
    settings = TrainingConfig(patience=3, evaluate_minutes=0.0, evaluate_steps=10)
    run = callbacks.Run(
        settings, folder, trainer, state, Budget(Clock(time.time()), batches=100),
        Evaluator(scores), SimpleNamespace(received=None),
    )  # fmt: skip
    run.epoch_batches = 100
    return run


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(callbacks.Run, "variables", {})
    folder = RunFolder(tmp_path / "run")
    yield make_run(folder, [10.0, 20.0, 15.0, 19.9, 12.0])
    folder.close()


def evaluation_of(run):
    history = SimpleNamespace(add_scores=lambda bleu, chrf: run.state.rows.append((bleu, chrf)))
    return callbacks.Evaluation(run, history)


@pytest.fixture
def evaluation(run):
    return evaluation_of(run)


def batches(run, evaluation, count):
    for _ in range(count):
        run.state.step += 1
        run.state.batch += 1
        evaluation.on_train_batch_end(0)


def test_the_best_weights_are_kept_and_patience_ends_the_run(run, evaluation, capsys):
    batches(run, evaluation, 20)
    assert run.state.rows == [(10.0, 20.0), (20.0, 30.0)]
    assert run.folder.best.read_text() == "20"
    batches(run, evaluation, 29)
    assert not run.state.trained
    batches(run, evaluation, 1)
    assert run.state.trained and run.trainer.stop_training
    assert run.folder.best.read_text() == "20" and run.state.best_bleu == 20.0
    shown = capsys.readouterr().out
    assert "step 20: BLEU 20.00, chrF 30.00" in shown and shown.count("dois  ->  three  (two)") == 5
    assert "No better BLEU in 3 evaluations" in shown


def test_a_run_that_goes_on_knows_how_good_the_best_weights_are(run, evaluation):
    """Killed right after an evaluation, when no other checkpoint was due for long."""
    batches(run, evaluation, 20)
    again = make_run(run.folder, [15.0])
    assert again.restore() and again.state.best_bleu == 20.0
    again.state.step = 29  # other evaluations than before, as a budget of minutes gives
    batches(again, evaluation_of(again), 1)
    assert again.state.worse == 1 and run.folder.best.read_text() == "20"


def test_best_weights_that_a_kill_prevented_are_written_when_the_run_goes_on(
    run, evaluation, monkeypatch
):
    batches(run, evaluation, 10)

    def killed(model, path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(callbacks, "save_weights", killed)
        batches(run, evaluation, 10)
    assert run.folder.best.read_text() == "10"
    again = make_run(run.folder, [])
    assert again.restore() and again.state.best_bleu == 20.0
    assert run.folder.best.read_text() == "20"


def test_weights_that_were_not_the_best_do_not_replace_them_when_the_run_goes_on(run, evaluation):
    batches(run, evaluation, 30)
    run.save()
    again = make_run(run.folder, [])
    assert again.restore() and again.state.step == 30
    assert run.folder.best.read_text() == "20"


def test_an_evaluation_at_the_last_batch_waits_for_the_epoch_s_end(run, evaluation):
    """It makes a checkpoint, and none may be between the two."""
    run.epoch_batches = 10
    batches(run, evaluation, 10)
    assert run.state.rows == []
    callbacks.Position(run).on_epoch_end(0)
    run.settings = TrainingConfig(evaluate_minutes=9.0, evaluate_steps=10)
    evaluation.on_epoch_end(0)
    assert run.state.rows == [(10.0, 20.0)]
    again = make_run(run.folder, [])
    assert again.restore() and (again.state.epoch, again.state.batch) == (1, 0)


@pytest.mark.parametrize("batch, shown", [(0, 0.0), (3, 7.0)])
def test_metrics_go_on_within_an_epoch_and_not_into_the_next(run, batch, shown):
    position, metric = callbacks.Position(run), keras.Variable(0.0)
    position.set_model(SimpleNamespace(metrics_variables=[metric]))
    run.state.batch, run.metrics = batch, [7.0]
    position.on_epoch_begin(0)
    assert float(metric) == shown
    metric.assign(0.0)
    position.on_epoch_begin(1)
    assert float(metric) == 0.0


@pytest.mark.parametrize("saved", [False, True])
def test_what_an_interrupted_epoch_learned_is_saved_once(run, monkeypatch, saved):
    """The signal may come when the callbacks of an epoch's end have already run."""

    def fit(*args, **options):
        run.state.epoch, run.state.step = 1, 2
        if saved:
            run.save()
        run.interrupts.received = signal.SIGINT
        monkeypatch.setattr(run.checkpoints, "save", lambda step, *_: steps.append(step))

    steps, run.trainer.fit = [], fit
    session.fit(run, SimpleNamespace(steps_per_epoch=lambda epoch: 2, dataset=lambda *_, **__: []))
    assert steps == ([] if saved else [2])


def test_nothing_is_saved_before_the_first_batch(run):
    run.interrupts.received = signal.SIGINT
    session.fit(run, None)
    assert not run.checkpoints.paths()


def test_evaluations_come_after_whole_epochs_and_not_twice(run, evaluation):
    run.settings = TrainingConfig(evaluate_minutes=0.0)
    run.state.step, run.state.batch = 7, 7
    evaluation.on_epoch_end(0)  # stopped in the middle
    assert run.state.rows == []
    run.state.batch = 0
    evaluation.on_epoch_end(0)
    evaluation.on_epoch_end(0)
    assert len(run.state.rows) == 1


def test_evaluations_keep_their_distance(run, evaluation):
    run.settings = TrainingConfig(evaluate_minutes=1.0)
    run.state.step = 7
    evaluation.on_epoch_end(0)
    assert run.state.rows == []
    evaluation.last -= 61
    evaluation.on_epoch_end(0)
    assert len(run.state.rows) == 1


def test_a_checkpoint_is_never_between_the_last_batch_and_the_epoch_s_end(run):
    saved = []
    run.save = lambda: saved.append((run.state.epoch, run.state.batch))
    run.settings = TrainingConfig(checkpoint_minutes=0.0)
    run.epoch_batches = 2
    checkpointing, position = callbacks.Checkpointing(run), callbacks.Position(run)
    for _ in range(2):
        run.state.batch += 1
        checkpointing.on_train_batch_end(0)
    position.on_epoch_end(0)
    checkpointing.on_epoch_end(0)
    assert saved == [(0, 1), (1, 0)]


def test_the_budget_that_is_used_up_first_counts():
    clock = Clock(time.time() - 60)
    clock.before = 60
    state = RunState(epoch=1, batch=5, step=25)
    assert Budget(clock, minutes=4).share(state, 20) == pytest.approx(0.5, abs=0.01)
    assert Budget(clock, epochs=5).share(state, 20) == pytest.approx(0.25)
    assert Budget(clock, batches=250).share(state, 20) == pytest.approx(0.1)
    assert Budget(clock, 4, 5, 250).share(state, 20) == pytest.approx(0.5, abs=0.01)
    assert Budget(clock, minutes=0.1).share(state, 20) == 1


def test_a_pause_counts_for_the_budget_and_not_for_the_speed():
    clock = Clock(time.time())
    with clock.pause():
        time.sleep(0.05)
    assert clock.paused >= 0.05 and clock.seconds() >= 0.05


def test_the_first_interrupt_waits_and_the_second_does_not(capsys):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts, interrupts.waiting():
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.received == signal.SIGTERM
        assert "once more" in capsys.readouterr().out
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
