"""Draws diagrams of the models into docs/pictures/*.svg: python docs/diagrams.py

The script makes models and reads boxes, counts and widths from them. Every box of a class of this
package links to its entry in the reference. `docs/conf.py` puts the SVG into the page itself, where
its links work.
"""

import html
import importlib
import itertools
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras_tfmr
from keras_tfmr.recurrent import RNNSearchConfig, RNNSearchModel

DOCS = pathlib.Path(__file__).parent
HEIGHT, GAP = 34, 20  # of a box, between two boxes
COLOURS = {
    "tokens": "#fff", "embedding": "#fde8e8", "attention": "#fdecd2", "dense": "#dcebfa",
    "norm": "#f3f6c8", "other": "#eceff3",
}  # fmt: skip


class Drawing:
    """Boxes, arrows and words, y counted upwards from the bottom, as data flows."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title = width, height, title
        self.parts = []

    def box(self, x, y, width, text, kind="other", of=None):
        """A box around (x, y), with a link to the class of the object `of`; returns (x, y)."""
        left, top = x - width / 2, self.height - y - HEIGHT / 2
        shape = (
            f'<rect x="{left}" y="{top}" width="{width}" height="{HEIGHT}" rx="5" '
            f'fill="{COLOURS[kind]}" stroke="#445"/>' + self._words(x, y, text, "middle")
        )
        self.parts.append(linked(shape, of))
        return x, y

    def plus(self, x, y):
        top = self.height - y
        self.parts.append(
            f'<circle cx="{x}" cy="{top}" r="9" fill="#fff" stroke="#445"/>'
            + self._words(x, y, "+", "middle")
        )
        return x, y

    def frame(self, x, y, width, height, text, of=None):
        """A dashed frame with its lower left corner at (x, y) and a label above it."""
        shape = (
            f'<rect x="{x}" y="{self.height - y - height}" width="{width}" height="{height}" '
            f'rx="9" fill="none" stroke="#889" stroke-dasharray="5 4"/>'
            + self._words(x + 6, y + height + 10, text, "start")
        )
        self.parts.append(linked(shape, of))

    def words(self, x, y, text, anchor="start"):
        self.parts.append(self._words(x, y, text, anchor, small=True))

    def arrow(self, *points):
        """A line through the points, an arrow at the last."""
        path = " ".join(f"{'ML'[i > 0]}{x} {self.height - y}" for i, (x, y) in enumerate(points))
        self.parts.append(f'<path d="{path}" fill="none" stroke="#445" marker-end="url(#tip)"/>')

    def up(self, *centres):
        """Arrows from each box to the one above it."""
        for (x, below), (_, above) in itertools.pairwise(centres):
            self.arrow((x, below + HEIGHT / 2), (x, above - HEIGHT / 2))

    def _words(self, x, y, text, anchor, small=False):
        size = 11 if small else 12.5
        return (
            f'<text x="{x}" y="{self.height - y + 4}" text-anchor="{anchor}" '
            f'font-size="{size}">{html.escape(text)}</text>'
        )

    def save(self, name):
        """Writes docs/pictures/NAME.svg."""
        path = DOCS / "pictures" / f"{name}.svg"
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" font-family="sans-serif" fill="#112" role="img">\n'
            f"<title>{html.escape(self.title)}</title>\n"
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#445"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" fill="#fff"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )
        print(path)


def linked(shape, of):
    """The shape within a link to the reference of an object's class, if that is a public one."""
    link = of is not None and address(type(of))
    return f'<a href="{link}">{shape}</a>' if link else shape


def address(cls):
    """The address of a class, from a guide: its entry on the page of its package, or None."""
    for package in ("layers", "models", "recurrent"):
        if cls.__name__ in importlib.import_module(f"keras_tfmr.{package}").__all__:
            return f"../reference/{package}.html#keras_tfmr.{package}.{cls.__qualname__}"
    return None


def name_of(layer):
    return type(layer).__name__


def column(drawing, x, y, boxes, width):
    """Boxes above each other from y upwards; returns their centres."""
    centres = []
    for text, kind, of in boxes:
        centres.append(drawing.box(x, y, width, text, kind, of))
        y += HEIGHT + GAP
    drawing.up(*centres)
    return centres


