"""The language model: prompts and room while decoding."""

import functools

import keras
import numpy as np
import pytest
from helpers import randomize, to_numpy

from keras_tfmr import LanguageModel, TransformerConfig
from keras_tfmr.decoding import beam_search, greedy

VOCAB = 5
CONFIG = TransformerConfig.preset("tiny", source_vocab=VOCAB, target_vocab=VOCAB)


def model_of(**fields):
    model = LanguageModel(CONFIG.replace(**fields))
    randomize(model)
    return model


@pytest.mark.parametrize(
    "fields, beams, compiled",
    [
        ({}, 3, True),
        ({"positions": "rotary", "num_kv_heads": 1}, 1, False),
        ({"positions": "relative"}, 3, False),
    ],
)
def test_prompts_read_in_one_pass_go_on_as_token_by_token(fields, beams, compiled):
    model = model_of(**fields)
    prompts = np.array([[2, 4, 1, 4, 1], [2, 1, 1, 0, 0], [2, 2, 4, 4, 0]], "int32")
    common, new = 3, 20  # more than the first room of a cache
    search = functools.partial(
        beam_search, num_beams=beams, num_return_sequences=beams, eos_id=3, max_length=new
    )
    search_all = functools.partial(search, max_length=new + common - 1)

    def token_by_token(prompts):
        step, state = model.start(3, beams, max_length=new + common - 1)
        return search_all(step, state, bos_ids=prompts[:, 0], prefix=prompts[:, 1:])

    def in_one_pass(prompts):
        step, state, bos_ids, prefix = model.start_after(prompts, beams, max_length=new)
        step.shrinks = step.shrinks and not compiled
        return search(step, state, bos_ids=bos_ids, prefix=prefix)

    if compiled and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        in_one_pass = tf.function(in_one_pass, jit_compile=True)
    expected, result = token_by_token(prompts), in_one_pass(keras.ops.convert_to_tensor(prompts))
    np.testing.assert_array_equal(result.ids, to_numpy(expected.ids)[:, :, common - 1 :])
    read = to_numpy(model.log_prob(prompts[:, :common]))[:, None]
    np.testing.assert_allclose(to_numpy(result.log_probs) + read, expected.log_probs, atol=1e-4)


def test_decoding_past_its_room_is_an_error():
    """It would go on with a cache that has no place for what is new."""
    step, state = model_of().start(2, max_length=3)
    with pytest.raises(ValueError, match="max_length=3 tokens; received max_length=4"):
        greedy(step, state, bos_ids=[1, 1], eos_id=2, max_length=4)
