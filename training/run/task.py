"""The task of translation: its model, its loss and its evaluation, independent of the run."""

from keras import ops

from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.losses import real_tokens, smoothed_cross_entropy
from training.prepare import Pairs, prepare
from training.report.evaluation import Evaluator, spread
from training.run.finish import finish
from training.run.models import make_config, make_model, read_config
from training.run.start import opened


class Translation:
    """Learns the target side of sentence pairs from the source side.

    Other tasks are classes with the same members: session, loop, trainers, checkpoints and workers
    use no others.

    Args:
        settings: A resolved `TrainingConfig`.

    Attributes:
        kind: Name of the model, for config.json.
        start: The `Start` whose model, weights and tokenizers are used, or None.
        scores: Names of the evaluator's scores. The first one chooses the weights; greater is
            better.
    """

    scores = ("bleu", "chrf")

    def __init__(self, settings):
        self.settings = settings
        self.kind = settings.model
        self.start = opened(settings.start_from) if settings.start_from else None

    def prepare(self, claim):
        """The `prepare.Data`: batches, validation pairs, tokenizers and others."""
        known = self.start and self.start.tokenizers()
        data = prepare(self.settings, claim, Pairs(self.settings, known))
        self.tokenizers = data.tokenizers
        return data

    def config(self, data=None):
        """The model's config; without data, with the vocabulary size of the settings, as a check.

        Raises:
            ValueError: If the settings contradict each other.
        """
        if self.start:
            fields = {**self.start.config, "dropout_rate": self.settings.dropout_rate}
            if self.settings.extend_vocab and data:
                sides = (side.vocab_size for side in data.tokenizers)
                fields |= dict(zip(("source_vocab", "target_vocab"), sides, strict=True))
            return read_config(self.kind, fields)
        return self.new_config(data)

    def new_config(self, data=None):
        """The config that the settings ask for, wherever the training begins."""
        asked = self.settings.vocab_size
        sizes = [side.vocab_size for side in data.tokenizers] if data else [asked, asked]
        return make_config(self.settings, *sizes)

    def model(self, config, precision="float32"):
        """A new model with the weights that training begins from."""
        model = make_model(self.kind, config, precision)
        if self.start:
            self.start.assign(model, self.tokenizers if self.settings.extend_vocab else None)
        return model

    def sums(self, model, batch):
        """The sums of a batch for an update, float32 scalars.

        Args:
            model: The model in training.
            batch: `((source, target_in), target_out)`, int32 `[rows, length]` each.

        Returns:
            loss: The loss, summed over real tokens; the update follows its gradient.
            weight: Number of real tokens, by which the update divides.
            right: Number of real tokens that were predicted correctly.
        """
        inputs, labels = batch
        logits = model(inputs, training=True)  # [rows, length, vocab]
        weight = real_tokens(labels)  # [rows, length]
        losses = smoothed_cross_entropy(labels, logits, self.settings.label_smoothing)
        found = ops.cast(ops.argmax(logits, axis=-1), labels.dtype)
        right = weight * ops.cast(ops.equal(found, labels), "float32")
        return ops.sum(losses * weight), ops.sum(weight), ops.sum(right)

    def evaluator(self, model, data, workers):
        """The evaluator during training: `measure()` gives scores and texts."""
        pairs = spread(data.validation, self.settings.evaluate_pairs)
        return Evaluator(model, data.tokenizers, pairs, DecodingConfig(num_beams=1), workers)

    def finish(self, run, data):
        """Evaluates, reports and exports a trained run."""
        finish(run, data)
