"""RNNsearch, the recurrent encoder–decoder with attention."""

import keras
from keras import ops

from keras_tfmr.decoding import FunctionStep
from keras_tfmr.layers import LMHead
from keras_tfmr.models import AttentionScores
from keras_tfmr.models._parts import ConfiguredModel, at_least_one_column
from keras_tfmr.recurrent._embeddings import embeddings
from keras_tfmr.recurrent.aligned_decoder import AlignedDecoder, Maxout
from keras_tfmr.recurrent.config import RNNSearchConfig
from keras_tfmr.recurrent.gated_unit import BidirectionalEncoder


@keras.saving.register_keras_serializable(package="keras_tfmr")
class RNNSearchModel(ConfiguredModel, keras.Model):
    """RNNsearch: from source and target ids to the logits of each next target token.

    It has a bidirectional encoder, a decoder that aligns before each word, and a maxout layer. It
    is called, trained, decoded and exported like a `TranslationModel`.

    Args:
        config: An `RNNSearchConfig`.

    Call arguments:
        inputs: A list of `source_ids` int `[batch, source]` and `target_ids` int
            `[batch, target]`, both padded with 0.

    Returns:
        float32 logits `[batch, target, vocab]`; the ones at position t predict token t + 1.

    Reference: Bahdanau, Cho, Bengio 2015, Neural Machine Translation by Jointly Learning to
    Align and Translate (arXiv 1409.0473).

    >>> from keras_tfmr.recurrent import RNNSearchConfig
    >>> model = RNNSearchModel(RNNSearchConfig.preset("tiny", source_vocab=50, target_vocab=50))
    >>> model([np.array([[5, 7, 3]]), np.array([[2, 9]])]).shape
    TensorShape([1, 2, 50])
    """

    config_class = RNNSearchConfig

    def __init__(self, config, name="rnnsearch"):
        source_ids = keras.Input((None,), dtype="int32", name="source_ids")
        target_ids = keras.Input((None,), dtype="int32", name="target_ids")
        source, target = embeddings(config)
        dropout = keras.layers.Dropout(config.dropout_rate, name="dropout")
        encoder, decoder = self.make_encoder(config), self.make_decoder(config)
        maxout = Maxout(config.maxout_units, name="maxout")
        logits = LMHead(config.target_vocab, name="logits")
        annotations = encoder(dropout(source(source_ids)))  # [batch, source, 2 * units]
        features = decoder(dropout(target(target_ids)), annotations)
        outputs = logits(dropout(maxout(features)))  # [batch, target, vocab]
        super().__init__(inputs=[source_ids, target_ids], outputs=outputs, name=name)
        self.config = config
        self.source_embedding, self.target_embedding = source, target
        self.encoder, self.decoder = encoder, decoder
        self.maxout, self.logits = maxout, logits

    @staticmethod
    def make_encoder(config):
        """The layer from embedded words to annotations."""
        return BidirectionalEncoder(config.units, name="encoder")

    @staticmethod
    def make_decoder(config):
        """The layer from embedded words and annotations to the output layer's features."""
        return AlignedDecoder(config.units, config.alignment_units, name="decoder")

    def start(self, source_ids, num_beams=1, *, max_length):
        """Encodes the source and starts decoding, one token at a time.

        Args:
            source_ids: int tensor `[batch, source]`, padded with 0.
            num_beams: Number of hypotheses per sentence.
            max_length: Not used: a recurrent state has no maximum length.

        Returns:
            A `DecodingStep` over rows = batch * num_beams, and its first state, whose leaf is
            `[rows, units]`.
        """
        annotations, mask = self._annotations(source_ids)
        keys, values = self.decoder.read(annotations)
        start = self.decoder.start(annotations, mask)
        units, width = self.decoder.units, values.shape[-1]

        def step(tokens, state):
            s = state["s"]
            y = self.target_embedding(tokens[:, None])[:, 0]  # [rows, embedding_dim]
            queries = ops.reshape(s, (-1, num_beams, units))
            context, _ = self.decoder.alignment(queries, values, keys, annotations_mask=mask)
            context = ops.reshape(context, (-1, width))  # [rows, width]
            features = ops.concatenate([s, y, context], axis=-1)
            logits = self.logits(self.maxout(features))  # [rows, vocab]
            s = self.decoder.step(self.decoder.word_dense(y), s, context)
            return ops.log_softmax(logits, axis=-1), {"s": s}

        return FunctionStep(step), {"s": ops.repeat(start, num_beams, axis=0)}

    def explain(self, source_ids, target_ids):
        """The logits, and what each target position was aligned to.

        Args:
            source_ids: int tensor `[batch, source]`, padded with 0.
            target_ids: int tensor `[batch, target]`, padded with 0.

        Returns:
            float32 logits `[batch, target, vocab]` and `AttentionScores` whose `cross` are the
            alignments `[batch, 1, target, source]`, in the form of one layer with one head.
        """
        annotations, mask = self._annotations(source_ids)
        features, scores = self.decoder(
            self.target_embedding(target_ids),
            annotations,
            annotations_mask=mask,
            return_attention_scores=True,
        )
        return self.logits(self.maxout(features)), AttentionScores([scores[:, None]])

    def _annotations(self, source_ids):
        source_ids = at_least_one_column(source_ids)
        mask = ops.not_equal(source_ids, 0)  # [batch, source]
        return self.encoder(self.source_embedding(source_ids), mask=mask), mask
