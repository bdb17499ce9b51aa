"""What a type checker makes of the library's use. Read by mypy (see .ci/run), never run."""

import pathlib
from typing import assert_type

import keras_tfmr
from keras_tfmr import SubwordTokenizer, TransformerConfig, Translator
from keras_tfmr.client import (
    Classification,
    Document,
    Explanation,
    Likelihood,
    ServingClient,
    Translation,
)
from keras_tfmr.config import Tensor
from keras_tfmr.decoding import DecodingConfig, DecodingResult, Examples, Sampling, search


def ask(client: ServingClient) -> None:
    assert_type(client.translate(["bom dia"]), list[Translation])
    assert_type(client.translate_nbest(["bom dia"]), list[list[Translation]])
    assert_type(client.translate_document(["bom dia"]), list[Document])
    assert_type(client.score(["bom dia"], ["good day"]), list[Likelihood])
    assert_type(client.explain(["bom dia"]), list[Explanation])
    assert_type(client.classify(["O Tom dorme"]), list[Classification])
    assert_type(client.status(), list[tuple[int, str, str]])
    client.translate([1])  # type: ignore[list-item]
    client.complete(["era"], length="9")  # type: ignore[arg-type]
    client.score(["bom dia"])  # type: ignore[call-arg]
    ServingClient("localhost:8500", batch_size="8")  # type: ignore[arg-type]
    with client as same:
        assert_type(same, ServingClient)


def translate(model: keras_tfmr.TranslationModel, tokenizer: SubwordTokenizer) -> None:
    translator = Translator(model, tokenizer, config=DecodingConfig(num_beams=1))
    assert_type(translator.translate(["bom dia"], language="por"), list[Translation])
    assert_type(translator.translate_nbest(["bom dia"]), list[list[Translation]])
    assert_type(translator.export("models"), pathlib.Path)
    assert_type(Translator.from_preset("runs/mine", num_beams=1), Translator)
    translator.save_to_preset(7)  # type: ignore[arg-type]
    translator.export("models", precision=16)  # type: ignore[arg-type]


def decode(step: keras_tfmr.decoding.DecodingStep) -> None:
    config, examples = DecodingConfig(num_beams=4, max_length=8), Examples([2], eos_id=3)
    assert_type(search(step, (), config, examples), DecodingResult)
    search(step, (), config.replace(num_beams=1), examples, choose=Sampling(seed=1))
    Examples([2], eos_id=3.5)  # type: ignore[arg-type]


def configure() -> None:
    config = TransformerConfig.preset("base", source_vocab=8000)
    assert_type(config.replace(dff=64), TransformerConfig)
    TransformerConfig(dff="wide")  # type: ignore[arg-type]


def build(config: TransformerConfig, ids: Tensor) -> None:
    keras_tfmr.EncoderLayer(8, 2, 16, num_kv_heads=1, norm=keras_tfmr.RMSNormalization())
    keras_tfmr.Decoder(2, 8, 2, 16, dropout=0.1)  # type: ignore[call-arg]
    keras_tfmr.Encoder(2, 8, 2, 16, norm_first="no")  # type: ignore[arg-type]
    keras_tfmr.FeedForward(8, 16, name=3)  # type: ignore[arg-type]
    keras_tfmr.GlobalSelfAttention(2, 4, num_kv_heads="one")  # type: ignore[arg-type]
    model = keras_tfmr.Transformer(config)
    assert_type(model, keras_tfmr.TranslationModel)
    model.compile("adam", keras_tfmr.LabelSmoothedCrossEntropy(0.1))
    model.start(ids, max_length="8")  # type: ignore[arg-type]
    assert_type(model.explain(ids, ids)[1], keras_tfmr.models.AttentionScores)
    keras_tfmr.recurrent.RNNSearchModel(config)  # type: ignore[arg-type]
