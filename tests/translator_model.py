"""A SavedModel with a translator's signatures and no model: its English is the text in capitals."""

import pathlib

import tensorflow as tf

SPEC = tf.TensorSpec([None], tf.string, "text")


class Capitals(tf.Module):
    """What `export_text_model` writes, as far as a client can tell: names, types and shapes."""

    @tf.function(input_signature=[SPEC])
    def translate(self, text):
        length = tf.strings.length(text, unit="UTF8_CHAR")
        return {
            "translation": english(text),
            "score": -tf.cast(length, tf.float32) / 8,
            "truncated": length > 200,
        }

    @tf.function(input_signature=[SPEC])
    def translate_nbest(self, text):
        best = english(text)
        scores = tf.tile([[0.0, -0.25, tf.float32.min]], [tf.size(text), 1])
        return {
            "translations": tf.stack([best, best + "!", tf.fill(tf.shape(text), "")], 1),
            "scores": scores,
            "truncated": tf.strings.length(text, unit="UTF8_CHAR") > 200,
        }

    @tf.function(input_signature=[SPEC])
    def translate_document(self, text):
        return {
            "translation": english(text),
            "sentences": tf.ones_like(text, tf.int32),
            "truncated": tf.strings.length(text, unit="UTF8_CHAR") > 200,
            "source_pieces": text[:, None],
            "target_pieces": english(text)[:, None],
        }

    @tf.function(input_signature=[SPEC, tf.TensorSpec([None], tf.string, "reference")])
    def score(self, text, reference):
        tokens = tf.strings.split(reference).row_lengths()
        return {
            "log_prob": -0.5 * tf.cast(tokens, tf.float32),
            "tokens": tf.cast(tokens, tf.int32),
            "truncated": tf.strings.length(text, unit="UTF8_CHAR") > 200,
        }

    @tf.function(input_signature=[SPEC])
    def explain(self, text):
        words = tf.strings.split(text).to_tensor("")
        real = tf.cast(words != "", tf.float32)
        eye = tf.eye(tf.shape(words)[1]) * real[:, :, None]  # [batch, target, source]
        return {
            "source_tokens": words,
            "target_tokens": english(words),
            "attention": eye,
            "attention_heads": tf.tile(eye[:, None, None], [1, 2, 2, 1, 1]),
        }


def english(text):
    return tf.strings.upper(text, encoding="utf-8")


def save(base_path, version):
    """Saves it as a version; returns the version's folder."""
    model = Capitals()
    names = ("translate", "translate_nbest", "translate_document", "score", "explain")
    signatures = {name: getattr(model, name) for name in names}
    path = pathlib.Path(base_path) / str(version)
    tf.saved_model.save(model, str(path), {"serving_default": model.translate, **signatures})
    return path
