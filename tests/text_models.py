"""Text models small enough to be exported in a test, for all tests that need one."""

import functools
import json

import keras
import numpy as np
from formulas import log_softmax

import keras_tfmr
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.export import calibration
from keras_tfmr.finished import int8
from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.presets.models import ready_entry

LINES = (
    "Bom dia! Onde fica a estação de comboios?",
    "O gato preto dorme em cima da mesa.",
    "Não sei o que dizer.",
    "Good morning! Where is the railway station?",
    "The black cat sleeps on the table.",
    "I do not know what to say.",
)
# Difficult texts, which a model must answer without changing the answers for other texts.
ADVERSARIAL = (
    b"",
    b" \t\n",
    "Olá 👋🏽 👨‍👩‍👧‍👦!".encode(),
    b"Abra `a  b` em https://example.org/c, {nome}!",
    "مرحبا بالعالم".encode(),
    b"\xff\xfe caf\xe9 \xf0\x9f",
    b"nulo \x00 e \x07 sino",
    b"palavra " * 6250,  # 50,000 characters
)
LABELS = ["statement", "question", "exclamação"]


@functools.cache
def tokenizer(symbols=()):
    size = 330 + len(symbols)
    return keras_tfmr.SubwordTokenizer.learn(LINES * 3, vocab_size=size, symbols=symbols)


def tiny(make, *arguments, seed=6, scale=2, **fields):
    """One layer on each side, with random weights.

    They are scaled: answers depend on the text, no two are equally probable, some end early.
    """
    keras.utils.set_random_seed(seed)
    size = tokenizer().vocab_size
    config = keras_tfmr.TransformerConfig(
        source_vocab=size, target_vocab=size, encoder_layers=1, decoder_layers=1, d_model=16,
        num_heads=2, dff=32,
    )  # fmt: skip
    model = make(config.replace(**fields), *arguments)
    model.set_weights([scale * weight for weight in model.get_weights()])
    return model


def tiny_model(**fields):
    return tiny(keras_tfmr.Transformer, seed=3, scale=3, **fields)


def allow_int8(monkeypatch):
    """Lets int8 take products as small as theirs, and weights that no training has rounded well."""
    monkeypatch.setattr(int8, "LEAST_WEIGHTS", 0)
    monkeypatch.setattr(calibration, "MOST_NATS", 1.0)


def by_hand(logits_of, longest, allowed=slice(None), prompt=()):
    """Greedy decoding by the full pass: ids with the end id, and their log-probability.

    `logits_of` gives the logits [vocab] behind ids [1, length]: the start id, a prompt and what is
    decoded. Their softmax is over the allowed ids, of which padding, unknown and start are never
    chosen.
    """
    end, ids, total = tokenizer().eos_id, [], 0.0
    never = [tokenizer().pad_id, tokenizer().unknown_id, tokenizer().bos_id]
    while len(ids) < longest and end not in ids:
        fed = np.array([[tokenizer().bos_id, *prompt, *ids]], "int32")
        logits = np.array(logits_of(fed), "float64")
        log_probs = np.full(len(logits), -np.inf)
        log_probs[allowed] = log_softmax(logits[allowed])
        log_probs[never] = -np.inf
        ids.append(int(log_probs.argmax()))
        total += log_probs[ids[-1]]
    return ids, total


@keras.saving.register_keras_serializable(package="tests")
class Plain(keras_tfmr.Translator):
    """A translator with two signatures only, which is exported in half the time."""

    names = ("translate", "score")

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.signatures = {name: self.signatures[name] for name in self.names}
        self.default = self.names[0]


def tiny_translator(
    model=None, *, kind=keras_tfmr.Translator, symbols=(), max_source_length=24, **decoding
):
    if model is None:
        size = tokenizer(symbols).vocab_size
        model = tiny_model(source_vocab=size, target_vocab=size)
    decoding = {"num_beams": 3, "num_return_sequences": 2, "max_length": 12, **decoding}
    options = {"config": DecodingConfig(**decoding), "max_source_length": max_source_length}
    return kind(model, tokenizer(symbols), **options)


def write_run(folder, symbols=(), arguments=(), **options):
    """Writes what others read of a finished run of a translator with these options; the folder.

    `arguments` are settings of its training.
    """
    size = tokenizer(symbols).vocab_size
    model, preset = tiny_model(source_vocab=size, target_vocab=size), PresetFolder(folder)
    preset.best.parent.mkdir(parents=True)
    model.save_weights(preset.best)
    tokenizer(symbols).save(preset.joint_tokenizer)
    config = {
        "model": ready_entry(keras_tfmr.Transformer, model.config),
        "text_model": {"class_name": "keras_tfmr>Translator", "config": options},
        "tokenizers": preset.tokenizer_entries((tokenizer(symbols),) * 2),
        "arguments": dict(arguments),
    }
    preset.config.write_text(json.dumps(config))
    preset.results.write_text("{}")
    return folder


def classifier(labels=LABELS, **options):
    model = tiny(keras_tfmr.TransformerClassifier, len(labels), activation="silu")
    return keras_tfmr.Classifier(model, tokenizer(), labels, **{"max_length": 24, **options})


def completer(**options):
    """Of a model that has learned as many positions as are needed."""
    model = tiny(keras_tfmr.TransformerLanguageModel, positions="learned", max_length=44)
    options = {"max_length": 24, "max_new_tokens": 20, **options}
    return keras_tfmr.Completer(model, tokenizer(), **options)


KINDS = {
    "classifier": classifier, "completer": completer,
    "translator": lambda: tiny_translator(kind=Plain),
}  # fmt: skip
