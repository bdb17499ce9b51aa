"""Arguments one step outside their range: an error that names them, and no number."""

import math

import keras
import numpy as np
import pytest
from decoding_toys import decode, hypotheses
from helpers import compiled, randomize
from keras import ops

from keras_tfmr import TransformerConfig, TransformerLanguageModel, decoding
from keras_tfmr.decoding import DecodingConfig, Examples, FunctionStep, Sampling
from keras_tfmr.models.model_step import WholeSequenceStep
from keras_tfmr.recurrent import LSTMNConfig, LSTMNLanguageModel, Seq2SeqConfig, Seq2SeqModel

BEAMS, VOCAB, END = 2, 6, 1
TABLE = np.log(np.full((BEAMS * 2, VOCAB), 1 / VOCAB, "float32"))
CONFIG = DecodingConfig(BEAMS, BEAMS, max_length=4)
ONE_BEAM = CONFIG.replace(num_beams=1, num_return_sequences=1)
EXAMPLES = Examples([2, 2], END)


def step(tokens, state, table=TABLE):
    return ops.convert_to_tensor(table), state


# What each callable takes, and beside it what it must not take.
RANGES = {
    DecodingConfig: {
        "num_beams": (2, (0, 1, 1.5)),  # 1 is fewer than are to be returned
        "num_return_sequences": (2, (0, 3, True)),
        "length_penalty": (0.0, (-1e-6, math.nan)),
        "length_penalty_offset": (0.0, (-1e-6, math.inf)),
        "max_length": (4, (0, 3, "5")),  # 3 is below min_length
        "min_length": (4, (-1, 5)),
        "max_length_ratio": (1, (0, math.inf)),
        "max_length_extra": (0, (-1, 0.5)),
    },
    CONFIG.max_lengths: {"source_lengths": ([0, 3], ([-1, 3], [1.5, 3], [[0, 3]]))},
    Examples: {
        "bos_ids": ([2, 2], ([[2, 2]], [-1, 2], [2.5, 2.5])),
        "eos_id": ((1, 3), (0, -1, (), 1.5)),
        "banned_ids": ((0, 2), ((-1,), (4.5,))),
        "prefix": ([[3, 0], [4, 5]], ([3, 4], [[3], [4], [5]], [[0, 3], [4, 5]], [[-1], [4]])),
        "max_lengths": ([0, 4], ([[0, 4]], [2, 2, 2], [-1, 2])),
        "slot_ids": ((4, 5), ((4, 4), (0, 5), (2, 5), (1, 5), range(1, 33), ())),
        "slots": ([3, 0], ([[3, 0]], [4, 0], None, [3])),
    },
    FunctionStep: {
        "function": (step, ("step",)),
        "max_length": (1, (0, 1.5)),
        "num_beams": (1, (0, True)),
        "vocab_size": (VOCAB, (0, 1.5)),
    },
    Sampling: {
        "seed": (None, (1,)),  # beside noise
        "noise": ([[0.0], [0.5]], (None, [0.5], [[1.0]] * 2, [[-1e-6]] * 2)),
        "temperature": (1, (0, -1, math.nan)),
        "top_k": (1, (0, 1.5)),
        "top_p": (1, (0, 1.001)),
    },
    decoding.search: {
        "step": (step, ("step", FunctionStep(step, max_length=3), FunctionStep(step, num_beams=3),
                        lambda tokens, state: step(tokens, state, TABLE[:3]))),
        "state": (np.zeros((4, 1), "float32"), (np.zeros((2, 1)), np.zeros((6, 1)))),
        "config": (CONFIG, ({},)),
        "examples": (EXAMPLES, ({}, Examples([2, VOCAB], END), Examples([2, 2], VOCAB),
                                Examples([2, 2], END, max_lengths=[4, 5]))),
        "choose": (None, (Sampling(seed=1),)),  # with beams
        "num_certain": (1, (0, BEAMS + 1)),
    },
    decoding.length_penalty: {
        "lengths": ([0, 7], ([-1, 7], [1.5, 7])),
        "alpha": (0, (-1e-6, math.nan)),
        "offset": (0, (-1e-6, math.inf)),
    },
    decoding.score: {
        "logits": (np.zeros((2, 1, 4)), [np.zeros(shape) for shape in ((2, 4), (2, 2, 4))]),
        "target_ids": ([[3], [0]], ([3, 0], [[4], [0]], [[-1], [0]], [[3, 0], [3, 0]])),
    },
    decoding.slots_due: {
        "source_ids": ([[7, 0]], ([7, 0], [[-1]])),
        "source_slot_ids": ((7, 8), ((7,), (0, 8))),
        "target_slot_ids": ((3, 4), ((3,),)),
    },
}  # fmt: skip


