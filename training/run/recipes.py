"""The presets: the sizes of a model and its training recipe.

The right learning rate depends on depth, width and the place of the normalisation: a post-norm
model of six layers does not learn at the peak rate of a small pre-norm model.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of a preset, for those that the command line does not set.

    Fields:
        learning_rate: The rate at the end of the warm-up.
        warmup_steps: Number of updates in the warm-up.
        schedule: How the rate falls after the warm-up.
        tokens_per_batch: Target positions in a batch.
        accumulate: Batches in an update.
        dropout_rate: Share of the values dropped in training.
        norm_first: Pre-norm instead of post-norm; None for models that have neither.
        clip_norm: Maximum global norm of the gradient; 0 for no limit.
        sizes: Fields of the model's config that differ from its preset of that name.
        source: Where the values are from.
    """

    learning_rate: float
    warmup_steps: int
    schedule: str
    tokens_per_batch: int
    accumulate: int
    dropout_rate: float
    norm_first: bool | None
    clip_norm: float
    sizes: dict
    source: str

    def defaults(self):
        """{setting: value}."""
        fields = dataclasses.asdict(self)
        return {name: fields[name] for name in fields if name not in ("sizes", "source")}

    def for_tuning(self):
        """{setting: value} for fine-tuning: a lower rate, reached after a short warm-up."""
        return {
            "learning_rate": self.learning_rate / 3, "warmup_steps": 100, "schedule": "cosine",
        }  # fmt: skip


def noam_peak(d_model, warmup_steps):
    """The peak of the paper's schedule, d_model^-0.5 · warmup^-0.5 (arXiv 1706.03762, 5.3)."""
    return round((d_model * warmup_steps) ** -0.5, 7)


SMALL = Recipe(
    learning_rate=3e-3, warmup_steps=800, schedule="cosine", tokens_per_batch=1024, accumulate=1,
    dropout_rate=0.1, norm_first=True, clip_norm=1.0,
    sizes={"d_model": 192, "num_heads": 4, "dff": 768, "encoder_layers": 3, "decoder_layers": 3},
    source="measured on 50,769 Tatoeba pairs: docs/guide/recipes.md",
)  # fmt: skip
BASE = Recipe(
    learning_rate=noam_peak(512, 4000), warmup_steps=4000, schedule="noam", tokens_per_batch=4096,
    accumulate=6, dropout_rate=0.1, norm_first=False, clip_norm=0.0, sizes={},
    source="arXiv 1706.03762: 25,000 target tokens an update",
)  # fmt: skip
# For distillation: as wide as `small`, named by the numbers of encoder and decoder layers. The rate
# is lower, because a student begins with its teacher's layers.
STUDENTS = {
    f"{encoder}-{decoder}": dataclasses.replace(
        SMALL,
        learning_rate=1.5e-3,
        sizes={**SMALL.sizes, "encoder_layers": encoder, "decoder_layers": decoder},
        source="the depths of arXiv 2006.10369, trained as small at half its rate",
    )
    for encoder, decoder in ((6, 1), (12, 1), (6, 2))
}
RECURRENT = dataclasses.replace(SMALL, norm_first=None, sizes={})
PAPER = dataclasses.replace(  # Cho et al. and Bahdanau et al. trained without dropout
    RECURRENT, dropout_rate=0.0, source="ours; the papers' Adadelta has no learning rate"
)
RECIPES = {
    "transformer": {
        "small": SMALL,
        "tiny": dataclasses.replace(SMALL, sizes={}, source="as small, for tests"),
        "tutorial": dataclasses.replace(
            BASE, learning_rate=noam_peak(128, 4000), accumulate=1,
            source="TensorFlow's tutorial: batches of 64 sentences of up to 128 tokens",
        ),
        "base": BASE,
        "big": dataclasses.replace(
            BASE, learning_rate=noam_peak(1024, 4000), dropout_rate=0.3, source=BASE.source
        ),
        **STUDENTS,
    },
    "seq2seq": {"small": RECURRENT, "tiny": RECURRENT, "tutorial": RECURRENT, "paper": PAPER},
    "rnnsearch": {"small": RECURRENT, "tiny": RECURRENT, "tutorial": RECURRENT, "paper": PAPER},
    "convolutional": {"small": RECURRENT, "tiny": RECURRENT, "tutorial": RECURRENT},
}  # fmt: skip
