"""Every argument of every public callable, one step outside its range: an error, and no number."""

import inspect
import itertools
import math

import keras
import numpy as np
import pytest
from decoding_toys import decode, hypotheses
from helpers import compiled, randomize, to_numpy
from keras import ops
from keras_tfmr.faster.optimize import optimize_for_decoding

from keras_tfmr import LanguageModel, TransformerConfig, decoding
from keras_tfmr.decoding import DecodingConfig, Examples, FunctionStep, Sampling

BEAMS, VOCAB, END = 2, 6, 1
NO_NUMBERS = (math.nan, "1", [1.0])
NO_REALS = (math.nan, "1", [math.nan, 1], [[1.0], [1.0]])  # of all examples, or of each
NO_INTEGERS = (1.5, np.float32(1.0), True, "1", [1])
# Of an integer for each of two examples: too many, and what is none that an int32 holds.
ROWS = ([2, 2, 2], [2.5, 2.5], [True, True], ["2", "2"], [-1, 2], [2**31, 2])
TABLE = np.log(np.full((BEAMS * 2, VOCAB), 1 / VOCAB, "float32"))
CONFIG = DecodingConfig(BEAMS, BEAMS, max_length=4)
ONE_BEAM = CONFIG.replace(num_beams=1, num_return_sequences=1)
EXAMPLES = Examples([2, 2], END)


def step(tokens, cache, table=TABLE):
    return ops.convert_to_tensor(table), cache


def examples(**given):
    return Examples(**{"bos_ids": [2, 2], "eos_id": END, **given})


# What each callable takes, and beside it what it must not take.
RANGES = {
    DecodingConfig: {
        "num_beams": (2, (0, 1, *NO_INTEGERS)),  # 1 is fewer than are to be returned
        "num_return_sequences": (2, (0, 3, *NO_INTEGERS)),
        "length_penalty": (0.0, (-1e-6, math.inf, *NO_NUMBERS)),
        "length_penalty_offset": (0.0, (-1e-6, math.inf, *NO_NUMBERS)),
        "max_length": (np.int64(4), (0, 3, 4.5, *NO_INTEGERS)),  # 3 is below min_length
        "min_length": (4, (-1, 5, *NO_INTEGERS)),
        "max_length_ratio": (1, (0, -1.0, math.inf, *NO_NUMBERS)),
        "max_length_extra": (0, (-1, *NO_INTEGERS)),
    },
    CONFIG.max_lengths: {"source_lengths": ([0, 3], ([-1, 3], [1.5, 3], [[0, 3]], 3, ["a", "b"]))},
    Examples: {
        "bos_ids": ([2, 2], ([[2, 2]], 2, *ROWS[1:])),  # whose number is the batch
        "eos_id": ((1, 3), (0, -1, (), (1, 0), [[1]], *NO_INTEGERS[:4])),
        "banned_ids": ((0, 2), ((-1,), (4.5,), ((4,),), ("4",))),
        "prefix": (
            [[3, 0], [4, 5]],
            ([3, 4], [[3], [4], [5]], [[0, 3], [4, 5]], [[-1], [4]], [[2.5], [4.0]]),
        ),
        "max_lengths": ([0, 4], ([[0, 4]], 4, *ROWS)),
        "slot_ids": ((4, 5), ((4, 4), (0, 5), (2, 5), (1, 5), (-1, 5), (4.5, 5), range(1, 33), ())),
        "slots": ([3, 0], ([[3, 0]], 3, [4, 0], None, *ROWS)),
    },
    FunctionStep: {
        "function": (step, ("step", None)),
        "max_length": (1, (0, *NO_INTEGERS)),
        "num_beams": (1, (0, *NO_INTEGERS)),
    },
    Sampling: {
        "seed": (None, (1,)),  # beside noise
        "noise": ([[0.0], [0.5]], (None, [0.5], [[1.0]] * 2, [[-1e-6]] * 2, [[]] * 2, [["a"]])),
        "temperature": (1, (0, -1, np.float32(0), math.inf, *NO_REALS)),
        "top_k": (1, (0, np.int64(0), 1.5, np.float32(1), True, "1", [1.5, 2], [[1], [1]])),
        "top_p": (1, (0, 1.001, np.float32(0), *NO_REALS)),
    },
    decoding.search: {
        "step": (
            step,
            (
                "step",
                FunctionStep(step, max_length=3),
                FunctionStep(step, num_beams=3),
                lambda tokens, cache: step(tokens, cache, TABLE[:3]),
                lambda tokens, cache: step(tokens, cache, TABLE[:, :2]),
                lambda tokens, cache: step(tokens, cache, TABLE[0]),
            ),
        ),
        "cache": (np.zeros((4, 1), "float32"), (np.zeros((2, 1)), np.zeros((6, 1)))),
        "config": (CONFIG, ({}, None)),
        "examples": (
            EXAMPLES,
            (
                {},
                examples(bos_ids=[2, VOCAB]),
                examples(eos_id=VOCAB),
                examples(banned_ids=(VOCAB,)),
                examples(slot_ids=(VOCAB,), slots=[0, 0]),
                examples(prefix=[[VOCAB], [0]]),
                examples(max_lengths=[4, 5]),
            ),
        ),
        "choose": (None, (Sampling(seed=1),)),  # with beams
        "num_certain": (1, (0, BEAMS + 1, 1.5, [1], "1", np.int64(0))),
    },
    decoding.length_penalty: {
        "lengths": ([0, 7], ([-1, 7], [1.5, 7], ["7"])),
        "alpha": (0, (-1e-6, math.inf, *NO_NUMBERS)),
        "offset": (0, (-1e-6, math.inf, *NO_NUMBERS)),
    },
    decoding.score: {
        "logits": (np.zeros((2, 1, 4)), [np.zeros(s) for s in ((2, 4), (2, 2, 4), (2, 1, 3))]),
        "target_ids": (
            [[3], [0]],
            ([3, 0], [[4], [0]], [[-1], [0]], [[1.5], [0]], [[3]], [[3, 0], [3, 0]]),
        ),
    },
    decoding.slots_due: {
        "source_ids": ([[7, 0]], ([7, 0], [[-1]], [[1.5]])),
        "source_slot_ids": ((7, 8), ((7,), (0, 8), (7.5, 8))),
        "target_slot_ids": ((3, 4), ((3,),)),
    },
}  # fmt: skip
# A class that holds results, one to derive from, and ids of any tokenizer: nothing to check.
UNCHECKED = {"DecodingResult", "DecodingStep", "banned_ids"}


