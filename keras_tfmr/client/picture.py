"""An explanation as a picture: what each token of the translation attended to."""

from os import PathLike

from keras_tfmr.client.answers import Explanation


def draw_attention(explanation: Explanation, path: str | PathLike[str]) -> None:
    """Draws the mean cross-attention as a grid, target downwards, source along the top.

    Args:
        explanation: An `Explanation`.
        path: File to write; its extension determines the format.
    """
    from matplotlib.figure import Figure  # takes a second to import, needed only here

    source, target = (
        [readable(token) for token in tokens]
        for tokens in (explanation.source_tokens, explanation.target_tokens)
    )
    width, height = max(3.0, 0.42 * len(source) + 1.6), max(2.0, 0.34 * len(target) + 1.4)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    if source and target:
        image = axes.imshow(
            explanation.attention, cmap="magma_r", vmin=0.0, vmax=1.0, aspect="auto"
        )
        figure.colorbar(image, ax=axes, label="attention", shrink=0.8)
    axes.set_xticks(range(len(source)), source, rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(target)), target)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.savefig(path, dpi=150)


def readable(token: str) -> str:
    """A token with `_` for its word boundary, and with `$` escaped, which would start a formula.

    >>> readable("▁casa"), readable("5$")
    ('_casa', '5\\\\$')
    """
    return token.replace("▁", "_").replace("$", r"\$")
