"""When a run evaluates, saves and ends, without a model to wait for."""

import signal
import time
from types import SimpleNamespace

import pytest

from training import callbacks
from training.run_folder import RunFolder
from training.settings import TrainingConfig
from training.state import Budget, Clock, Interrupts, RunState


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


@pytest.fixture
def run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    state = RunState()
    trainer = SimpleNamespace(take_averages=lambda: Weights(state), stop_training=False)
    settings = TrainingConfig(patience=3, evaluate_minutes=0.0, evaluate_steps=10)
    run = callbacks.Run(
        settings, folder, trainer, state, Budget(Clock(time.time()), batches=100),
        Evaluator([10.0, 20.0, 15.0, 19.9, 12.0]), SimpleNamespace(received=None),
    )  # fmt: skip
    yield run
    folder.close()


@pytest.fixture
def evaluation(run):
    history = SimpleNamespace(add_scores=lambda bleu, chrf: run.state.rows.append((bleu, chrf)))
    return callbacks.Evaluation(run, history)


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
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts:
        signal.raise_signal(signal.SIGTERM)
        assert interrupts.received == signal.SIGTERM
        assert "once more" in capsys.readouterr().out
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
