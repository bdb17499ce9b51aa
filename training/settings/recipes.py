"""The recipes of training: for each model and the presets of its config, what trains it well.

The right rate depends on depth, width and place of the norm. Nothing here imports Keras.
"""


def noam_peak(d_model, warmup_steps):
    """The peak of the paper's schedule, d_model^-0.5 · warmup^-0.5 (arXiv 1706.03762, 5.3)."""
    return round((d_model * warmup_steps) ** -0.5, 7)


def for_tuning(recipe):
    """{setting: value} for fine-tuning: a third of the rate, reached after a short warm-up.

    Each batch is an update, so that a budget of minutes has hundreds; Adam's rate for smaller
    batches falls by the root of their size (arXiv 2205.10287).
    """
    batches = recipe["gradient_accumulation_steps"]
    return {
        "learning_rate": round(recipe["learning_rate"] / 3 / batches**0.5, 7),
        "warmup_steps": 100, "schedule": "cosine", "gradient_accumulation_steps": 1,
    }  # fmt: skip


# Measured on 50,769 pairs of Tatoeba: benchmarks/README.md.
SMALL = {
    "learning_rate": 3e-3, "warmup_steps": 800, "schedule": "cosine", "tokens_per_batch": 1024,
    "gradient_accumulation_steps": 1, "clip_norm": 1.0,
}  # fmt: skip
# arXiv 1706.03762: 25,000 target tokens an update.
BASE = {
    "learning_rate": noam_peak(512, 4000), "warmup_steps": 4000, "schedule": "noam",
    "tokens_per_batch": 4096, "gradient_accumulation_steps": 6, "clip_norm": 0.0,
}  # fmt: skip
# TensorFlow's tutorial: batches of 64 sentences of up to 128 tokens.
TUTORIAL = BASE | {"learning_rate": noam_peak(128, 4000), "gradient_accumulation_steps": 1}
BIG = BASE | {"learning_rate": noam_peak(1024, 4000)}
RECURRENT = dict.fromkeys(("small", "tiny", "tutorial", "paper"), SMALL)
RECIPES = {  # `tiny` is for tests
    "transformer": {"small": SMALL, "tiny": SMALL, "tutorial": TUTORIAL, "base": BASE, "big": BIG},
    "seq2seq": RECURRENT,
    "rnnsearch": RECURRENT,
    "convolutional": dict.fromkeys(("small", "tiny", "tutorial"), SMALL),
}
