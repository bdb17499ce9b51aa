"""Draws the diagrams of a request and of nested layers: python -m docs.diagrams

Writes docs/pictures/request.svg and nesting.svg, and fits the texts of those that were drawn by
hand. An SVG holds both palettes, and the reader's system chooses: light or dark. `docs/conf.py`
puts it into the page, so ids begin with its name.
"""

import html
from pathlib import Path

from docs.svg import fitted

PICTURES = Path(__file__).parent / "pictures"
BY_HAND = ("attention_steps", "encoder_layer", "functional_model", "rnnsearch", "transformer")
# class: property, its colours in light and in dark
PALETTE = {
    "page": ("fill", "#fff", "#141414"),
    "text": ("fill", "#112", "#eef"),
    "small": ("fill", "#556", "#aab"),
    "line": ("stroke", "#445", "#99a"),
    "tip": ("fill", "#445", "#99a"),
    "frame": ("stroke", "#889", "#667"),
    "data": ("fill", "#f4f4f8", "#23262e"),
    "tokens": ("fill", "#fde8e8", "#4a2b2f"),
    "attention": ("fill", "#fdecd2", "#4a3a20"),
    "dense": ("fill", "#dcebfa", "#22384f"),
    "residual": ("fill", "#f3f6c8", "#3d4220"),
    "choice": ("fill", "#e3f4e1", "#25402a"),
}