def transformer(model):
    """The whole model: the paper's Figure 1."""
    drawing = Drawing(620, 400, "The Transformer: encoder on the left, decoder on the right")
    step, width = HEIGHT + GAP, 210
    places = {}
    for x, stack, ids in ((150, model.encoder, "source ids"), (460, model.decoder, "target ids")):
        layer = stack.layers[0]
        sublayers = sublayers_of(layer)
        boxes = [(ids, "tokens", None)]
        boxes.append(
            (named(stack.embedding, stack.embedding.d_model), "embedding", stack.embedding)
        )
        boxes += [
            (
                name_of(sublayer),
                "dense" if sublayer is layer.feed_forward else "attention",
                sublayer,
            )
            for sublayer in sublayers
        ]
        centres = column(drawing, x, 30, boxes, width)
        bottom, top = centres[2][1], centres[-1][1]
        label = f"{len(stack.layers)} × {name_of(layer)}"
        drawing.frame(x - 125, bottom - 30, 250, top - bottom + 60, label, layer)
        places[ids] = centres
    x, top = places["source ids"][-1]
    end = (x, top + step + 16)
    drawing.box(*end, width, f"context, {model.encoder.embedding.d_model} wide", "tokens")
    drawing.arrow((x, top + HEIGHT / 2), (x, end[1] - HEIGHT / 2))
    cross_x, cross_y = places["target ids"][3]
    drawing.arrow(
        (x + width / 2, end[1]), (305, end[1]), (305, cross_y), (cross_x - width / 2, cross_y)
    )
    x, top = places["target ids"][-1]
    logits = drawing.box(x, top + step + 16, width, name_of(model.logits), "dense", model.logits)
    drawing.arrow((x, top + HEIGHT / 2), (x, logits[1] - HEIGHT / 2))
    drawing.arrow((x, logits[1] + HEIGHT / 2), (x, logits[1] + 42))
    drawing.words(x + 8, logits[1] + 36, "logits of the next token")
    drawing.save("transformer")


def sublayers_of(layer):
    """The sublayers of an encoder or decoder layer, in their order."""
    names = ("self_attention", "cross_attention", "feed_forward")
    return [getattr(layer, name) for name in names if hasattr(layer, name)]


def named(layer, width):
    return f"{name_of(layer)}, {width} wide"


def encoder_layer(layer):
    """One layer with what its sublayers hold: post-norm, as the paper has it."""
    drawing = Drawing(600, 535, "One encoder layer: two sublayers, each with its residual")
    x, width, y, start = 290, 240, 70, (290, 24)
    drawing.words(298, 20, f"x  [batch, length, {layer.options.d_model}]")
    for sublayer in sublayers_of(layer):
        feed_forward = sublayer is layer.feed_forward
        if feed_forward:
            inner = [
                (
                    f"Dense, {sublayer.dff} wide, {sublayer.activation}",
                    "dense",
                    None,
                ),
                (f"Dense, {layer.options.d_model} wide", "dense", None),
            ]
        else:
            attention = sublayer.attention
            text = f"{name_of(attention)}, {attention.num_heads} heads of {attention.key_dim}"
            inner = [(text, "attention", attention)]
        inner.append(
            (f"Dropout {sublayer.residual.dropout.rate:g}", "other", sublayer.residual.dropout)
        )
        centres = column(drawing, x, y, inner, width)
        drawing.arrow(start, (x, y - HEIGHT / 2))
        top = centres[-1][1]
        plus = drawing.plus(x, top + HEIGHT)
        drawing.arrow((x, top + HEIGHT / 2), (x, plus[1] - 9))
        drawing.arrow(
            (x, y - HEIGHT / 2 - 8), (110, y - HEIGHT / 2 - 8), (110, plus[1]), (x - 9, plus[1])
        )
        norm = drawing.box(
            x, plus[1] + HEIGHT / 2 + 26, width, name_of(sublayer.residual.norm), "norm",
            sublayer.residual.norm,
        )  # fmt: skip
        drawing.arrow((x, plus[1] + 9), (x, norm[1] - HEIGHT / 2))
        bottom = y - HEIGHT / 2 - 14
        drawing.frame(90, bottom, 350, norm[1] + HEIGHT / 2 + 8 - bottom, "", None)
        kind = name_of(sublayer.residual)
        drawing.parts.append(
            linked(drawing._words(448, norm[1], name_of(sublayer), "start"), sublayer)
            + linked(drawing._words(448, plus[1], kind, "start"), sublayer.residual)
        )
        start, y = (x, norm[1] + HEIGHT / 2), norm[1] + 80
    drawing.arrow(start, (x, start[1] + 30))
    drawing.save("encoder_layer")


