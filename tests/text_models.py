"""Text models small enough to be exported in a test, one of each kind beside the translator."""

import keras
from translators import tokenizer

from keras_tfmr import (
    Classifier,
    Completer,
    LanguageModel,
    SequenceClassifier,
    Tagger,
    TokenClassifier,
    TransformerConfig,
)

LABELS = ["statement", "question", "exclamação"]
TAGS = ["NOUN", "VERB", "SIGN", "OTHER"]


def tiny(model_class, *arguments, **fields):
    """One layer with random weights, large enough for answers that depend on the text."""
    keras.utils.set_random_seed(5)
    size = tokenizer().vocab_size
    config = TransformerConfig(
        source_vocab=size, target_vocab=size, encoder_layers=1, decoder_layers=1, d_model=16,
        num_heads=2, dff=32,
    )  # fmt: skip
    model = model_class(config.replace(**fields), *arguments)
    model.set_weights([2 * weight for weight in model.get_weights()])
    return model


def classifier(labels=LABELS, **options):
    model = tiny(SequenceClassifier, len(labels))
    return Classifier(model, tokenizer(), labels, **{"max_length": 24, **options})


def tagger(**options):
    model = tiny(TokenClassifier, len(TAGS))
    return Tagger(model, tokenizer(), TAGS, **{"max_length": 24, **options})


def completer(**options):
    options = {"max_length": 24, "max_new_tokens": 20, **options}
    return Completer(tiny(LanguageModel), tokenizer(), **options)
