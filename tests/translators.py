"""A translator small enough to be exported in a test, for all tests that need one."""

import functools
import json

import keras

from keras_tfmr import SubwordTokenizer, TransformerConfig, TranslationModel, Translator
from keras_tfmr.decoding import DecodingConfig

LINES = (
    "Bom dia! Onde fica a estação de comboios?",
    "O gato preto dorme em cima da mesa.",
    "Não sei o que dizer.",
    "Good morning! Where is the railway station?",
    "The black cat sleeps on the table.",
    "I do not know what to say.",
)


@functools.cache
def tokenizer():
    return SubwordTokenizer.learn(LINES * 3, vocab_size=330)


def tiny_model(**fields):
    """One layer on each side, with random weights that make it end some sentences early."""
    keras.utils.set_random_seed(3)
    size = tokenizer().vocab_size
    config = TransformerConfig(
        source_vocab=size, target_vocab=size, encoder_layers=1, decoder_layers=1, d_model=16,
        num_heads=2, dff=32,
    )  # fmt: skip
    model = TranslationModel(config.replace(**fields))
    # Larger weights: answers that depend on the source, and no two of them equally probable.
    model.set_weights([3 * weight for weight in model.get_weights()])
    return model


def greedy(log_probs, longest, end):
    """Greedy decoding by hand: ids, and their log-probability; `log_probs` of ids gives [vocab]."""
    ids, total = [], 0.0
    while len(ids) < longest and end not in ids:
        found = log_probs(ids)
        ids.append(int(found.argmax()))
        total += found[ids[-1]]
    return ids, total


class Plain(Translator):
    """A translator with two signatures only, which is exported in half the time."""

    names = ("translate", "score")

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.signatures = {name: self.signatures[name] for name in self.names}


def tiny_translator(model=None, *, kind=Translator, max_source_length=24, **decoding):
    decoding = {"num_beams": 3, "num_return_sequences": 2, "max_length": 12, **decoding}
    options = {"config": DecodingConfig(**decoding), "max_source_length": max_source_length}
    return kind(model or tiny_model(), tokenizer(), **options)


def write_run(folder, model=None, **arguments):
    """Writes what others read of a finished run of a model with these arguments; the folder."""
    model = model or tiny_model()
    (folder / "weights").mkdir(parents=True)
    model.save_weights(folder / "weights" / "best.weights.h5")
    tokenizer().save(folder / "tokenizer.model")
    described = {"kind": "transformer", "config": model.config.to_dict()}
    config = {"model": described, "arguments": arguments, "training": {}, "corpus": {}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "results.json").write_text("{}")
    return folder