def test_every_argument_has_a_range():
    named = {function.__name__: {*values} for function, values in RANGES.items()}
    for name in {*decoding.__all__} - UNCHECKED:
        assert named[name] == {*inspect.signature(getattr(decoding, name)).parameters}


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
    "sampling",
    [
        {"noise": [[0.5]] * 3},
        {"temperature": [1.0] * 3},
        {"top_k": [1] * 3},
        {"top_p": [1.0] * 3},
    ],
)
def test_sampling_has_the_rows_of_the_examples(sampling):
    choose = Sampling(**{"seed": None if "noise" in sampling else 1, **sampling})
    with pytest.raises(ValueError, match=r"must have shape \[batch=2.*received shape \(3,"):
        decoding.search(step, (), ONE_BEAM, EXAMPLES, choose=choose)


IN_LOOPS = pytest.mark.backends("tensorflow", "torch")  # JAX traces them: no value is known
CHOICES = [[[3], [3]], [3, 3, 3], [3.0, 3.0]]
CHOICES += [pytest.param(tokens, marks=IN_LOOPS) for tokens in ([VOCAB, 3], [-1, 3])]


@pytest.mark.parametrize("tokens", CHOICES)
def test_a_choice_is_one_token_for_each_row(tokens):
    def choose(log_probs, position, examples):
        return ops.convert_to_tensor(np.array(tokens))

    with pytest.raises(ValueError, match="choice"):
        decoding.search(
            lambda tokens, cache: step(tokens, cache, TABLE[:2]), (), ONE_BEAM, EXAMPLES,
            choose=choose,
        )  # fmt: skip


