"""The word embeddings of the translators."""

import keras


def embeddings(config):
    """The word embeddings of source and target; the same layer twice for a joint vocabulary."""
    if config.joint_vocab:
        embedding = _embedding(config.target_vocab, config, "embedding")
        return embedding, embedding
    source = _embedding(config.source_vocab, config, "source_embedding")
    return source, _embedding(config.target_vocab, config, "target_embedding")


def _embedding(vocab_size, config, name):
    return keras.layers.Embedding(vocab_size, config.embedding_dim, mask_zero=True, name=name)
