"""SVG pictures for light and dark pages, whose texts are as wide in any font."""

import html
import io
import re

import matplotlib
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

DARK = "@media (prefers-color-scheme: dark){#plot-NAME{filter:invert(.92) hue-rotate(180deg)}}"
SHARE = 0.9  # of a text's width in DejaVu Sans, which is wider than most fonts
TEXT = re.compile(r'(<text [^>]*font-size(?:="|: )([\d.]+)[^>]*)>([^<]+)</text>')


def fitted(svg):
    """The SVG with the width of each text in it, which browsers keep whatever fonts they have."""

    def fit(found):
        font = FontProperties(family="DejaVu Sans", size=float(found[2]))
        text = html.unescape(found[3])
        width = round(SHARE * text_to_path.get_text_width_height_descent(text, font, False)[0])
        return f'{found[1]} textLength="{width}" lengthAdjust="spacingAndGlyphs">{found[3]}</text>'

    return TEXT.sub(fit, re.sub(r' textLength="\d+" lengthAdjust="\w+"', "", svg))


def save(figure, path, title):
    """Writes a figure of matplotlib; the colours are inverted where the reader's system is dark.

    `docs/conf.py` puts it into the page, so its style is for it alone.
    """
    name, text = path.stem, io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(
            text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    _, _, drawn = text.getvalue().partition("<svg")
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)
    pixels = round(float(box[1]) * 4 / 3)  # 96 to the inch
    head = (
        f'<svg id="plot-{name}" xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} width="{pixels}" '
        'style="max-width:100%;height:auto" role="img">\n'
        f"<title>{html.escape(title)}</title>\n<style>{DARK.replace('NAME', name)}</style>"
    )
    drawn = head + drawn[drawn.index(">") + 1 :].replace("*{", f"#plot-{name} *{{", 1)
    drawn = re.sub(r"font-family: [^;\"]*", "font-family: sans-serif", drawn)
    path.write_text(re.sub(r" +$", "", fitted(drawn), flags=re.MULTILINE), encoding="utf-8")
    print(path)