@pytest.fixture(scope="module")
def language():
    """A model of few weights, that has learned 9 positions."""
    config = TransformerConfig(
        target_vocab=VOCAB, joint_vocab=False, decoder_layers=1, d_model=8, num_heads=1, dff=8,
        positions="learned", max_length=9,
    )  # fmt: skip
    model = LanguageModel(config)
    randomize(model)
    model.set_weights([3 * weight for weight in model.get_weights()])
    return model


def test_no_prompt_and_no_number_outside_the_range_of_a_model(language):
    right = {"prompt": [[2, 3], [4, 0]], "num_beams": 2, "max_length": 8}
    language.start_after(**right)
    wrong = {
        "prompt": (
            [[0, 0], [4, 0]], [[0, 3], [4, 0]], [[2, VOCAB], [4, 0]], [[2, -1], [4, 0]], [2, 3],
            [[2.0, 3.0]], [[], []],
        ),
        "num_beams": (0, *NO_INTEGERS),
        "max_length": (0, 9, *NO_INTEGERS),  # the second token of a prompt takes one position of 9
    }  # fmt: skip
    copies = [optimize_for_decoding(language)] if keras.backend.backend() == "tensorflow" else []
    for model, (name, values) in itertools.product((language, *copies), wrong.items()):
        for value in values:
            with pytest.raises(ValueError, match=rf"{name}.*[Rr]eceived"):
                model.start_after(**{**right, name: value})
            if name != "prompt" and value != 9:
                with pytest.raises(ValueError, match=rf"{name}.*[Rr]eceived"):
                    model.start(2, **{"num_beams": 2, "max_length": 9, name: value})
    for model, batch in itertools.product((language, *copies), (-1, 2.5, True, "2")):
        with pytest.raises(ValueError, match=r"batch.*received"):
            model.start(batch, max_length=9)


@pytest.mark.parametrize("beams", [1, BEAMS])
def test_what_follows_a_prompt_does_not_depend_on_the_other_prompts(language, beams):
    """Nor on wrong ones, in a graph that cannot refuse them; and not on END inside a prompt."""
    eager, width = keras.backend.backend() == "torch", 5

    def run(prompts):
        step, state, bos_ids, prefix = language.start_after(prompts, beams, max_length=4)
        longest = step.max_length if eager else width - 1 + 4
        given = ops.sum(ops.cast(prefix != 0, "int32"), axis=1)
        result = decode(
            step, state, bos_ids=bos_ids, prefix=prefix, max_lengths=given + 4, eos_id=END,
            num_beams=beams, max_length=longest, banned_ids=(END,),
        )  # fmt: skip
        return result, given

    run = run if eager else compiled(run, xla=False)
    own, texts = [2, 4, END, 3, 5], []
    mates = [[2, 3, 4, 5, 3], [2, 4]], [[2], [2, 3, END]], [[], []], [[0, 0, 2, 3, 4], [2, 0, 3]]
    for others in mates[: 2 if eager else 4]:
        rows = [[*row, *[0] * width][:width] for row in (own, *others)]
        result, given = run(ops.convert_to_tensor(np.array(rows, "int32")))
        (tokens, log_prob, _), *_ = hypotheses(result, 0)
        texts.append(tokens[int(given[0]) :])
        assert math.isfinite(log_prob)
    assert len(texts[0]) == 4 and {*texts} == {texts[0]}


@pytest.mark.backends("tensorflow", "jax")  # the functions of torch are eager
def test_a_hypothesis_ends_where_the_positions_of_a_model_end(language):
    """Where only a run knows how many a prompt takes, so that nothing can be refused."""

    def run(prompts):
        step, state, bos_ids, _ = language.start_after(prompts, max_length=5)
        return decode(step, state, bos_ids=bos_ids, eos_id=END, max_length=9, min_length=9)

    result = compiled(run, xla=False)(ops.convert_to_tensor([[2, 3, 4, 3, 4]] * 2))
    assert to_numpy(result.lengths).tolist() == [[5], [5]]
    assert np.isfinite(to_numpy(result.log_probs)).all()