@pytest.mark.parametrize("function", RANGES, ids=lambda function: function.__name__)
def test_no_number_comes_back_from_outside_a_range(function):
    ranges = RANGES[function]
    right = {name: value for name, (value, _) in ranges.items()}
    function(**right)
    came_back = []
    for name, (_, wrong) in ranges.items():
        for value in wrong:
            try:
                came_back.append((name, value, function(**{**right, name: value})))
            except (ValueError, TypeError) as error:
                assert name in str(error) or name in ("logits", "step", "examples"), error
    assert not came_back


@pytest.mark.parametrize(
    "choose, said",
    [
        (Sampling(noise=[[0.5]] * 3), r"must have shape \[batch=2.*Received: shape \(3,"),
        (Sampling(seed=1, top_p=[1.0] * 3), r"must have shape \[batch=2.*Received: shape \(3,"),
        (lambda *_: ops.convert_to_tensor([[3], [3]]), "choice"),
        (lambda *_: ops.convert_to_tensor([3, 3, 3]), "choice"),
        (lambda *_: ops.convert_to_tensor([3.5, 3.0]), "choice"),
    ],
)
def test_a_choice_is_one_token_for_each_row(choose, said):
    def of_two(tokens, state):
        return step(tokens, state, TABLE[:2])

    with pytest.raises(ValueError, match=said):
        decoding.search(of_two, (), ONE_BEAM, EXAMPLES, choose=choose)


@pytest.fixture(scope="module")
def language():
    """A model of few weights, that has learned 9 positions."""
    config = TransformerConfig(
        target_vocab=VOCAB, joint_vocab=False, decoder_layers=1, d_model=8, num_heads=1, dff=8,
        positions="learned", max_length=9,
    )  # fmt: skip
    model = TransformerLanguageModel(config)
    randomize(model)
    return model


def test_no_prompt_and_no_number_outside_the_range_of_a_model(language):
    models = [language]
    if keras.backend.backend() == "tensorflow":
        from keras_tfmr.finished import optimize_for_decoding

        models.append(optimize_for_decoding(language))
    right = {"prompt": [[2, 3], [4, 0]], "num_beams": 2, "max_length": 8}
    wrong = {
        "prompt": ([[0, 0], [4, 0]], [[0, 3], [4, 0]], [[2, VOCAB], [4, 0]], [2, 3], [[], []]),
        "num_beams": (0, 1.5),
        "max_length": (0, 9),  # the second token of a prompt takes one position of 9
        "batch": (-1, 2.5),
    }
    for model in models:
        model.start_after(**right)
        for name, value in ((name, value) for name, values in wrong.items() for value in values):
            with pytest.raises(ValueError, match=rf"{name}.*[Rr]eceived"):
                if name == "batch":
                    model.start(value, max_length=9)
                else:
                    model.start_after(**{**right, name: value})


def test_ids_outside_the_vocabulary_are_refused_before_they_are_looked_up(language):
    whole = WholeSequenceStep(language, 1, 4)
    tapes = LSTMNLanguageModel(LSTMNConfig(vocab=VOCAB, embedding_dim=2, units=2))
    config = Seq2SeqConfig(VOCAB, VOCAB, embedding_dim=2, units=2, maxout_units=2)
    for step, state in (
        language.start(2, max_length=4),
        (whole, whole.start([], 2)),
        tapes.start(2, max_length=4),
        Seq2SeqModel(config).start(np.array([[3], [3]]), max_length=4),
    ):
        for wrong in ({"bos_ids": [2, VOCAB]}, {"prefix": [[3], [VOCAB]]}):
            with pytest.raises(ValueError, match="below the vocabulary size 6; received 6"):
                decode(step, state, **{"bos_ids": [2, 2], "eos_id": END, "max_length": 4, **wrong})


@pytest.mark.backends("tensorflow")
def test_a_hypothesis_does_not_depend_on_wrong_prompts_and_ends_where_positions_end(language):
    """In a graph that cannot refuse them."""

    def run(prompts):
        *start, bos_ids, rest = language.start_after(prompts, max_length=5)
        options = {"eos_id": END, "max_length": 9, "min_length": 9}
        return decode(*start, bos_ids=bos_ids, prompt=rest, **options)

    run, texts = compiled(run, xla=False), set()
    for other in [2, 3, 4, 5, 3], [0] * 5, [0, 0, 2, 3, 4]:
        rows = ops.convert_to_tensor(np.array([[2, 4, 3, 3, 5], other], "int32"))
        ((tokens, log_prob, _),) = hypotheses(run(rows), 0)
        assert len(tokens) == 5 and math.isfinite(log_prob)
        texts.add(tokens)
    assert len(texts) == 1


@pytest.mark.parametrize("other", [{"prefix": [[3], [4]]}, {"slot_ids": (4,), "slots": [1, 0]}])
def test_a_prompt_goes_with_neither_a_prefix_nor_slots(other):
    with pytest.raises(ValueError, match="A prompt goes with neither"):
        Examples([2, 2], END, prompt=[[3], [4]], **other)