class Drawing:
    """Boxes, frames, arrows and words; x to the right, y downwards, in pixels."""

    def __init__(self, name, width, height, title):
        self.name, self.width, self.height, self.title = name, width, height, title
        self.parts = []

    def words(self, x, y, text, kind="small", anchor="start", size=11.5):
        """A line of text whose baseline is at y; anchor is start, middle or end."""
        self.parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}" '
            f'font-size="{size}">{html.escape(text)}</text>'
        )

    def box(self, x, y, width, height, kind, text, below=""):
        """A box with its upper left corner at (x, y), a text, and perhaps a smaller one below."""
        self.parts.append(
            f'<rect class="line {kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>'
        )
        middle = y + height / 2
        self.words(x + width / 2, middle + (-2 if below else 4.5), text, "text", "middle", 12.5)
        if below:
            self.words(x + width / 2, middle + 14, below, anchor="middle")

    def frame(self, x, y, width, height, text, right=""):
        """A dashed frame with a text in its upper left corner, perhaps one in its right corner."""
        self.parts.append(
            f'<rect class="frame" x="{x}" y="{y}" width="{width}" height="{height}" rx="9" '
            'fill="none" stroke-dasharray="5 4"/>'
        )
        self.words(x + 10, y + 17, text, "text", size=12.5)
        self.words(x + width - 10, y + 17, right, anchor="end")

    def arrow(self, *points):
        """A line through the points, with a tip at the last."""
        path = " ".join(f"{'L' if i else 'M'}{x:g} {y:g}" for i, (x, y) in enumerate(points))
        self.parts.append(
            f'<path class="line" d="{path}" fill="none" marker-end="url(#{self.name}-tip)"/>'
        )

    def plus(self, x, y):
        """The sum of a residual connection."""
        self.parts.append(f'<circle class="line residual" cx="{x}" cy="{y}" r="9"/>')
        self.words(x, y + 4.5, "+", "text", "middle", 12.5)

    def svg(self):
        """The text of the file."""
        light, dark = (
            "".join(f"#{self.name} .{kind}{{{row[0]}:{row[i]}}}" for kind, row in PALETTE.items())
            for i in (1, 2)
        )
        return fitted(
            f'<svg id="{self.name}" xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            'style="max-width:100%;height:auto" font-family="sans-serif" role="img">\n'
            f"<title>{html.escape(self.title)}</title>\n"
            f"<style>\n{light}\n@media (prefers-color-scheme: dark){{{dark}}}\n</style>\n"
            f'<defs><marker id="{self.name}-tip" viewBox="0 0 8 8" refX="7" refY="4" '
            'markerWidth="7" markerHeight="7" orient="auto">'
            '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>\n'
            f'<rect class="page" width="{self.width}" height="{self.height}"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def request():
    """The way of a request: a text goes in, a text comes out, all else is in the SavedModel."""
    drawing = Drawing("request", 740, 352, "The way of a request: text in, text out")
    left, middle, right, width, height = 288, 436, 584, 122, 44
    first, search, last = 76, 184, 276  # rows
    drawing.frame(6, 10, 172, 332, "your program")
    drawing.frame(262, 10, 472, 332, "TensorFlow Serving, or the development server")
    drawing.frame(
        274, 40, 448, 292, "one SavedModel, signature translate", "stock operations, no Python"
    )
    drawing.box(14, first, 156, height, "data", "O gato está na mesa.", "text")
    drawing.box(left, first, width, height, "tokens", "protection", "code, links → slots")
    drawing.box(middle, first, width, height, "tokens", "tokenizer", "text → IDs")
    drawing.box(right, first, width, height, "attention", "encoder", "IDs → context")
    drawing.frame(424, 146, 290, 96, "search: one step per token")
    drawing.box(middle, search, width, height, "choice", "choice", "next tokens")
    drawing.box(right, search, width, height, "dense", "decoder step", "log-probabilities")
    drawing.words(left, 190, "greedy or beam search,")
    drawing.words(left, 206, "keys and values cached,")
    drawing.words(left, 222, "until </s>")
    drawing.words(92, 190, "in any language, without", anchor="middle")
    drawing.words(92, 206, "TensorFlow or tokenizer", anchor="middle")
    drawing.box(middle, last, width, height, "tokens", "detokenizer", "IDs → text")
    drawing.box(left, last, width, height, "tokens", "restoration", "slots → code, links")
    drawing.box(14, last, 156, height, "data", "The cat is on the table.", "translation, score")
    for row, arrow in ((first, "→"), (last, "←")):
        ends = [(170, row + height / 2), (left, row + height / 2)]
        drawing.arrow(*(ends if arrow == "→" else ends[::-1]))
        drawing.words(220, row + 16, "gRPC", anchor="middle")
        drawing.words(220, row + 38, "or REST", anchor="middle")
    drawing.arrow((left + width, first + 22), (middle, first + 22))
    drawing.arrow((middle + width, first + 22), (right, first + 22))
    drawing.arrow((645, first + height), (645, search))
    drawing.arrow((right, search + 14), (middle + width, search + 14))
    drawing.arrow((middle + width, search + 30), (right, search + 30))
    drawing.arrow((497, search + height), (497, last))
    drawing.arrow((middle, last + 22), (left + width, last + 22))
    return drawing


def nesting():
    """Sublayers in layers in stacks, and what is inside a sublayer."""
    drawing = Drawing("nesting", 740, 556, "Sublayers make a layer, layers a stack")
    feed_forward = ("dense", "FeedForward")
    stacks = (
        (8, "Encoder", [feed_forward, ("attention", "GlobalSelfAttention")]),
        (382, "Decoder", [feed_forward, ("attention", "CrossAttention"),
                          ("attention", "CausalSelfAttention")]),
    )  # fmt: skip
    for x, stack, sublayers in stacks:
        centre = x + 175
        drawing.frame(x, 26, 350, 278, stack, "stack")
        drawing.box(centre - 110, 52, 220, 28, "data", "LayerNormalization, if norm_first")
        drawing.frame(x + 14, 94, 322, 158, f"{stack}Layer", "layer, num_layers times")
        rows = [120, 206] if len(sublayers) == 2 else [120, 163, 206]
        for y, (kind, name) in zip(rows, sublayers, strict=True):
            drawing.box(centre - 90, y, 180, 30, kind, name)
            drawing.words(centre + 98, y + 19, "sublayer")
        drawing.box(centre - 110, 264, 220, 28, "data", "Dropout")
        bottoms = [324, 264, *rows[::-1]]
        tops = [292, *(y + 30 for y in rows[::-1]), 80]
        for below, above in zip(bottoms, tops, strict=True):
            drawing.arrow((centre, below), (centre, above))
    drawing.words(191, 321, "embedded source")
    drawing.words(565, 321, "embedded target")
    drawing.arrow((183, 52), (183, 18), (370, 18), (370, 178), (467, 178))
    drawing.words(191, 13, "context")
    drawing.arrow((557, 52), (557, 6))
    drawing.words(565, 15, "vectors, to an LMHead")
    parts = (
        ("Inside a sublayer; yellow: PostNormResidual", "norm_first=False, the default", 342),
        ("Inside a sublayer; yellow: PreNormResidual", "norm_first=True, as in preset small", 450),
    )
    for number, (title, option, y) in enumerate(parts):
        drawing.frame(8, y, 724, 98, title, option)
        middle = y + 66
        inner = ("MultiHeadAttention", "or Dense, activation, Dense")
        function = ("attention", 190, *inner)
        norm, dropout = ("residual", 150, "LayerNormalization"), ("residual", 80, "Dropout")
        order = [function, dropout, None, norm] if number == 0 else [norm, function, dropout, None]
        drawing.words(24, middle + 4, "x", "text", size=12.5)
        x = 36
        for part in order:
            end = x + 44 if part is order[0] else x + 52
            drawing.arrow((x, middle), (end, middle))
            if part is None:
                drawing.plus(end + 9, middle)
                drawing.arrow((56, middle), (56, y + 30), (end + 9, y + 30), (end + 9, middle - 9))
                x = end + 18
            else:
                kind, width, *texts = part
                height = 40 if len(texts) > 1 else 30
                drawing.box(end, middle - height / 2, width, height, kind, *texts)
                x = end + width
        drawing.arrow((x, middle), (716, middle))
    return drawing


def main():
    for drawing in (request(), nesting()):
        path = PICTURES / f"{drawing.name}.svg"
        path.write_text(drawing.svg(), encoding="utf-8")
        print(path)
    for name in BY_HAND:
        path = PICTURES / f"{name}.svg"
        path.write_text(fitted(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