def attention(layer):
    """Multi-head attention in the guide's six steps."""
    drawing = Drawing(760, 560, "Multi-head attention in six steps")
    heads, width = layer.num_heads, 150
    tops = []
    for x, name in ((120, "query"), (320, "key"), (520, "value")):
        units = getattr(layer, f"{name}_dense").units
        drawing.words(x, 16, "query" if name == "query" else "key, value", "middle")
        centre = drawing.box(x, 70, width, f"{name}_dense, {units}", "dense")
        drawing.arrow((x, 26), (x, 70 - HEIGHT / 2))
        split = drawing.box(x, 124, width, f"split into {heads} heads")
        drawing.up(centre, split)
        tops.append(split)
    drawing.words(610, 70, "step 1")
    drawing.words(610, 124, f"[batch, {heads} heads, length, {layer.key_dim}]")
    scale = drawing.box(320, 178, width, f"· 1 / √{layer.key_dim}")
    drawing.words(401, 190, "3")
    drawing.up(tops[1], scale)
    boxes = [
        ("2", "Q Kᵀ", "attention"), ("4", "+ mask (0 or −10⁹)", "other"),
        ("5", "softmax over keys", "attention"), ("6", "weights · V", "attention"),
        ("", "join the heads", "other"), ("", f"output_dense, {layer.output_dense.units}", "dense"),
    ]  # fmt: skip
    steps = column(drawing, 320, 232, [(text, kind, None) for _, text, kind in boxes], 180)
    drawing.arrow((120, tops[0][1] + HEIGHT / 2), (120, 232), (320 - 90, 232))
    drawing.arrow((320, 178 + HEIGHT / 2), (320, 232 - HEIGHT / 2))
    drawing.arrow((520, tops[2][1] + HEIGHT / 2), (520, steps[3][1]), (410, steps[3][1]))
    for (_, y), (number, _, _) in zip(steps, boxes, strict=True):
        drawing.words(416, y + 12, number)
    drawing.words(222, steps[1][1], f"[batch, {heads} heads, query, key]", "end")
    drawing.words(222, steps[2][1], "float32", "end")
    drawing.arrow((320, steps[-1][1] + HEIGHT / 2), (320, steps[-1][1] + 42))
    drawing.frame(10, 44, 592, steps[-1][1] - 20, name_of(layer), layer)
    drawing.save("attention_steps")


def rnnsearch(model):
    """RNNsearch."""
    drawing = Drawing(690, 400, "RNNsearch: a bidirectional encoder, and a decoder that aligns")
    decoder, width, y = model.decoder, 230, 220
    embedded = f"Embedding, {model.config.embedding_dim} wide"
    annotations = f"{name_of(model.encoder)}, 2 × {model.encoder.units}"
    source = column(
        drawing, 150, 30,
        [
            ("source ids", "tokens", None), (embedded, "embedding", None),
            (annotations, "attention", model.encoder),
        ],
        width,
    )  # fmt: skip
    target = column(
        drawing, 500, 30,
        [("target ids, the words so far", "tokens", None), (embedded, "embedding", None)],
        width,
    )  # fmt: skip
    aligned = f"{name_of(decoder.attention)}, {decoder.attention.units}"
    drawing.box(150, y, width, aligned, "attention", decoder.attention)
    drawing.box(500, y, width, f"{name_of(decoder.cell)}, {decoder.units}", "dense", decoder.cell)
    drawing.arrow((150, source[-1][1] + HEIGHT / 2), (150, y - HEIGHT / 2))
    drawing.words(158, source[-1][1] + 30, "annotations hⱼ")
    drawing.arrow((500, target[-1][1] + HEIGHT / 2), (500, y - HEIGHT / 2))
    drawing.words(508, target[-1][1] + 60, "E yᵢ₋₁")
    drawing.arrow((500 - 115, y - 9), (150 + 115, y - 9))
    drawing.words(325, y - 22, "state sᵢ₋₁", "middle")
    drawing.arrow((150 + 115, y + 9), (500 - 115, y + 9))
    drawing.words(325, y + 20, "context cᵢ", "middle")
    drawing.arrow((615, y + 8), (648, y + 8), (648, y - 8), (615, y - 8))
    drawing.words(652, y, "sᵢ")
    drawing.frame(20, y - 36, 660, 74, name_of(decoder), decoder)
    maxout, _ = column(
        drawing, 500, y + 76,
        [
            (f"{name_of(model.maxout)}, {model.maxout.units}", "dense", model.maxout),
            (name_of(model.logits), "dense", model.logits),
        ],
        width,
    )  # fmt: skip
    drawing.arrow((500, y + HEIGHT / 2), (500, maxout[1] - HEIGHT / 2))
    drawing.words(508, y + 48, "sᵢ₋₁, E yᵢ₋₁ and cᵢ")
    drawing.arrow((500, maxout[1] + 71), (500, maxout[1] + 94))
    drawing.words(508, maxout[1] + 90, "logits of the next token")
    drawing.save("rnnsearch")


def main():
    sizes = {"source_vocab": 100, "target_vocab": 100}
    model = keras_tfmr.TranslationModel(keras_tfmr.TransformerConfig.preset("base", **sizes))
    transformer(model)
    encoder_layer(model.encoder.layers[0])
    attention(model.encoder.layers[0].self_attention.attention)
    rnnsearch(RNNSearchModel(RNNSearchConfig.preset("paper", **sizes)))


if __name__ == "__main__":
    main()
