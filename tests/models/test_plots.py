"""Pictures: what stands on their axes, and that the numbers drawn are the numbers given."""

import numpy as np
import pytest
from helpers import no_warnings
from matplotlib import font_manager

from keras_tfmr.plots import (
    plot_attention,
    plot_confusion,
    plot_curves,
    plot_positional_encoding,
    plot_word,
)

SOURCE = ["▁bom", "▁dia", ",", "▁$"]
TARGET = ["▁good", "▁morning", "</s>"]


def images(figure):
    """The image that each picture of a figure shows; a colour bar shows none."""
    return [np.array(axes.images[0].get_array()) for axes in figure.axes if axes.images]


def labels(axis_labels):
    return [label.get_text() for label in axis_labels]


def test_one_attention_map_per_head_with_its_tokens():
    scores = np.random.default_rng(0).dirichlet(np.ones(4), (6, 3)).astype("float32")
    figure = plot_attention(scores, SOURCE, TARGET, title="Bom dia")
    np.testing.assert_array_equal(images(figure), scores)
    for head, axes in enumerate(figure.axes[:6]):
        assert axes.get_title() == f"head {head + 1}"
        assert labels(axes.get_yticklabels()) == TARGET
        assert labels(axes.get_xticklabels()) == SOURCE
        assert axes.images[0].get_clim() == (0, 1)  # heads can be compared with each other
    np.testing.assert_array_equal(images(plot_attention(scores[0], SOURCE, TARGET)), scores[:1])
    with pytest.raises(ValueError, match=r"\[heads, 3, 4\].*Received"):
        plot_attention(np.zeros((2, 4, 3)), SOURCE, TARGET)


def test_one_word_in_every_layer_and_head():
    scores = np.random.default_rng(0).dirichlet(np.ones(4), (2, 3)).astype("float32")
    figure = plot_word(scores, SOURCE)
    np.testing.assert_array_equal(images(figure), [scores.reshape(6, 4)])
    rows = labels(figure.axes[0].get_yticklabels())
    assert rows == ["layer 1, head 1", "head 2", "head 3", "layer 2, head 1", "head 2", "head 3"]
    with pytest.raises(ValueError, match=r"\[layers, heads, 4\].*Received: shape \(3, 4\)"):
        plot_word(scores[0], SOURCE)


def test_positional_encoding_has_positions_to_the_right():
    encoding = np.random.default_rng(0).normal(size=(50, 16)).astype("float32")
    figure = plot_positional_encoding(encoding)
    np.testing.assert_array_equal(images(figure)[0], encoding.T)
    low, high = figure.axes[0].images[0].get_clim()
    assert low == -high  # zero is white


def test_curves_leave_out_what_a_row_lacks():
    rows = [
        {"minutes": 1.0, "loss": 5.0},
        {"minutes": 2.0, "loss": 4.0, "bleu": 7.5, "chrf": 20.0},
    ]
    loss, score = plot_curves(rows).axes
    np.testing.assert_array_equal(loss.lines[0].get_xydata(), [[1, 5], [2, 4]])
    np.testing.assert_array_equal(score.lines[0].get_xydata(), [[2, 7.5]])
    assert labels(score.get_legend().get_texts()) == ["loss", "bleu", "chrf"]
    assert loss.get_ylim()[0] == score.get_ylim()[0] == 0
    assert loss.get_xlim() == score.get_xlim()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"$\foo$ \frac{", r"$\foo$ \frac{"),
        ("two\nlines\t", "two lines"),
        ("bell\x07\x00", "bell\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
        ("x" * 1000, "x" * 79 + "…"),
        ("\U0010fffd\ud800", "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_any_text_is_drawn(text, shown):
    """As titles, tokens and names: no formula, one line, no glyph that the fonts lack."""
    for figure in (
        plot_attention(np.ones((2, 2, 1)), [text], [text, "a"], title=text),
        plot_curves([{"minutes": 1, "loss": 5.0}], title=text),
        plot_confusion(np.eye(2, dtype=int), [text, "a"]),
    ):
        with no_warnings():
            figure.canvas.draw()
        axes = figure.axes[0]
        texts = {figure.get_suptitle(), *labels([*axes.get_xticklabels(), *axes.get_yticklabels()])}
        assert shown in texts


def test_a_character_is_drawn_in_an_installed_font_that_has_it():
    first, other = (
        font_manager.get_font(font_manager.findfont(name)).get_charmap()
        for name in ("DejaVu Sans", "STIXGeneral")
    )
    char = next(
        chr(code) for code in sorted(other) if code not in first and chr(code).isprintable()
    )
    figure = plot_curves([{"minutes": 1, "loss": 5.0}], title=f"a{char}")
    with no_warnings():
        figure.canvas.draw()
    assert figure.get_suptitle() == f"a{char}"
