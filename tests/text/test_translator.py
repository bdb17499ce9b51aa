"""Strings in, strings out: against the model's own full forward pass, alone and among others."""

import keras
import numpy as np
import pytest
from formulas import log_softmax
from own_models import of_ids, of_pictures
from text_models import LINES, Plain, by_hand, tiny_model, tiny_translator, tokenizer

from keras_tfmr import decoding
from keras_tfmr.compat import flatten_layers
from keras_tfmr.export import known_answers
from keras_tfmr.export.check import differences
from keras_tfmr.export.saved_session import SavedSession
from keras_tfmr.models.model_step import WholeSequenceStep

BLANK = ["", " ", "\t\r\n", "\u00a0\u3000", "\x00\x07"]


@pytest.fixture(scope="module")
def translator():
    return tiny_translator(max_source_length=64)


@pytest.fixture(scope="module")
def single():
    """Of one beam, with an end that its length may bring about."""
    lengths = {"max_length": 18, "max_length_ratio": 1.5, "max_source_length": 64}
    model = tiny_model(logits_bias=True)
    return tiny_translator(model, num_beams=1, num_return_sequences=1, **lengths)


def most_tokens(source):
    """At most max_length_ratio for each of the source, and eight more; max_length in all."""
    return min(18, int(1.5 * source.shape[1]) + 8)


def source_ids(text):
    return tokenizer().encode_truncated([text], 64)[0].numpy()


def test_greedy_is_the_full_forward_pass_repeated(single):
    for text in LINES[:2]:
        source = source_ids(text)

        def logits_of(ids, source=source):
            return single.model([source, ids])[0, -1]

        ids, log_prob = by_hand(logits_of, most_tokens(source))
        expected = tokenizer().decode(np.array([ids])).numpy()[0].decode()
        [translation] = single.translate([text])
        assert translation == expected
        penalty = ((5 + len(ids)) / 6) ** single.config.length_penalty
        assert translation.score == pytest.approx(log_prob / penalty, abs=1e-4)


def test_scores_are_teacher_forced_log_probabilities(translator):
    references = [*LINES[3:], "", "the cat " * 50]
    texts = [*LINES[:3], LINES[0], LINES[0]]
    for text, reference, found in zip(
        texts, references, translator.score(texts, references), strict=True
    ):
        ids = tokenizer().encode_truncated([reference], 12)[0].numpy()[0]
        target = np.array([[tokenizer().bos_id, *ids[:-1]]], "int32")
        logits = translator.model([source_ids(text), target]).numpy()[0]
        expected = log_softmax(logits.astype("float64"))[np.arange(len(ids)), ids].sum()
        assert found.log_prob == pytest.approx(expected, abs=1e-4)
        assert found.tokens == len(ids)


def test_explanation_is_the_attention_that_the_translation_was_made_with(translator):
    text = LINES[1]
    explanation = translator.explain([LINES[0], text, ""])[1]
    source = source_ids(text)
    assert explanation.source_tokens == [t.decode() for t in tokenizer().pieces(source).numpy()[0]]
    ids = [int(tokenizer()._ops.string_to_id(token)) for token in explanation.target_tokens]
    decoded = tokenizer().decode(np.array([ids])).numpy()[0].decode()
    assert [decoded] == translator.translate([text])
    shifted = np.array([[tokenizer().bos_id, *ids[:-1]]], "int32")
    _, scores = translator.model.explain(source, shifted)
    for name, layers in zip(
        ("attention_heads", "encoder_heads", "decoder_heads"), scores, strict=True
    ):
        expected = np.stack([layer.numpy()[0] for layer in layers])
        np.testing.assert_allclose(getattr(explanation, name), expected, atol=1e-5)


def test_blank_texts_have_the_empty_translation(translator):
    assert translator.translate(BLANK) == [""] * len(BLANK)
    for found in (
        translator.translate(BLANK),
        *zip(*translator.translate_nbest(BLANK), strict=True),
    ):
        assert [(one.text, one.score, one.truncated) for one in found] == [("", 0.0, False)] * 5
    assert translator.explain([""])[0].target_tokens == []


def test_long_lists_come_back_in_order(single):
    texts = [" ".join(line.split()[: 1 + i % 5]) for i in range(4) for line in LINES]
    alone = [single.translate([text])[0] for text in texts]
    assert single.translate(texts, batch_size=7) == alone
    assert single.translate([]) == []
    assert single.translate([texts[0].encode()]) == alone[:1]
    single.translate(["a\ud800b"])[0].encode("utf-8")


def test_what_does_not_fit_is_an_error(translator, monkeypatch):
    for texts, said in (("Bom dia!", "Received: 'Bom dia!'"), (["a", 3], "an element of int")):
        with pytest.raises(TypeError, match=said):
            translator.translate(texts)
    with pytest.raises(ValueError, match="2 texts, 1 references"):
        translator.score(["a", "b"], ["c"])
    with pytest.raises(ValueError, match=r"end at max_length=10\. Received"):
        tiny_translator(tiny_model(positions="learned", max_length=10))
    with pytest.raises(ValueError, match="300 source ids"):
        tiny_translator(tiny_model(source_vocab=300, target_vocab=300))
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="'jax'"):
        tiny_translator(translator.model)


