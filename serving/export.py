"""Exports a trained or published model as a SavedModel for TensorFlow Serving.

    python serving/export.py runs/translator
    python serving/export.py runs/translator --output models/translator --precision bfloat16
    python serving/export.py opus-mt-pt-en --output models/pt-en --precision int8 --calibrate in.txt
    python serving/export.py runs/translator --format ctranslate2

A separate process loads and queries the new version before it appears under the next free number.
With --format, the script writes a folder for CTranslate2 instead, or one that transformers loads as
a MarianMTModel. Exit status: 0 done, 1 the export would not serve or the preset cannot be read, 2
wrong arguments.
"""

if __name__ == "__main__":
    from training.command.scripts import end_at_ctrl_c

    end_at_ctrl_c()

import sys
from pathlib import Path

from keras_tfmr.export.formats import FORMATS
from training.command import scripts

# Options that are keyword arguments of `from_preset`.
OF_PRESET = (
    "num_beams", "num_return_sequences", "length_penalty", "max_length", "max_length_ratio",
    "max_source_length", "max_new_tokens", "abbreviations", "language", "protect",
)  # fmt: skip


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    add = parser.add_argument
    count = {"type": scripts.at_least(1), "metavar": "N"}
    amount = {"type": scripts.at_least(0.0), "metavar": "X"}
    ours = {"not_with": [f"--format {name}" for name in FORMATS[1:]]}
    preset = "folder of a run or of a published model, or hf://OWNER/NAME"
    add("preset", metavar="PRESET", help=preset)
    output = "folder to write (default: FORMAT in the folder PRESET)"
    add("--output", metavar="DIR", type=Path, help=output)
    add("--format", choices=FORMATS, default="saved_model", help="format to write")
    add("--weights", metavar="FILE", type=Path, help="weights to export (default: the preset's)")
    precision = "precision of weights and layers"
    kinds = ("float32", "bfloat16", "int8")
    add("--precision", choices=kinds, **ours, help=f"{precision} (default: float32)")
    texts = "texts like those of real requests, a line each, for --precision int8 and the warm-up "
    texts += "(default: the preset's, else sentences in its language)"
    add("--calibrate", metavar="FILE", type=Path, **ours, help=texts)
    width = "beam width, 1 for greedy (default: the preset's)"
    add("--num_beams", **count, help=width)
    best = "hypotheses of translate_nbest (default: --num_beams)"
    add("--nbest", dest="num_return_sequences", **count, help=best)
    penalty = "exponent of the length penalty (default: the preset's)"
    add("--length_penalty", **amount, help=penalty)
    longest = "maximum tokens of a translation (default: the preset's, else 128); of a text, for a "
    longest += "model that does not translate"
    add("--max_length", **count, help=longest)
    factor = "maximum tokens of a translation per source token, plus 8 "
    factor += "(default: the preset's, else 3)"
    positive = {"type": scripts.above(0.0), "metavar": "X"}
    add("--max_length_ratio", **positive, help=factor)
    read = "maximum tokens read from a text to translate (default: the preset's, else 128)"
    add("--max_source_length", **count, help=read)
    longest = "maximum tokens of a completion (default: the preset's, else 128)"
    add("--max_new_tokens", **count, **ours, help=longest)
    words = "source language, or file of its abbreviations, for documents (default: the preset's)"
    add("--abbreviations", metavar="CODE_OR_FILE", **ours, help=words)
    language = "target language of texts without a tag, if the model has several"
    add("--language", metavar="CODE", **ours, help=language)
    spans = "spans to leave untranslated: names such as url and code, RE2 patterns, or none "
    spans += "(default: the preset's)"
    add("--protect", nargs="+", metavar="NAME", help=spans)
    add("--no_check", action="store_true", **ours, help="do not load and query the result")
    options = parser.parse_args(arguments)
    if options.output is None and not Path(options.preset).is_dir():
        parser.error(f"--output is needed, because {options.preset} is no folder")
    return options


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    # Imported here, so that --help and wrong arguments are answered at once.
    from training.command.process import command, in_two_steps

    return command("export.py", in_two_steps, prepare, options)


def prepare(options):
    """Checks all that the export needs; returns the function that writes it."""
    from training.command.disk import check_writable, refusing

    output = options.output or Path(options.preset, options.format)
    check_writable(output, is_folder=True)
    given = {name: value for name in OF_PRESET if (value := vars(options)[name]) is not None}
    if "protect" in given:
        given["protect"] = scripts.protected(options.protect)
    with refusing(ValueError):
        texts = options.calibrate and scripts.lines("--calibrate", options.calibrate)
        from keras_tfmr.text_models.load import load_text_model  # now: it imports TensorFlow

        text_model = load_text_model(options.preset, options.weights or True, **given)

    def export():
        with refusing(RuntimeError, ValueError):  # also where TensorFlow has no int8
            path = text_model.export(
                output,
                format=options.format,
                precision=options.precision,
                texts=texts,
                check=not options.no_check,
            )
        print(path)

    return export


if __name__ == "__main__":
    sys.exit(main())
