"""The presets of a training run: for each model and size, what trains it well.

Nothing here imports Keras.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of a preset; the right rate depends on depth, width and place of the norm.

    Fields:
        learning_rate: The rate at the end of the warm-up.
        warmup_steps: Number of updates in the warm-up.
        schedule: How the rate falls after the warm-up.
        tokens_per_batch: Target positions in a batch.
        gradient_accumulation_steps: Batches in an update.
        dropout_rate: Fraction of the values dropped in training.
        norm_first: Pre-norm instead of post-norm; None for models that have neither.
        clip_norm: Maximum global norm of the gradient; 0 for no limit.
    """

    learning_rate: float
    warmup_steps: int
    schedule: str
    tokens_per_batch: int
    gradient_accumulation_steps: int
    dropout_rate: float
    norm_first: bool | None
    clip_norm: float

    def defaults(self):
        """{setting: value}."""
        return dataclasses.asdict(self)

    def for_tuning(self):
        """{setting: value} for fine-tuning: a lower rate, reached after a short warm-up.

        Each batch is an update, so that a budget of minutes has hundreds; Adam's rate for smaller
        batches falls by the root of their size (arXiv 2205.10287).
        """
        batches = self.gradient_accumulation_steps
        return {
            "learning_rate": round(self.learning_rate / 3 / batches**0.5, 7),
            "warmup_steps": 100, "schedule": "cosine", "gradient_accumulation_steps": 1,
        }  # fmt: skip


def noam_peak(d_model, warmup_steps):
    """The peak of the paper's schedule, d_model^-0.5 · warmup^-0.5 (arXiv 1706.03762, 5.3)."""
    return round((d_model * warmup_steps) ** -0.5, 7)


# Measured on 50,769 pairs of Tatoeba: benchmarks/README.md.
SMALL = Recipe(
    learning_rate=3e-3, warmup_steps=800, schedule="cosine", tokens_per_batch=1024,
    gradient_accumulation_steps=1, dropout_rate=0.1, norm_first=True, clip_norm=1.0,
)  # fmt: skip
# arXiv 1706.03762: 25,000 target tokens an update.
BASE = Recipe(
    learning_rate=noam_peak(512, 4000), warmup_steps=4000, schedule="noam", tokens_per_batch=4096,
    gradient_accumulation_steps=6, dropout_rate=0.1, norm_first=False, clip_norm=0.0,
)  # fmt: skip
RECURRENT = dataclasses.replace(SMALL, norm_first=None)
PAPER = dataclasses.replace(RECURRENT, dropout_rate=0.0)  # Cho, Bahdanau et al.: no dropout
RECIPES = {
    "transformer": {
        "small": SMALL,
        "tiny": SMALL,  # for tests
        # TensorFlow's tutorial: batches of 64 sentences of up to 128 tokens.
        "tutorial": dataclasses.replace(
            BASE, learning_rate=noam_peak(128, 4000), gradient_accumulation_steps=1
        ),
        "base": BASE,
        "big": dataclasses.replace(BASE, learning_rate=noam_peak(1024, 4000), dropout_rate=0.3),
    },
    "seq2seq": {"small": RECURRENT, "tiny": RECURRENT, "tutorial": RECURRENT, "paper": PAPER},
    "rnnsearch": {"small": RECURRENT, "tiny": RECURRENT, "tutorial": RECURRENT, "paper": PAPER},
    "convolutional": {"small": RECURRENT, "tiny": RECURRENT, "tutorial": RECURRENT},
}  # fmt: skip