def lora(model):
    """LoRA in every layer that has it, with weights that matter."""
    for layer in flatten_layers(model):
        if isinstance(layer, (keras.layers.Dense, keras.layers.Embedding)):
            layer.enable_lora(2)
    for weight in model.weights:
        if "lora" in weight.name:
            weight.assign(0.5 * np.ones(weight.shape))


@pytest.mark.ci
@pytest.mark.parametrize("change", [lora, lambda model: model.quantize("int8")])
def test_other_weights_in_the_layers_are_followed(change, tmp_path):
    """By a translator that has answered, and by the preset it writes."""
    translator = tiny_translator(kind=Plain, num_beams=1, num_return_sequences=1)
    before = [one.log_prob for one in translator.score(LINES, LINES[::-1])]
    change(translator.model)
    after = [one.log_prob for one in translator.score(LINES, LINES[::-1])]
    assert np.abs(np.subtract(before, after)).max() > 1e-3
    expected = translator.replace().score(LINES, LINES[::-1])
    np.testing.assert_allclose(after, [one.log_prob for one in expected], atol=1e-4)
    assert translator.translate(LINES) == translator.replace().translate(LINES)
    if change is lora:
        loaded = Plain.from_preset(translator.save_to_preset(tmp_path / "preset"))
        found = loaded.score(LINES, LINES[::-1])
        np.testing.assert_allclose([one.log_prob for one in found], after, atol=1e-3)


@pytest.mark.ci
def test_a_model_of_ones_own_is_translated_with_and_exported(tmp_path):
    model = of_ids(tokenizer().vocab_size)
    translator = tiny_translator(model, kind=Plain)
    for text, found in zip(LINES, translator.translate(LINES), strict=True):
        source = tokenizer().encode_truncated([text], 24)[0].numpy()
        step = WholeSequenceStep(model, 3, 12)
        ids = decoding.search(
            step, step.start([source], 1), translator.config,
            decoding.Examples(
                [tokenizer().bos_id], tokenizer().eos_id,
                banned_ids=decoding.banned_ids(tokenizer()),
                max_lengths=translator.config.max_lengths([source.shape[1]]),
            ),
        ).ids[:, 0]  # fmt: skip
        assert tokenizer().decode(ids).numpy()[0].decode() == found
    path = translator.export(tmp_path, check=False)
    with SavedSession(path) as session:
        for case in known_answers.cases(translator, [line.encode() for line in LINES]):
            assert differences(session, case, 1e-3) == []


def test_a_model_that_cannot_be_decoded_is_refused():
    model = of_ids(tokenizer().vocab_size)
    with pytest.raises(ValueError, match=r"must be a TranslationModel.*Received: Functional"):
        tiny_translator(keras.Model(model.inputs, model.outputs))
    with pytest.raises(ValueError, match=r"two inputs of int32 ids.*pictures float32"):
        tiny_translator(of_pictures())


def test_a_model_that_does_not_end_stops_in_proportion_to_its_source(single):
    bias = single.model.get_layer("embedding").bias
    before, words = bias.numpy(), np.zeros(bias.shape, "float32")
    word = tokenizer().encode(["gato"]).to_list()[0][-1]
    words[word] = 500  # which it says for ever
    bias.assign(words)
    said = tokenizer().pieces(np.array([word])).numpy()[0].decode()
    texts = ["Bom", LINES[0], LINES[0] + LINES[1]]
    for text, translation in zip(texts, single.translate(texts), strict=True):
        assert translation.count(said) == most_tokens(source_ids(text))
    bias.assign(before)


def test_a_document_is_its_sentences_in_its_white_space(translator):
    first, second, third = LINES[1:4:2] + LINES[5:]
    documents = [f" {first}  {second}\r\n\r\n\t- {third}\n", "", " \n", second, first]
    one, two, three = translator.translate([first, "Good morning!", third])
    station = translator.translate(["Where is the railway station?"])[0]
    found = translator.translate_document(documents)
    assert found[0][:3] == (f" {one}  {two} {station}\r\n\r\n\t- {three}\n", 4, False)
    assert found[1:3] == [("", 0, False, []), (" \n", 0, False, [(" \n", " \n")])]
    assert found[3][:3] == (f"{two} {station}", 2, False) and found[4][:3] == (one, 1, False)
    for document, (text, sentences, _, pieces) in zip(documents, found, strict=True):
        sources, targets = zip(*pieces, strict=True) if pieces else ((), ())
        assert ("".join(sources), "".join(targets)) == (document, text)
        assert sum(source.strip(" \r\n\t-") != "" for source in sources) == sentences
    assert (first, one) in found[0].pieces and (third, three) in found[0].pieces
    assert translator.translate_document([]) == []


@pytest.mark.ci
def test_a_long_document_is_translated_whole_and_in_order(translator):
    lines = [line for line in LINES[1:] if "!" not in line] * 30
    translations = translator.translate(lines)
    (found,) = translator.translate_document(["\n".join(lines)])
    assert found[:3] == ("\n".join(translations), len(lines), False)
    assert found.pieces[::2] == [*zip(lines, translations, strict=True)]
    (found,) = translator.translate_document(["gato " * 500])  # a sentence too long for the model
    assert found.sentences > 10 and not found.truncated
