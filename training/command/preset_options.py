"""The options of scripts that load a translator: its weights, and what it does otherwise."""

from training.command import scripts

# Those that are keyword arguments of `from_preset`.
NAMES = (
    "num_beams", "length_penalty", "max_length", "max_source_length", "languages", "language",
    "protect",
)  # fmt: skip


def add_to(parser):
    """Adds the options to the parser of a script."""
    # fmt: off
    parser.add_argument("--weights", metavar="FILE", type=scripts.file_to_read,
        help="weights to use (default: the preset's)")
    parser.add_argument("--num_beams", metavar="N", type=scripts.number_from(1),
        help="beam width, 1 for greedy (default: the preset's)")
    parser.add_argument("--length_penalty", metavar="X", type=scripts.number_from(0.0),
        help="exponent of the length penalty (default: the preset's)")
    parser.add_argument("--max_length", metavar="N", type=scripts.number_from(1),
        help="maximum tokens of a translation; of a text, for a model that does not translate "
        "(default: the preset's, else 128)")
    parser.add_argument("--max_source_length", metavar="N", type=scripts.number_from(1),
        help="maximum tokens read from a text to translate (default: the preset's, else 128)")
    parser.add_argument("--languages", nargs=2, metavar="CODE",
        help="codes of source and target, as in pt en (default: the preset's)")
    parser.add_argument("--language", metavar="CODE",
        help="target language of texts without a tag, if the model has several")
    parser.add_argument("--protect", nargs="+", metavar="NAME",
        help="spans to leave untranslated: names such as url and code, RE2 patterns, or none "
        "(default: the preset's)")
    parser.add_argument("--shortlist", metavar="FILE", nargs="?", const="",
        help="translate with the few target subwords that each text may need, which are learned "
        "from a file of lines TEXT<TAB>TRANSLATION, or of texts, which the model translates first "
        "(default: the pairs of the run)")
    # fmt: on


def given(options, names=NAMES):
    """The keyword arguments of `from_preset` that options give."""
    values = {name: value for name in names if (value := vars(options)[name]) is not None}
    if values.get("protect") == ["none"]:
        values["protect"] = []
    return values
