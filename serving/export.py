"""Exports a trained model as a SavedModel for TensorFlow Serving.

    python serving/export.py runs/translator
    python serving/export.py runs/translator --output models/translator --precision bfloat16
    python serving/export.py runs/translator --format ctranslate2

A separate process loads and queries the new version before it appears under the next free number.
With --format, the script writes a folder for CTranslate2 instead, or one that transformers loads as
a MarianMTModel. Exit status: 0 done, 1 the export would not serve or the run folder cannot be read,
2 wrong arguments.
"""

import dataclasses
import sys
from pathlib import Path

FORMATS = ("saved_model", "ctranslate2", "marian")


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    from keras_tfmr import _command_line

    parser = _command_line.parser(__doc__)
    add = parser.add_argument
    count = {"type": _command_line.at_least(1), "metavar": "N"}
    amount = {"type": _command_line.at_least(0.0), "metavar": "X"}
    ours = {"not_with": [f"--format {name}" for name in FORMATS[1:]]}
    add("run", metavar="RUN_FOLDER", type=Path, help="folder that a script of training/ wrote")
    add("--output", metavar="DIR", type=Path, help="folder to write (default: RUN_FOLDER/FORMAT)")
    add("--format", choices=FORMATS, default="saved_model", help="format to write")
    add("--weights", metavar="FILE", type=Path, help="weights to export (default: the run's best)")
    precision = "precision of weights and layers"
    kinds = ("float32", "bfloat16", "int8")
    add("--precision", choices=kinds, default="float32", **ours, help=precision)
    width = "beam width, 1 for greedy (default: the run's)"
    add("--num_beams", **count, help=width)
    best = "hypotheses of translate_nbest (default: --num_beams)"
    add("--nbest", dest="num_return_sequences", **count, help=best)
    penalty = "exponent of the length penalty (default: the run's)"
    add("--length_penalty", **amount, help=penalty)
    longest = "maximum tokens of a translation (default: the run's, else 128)"
    add("--max_length", **count, help=longest)
    factor = "maximum tokens of a translation per source token, plus 8 "
    factor += "(default: the run's, else 3)"
    add("--max_length_ratio", **amount, help=factor)
    read = "maximum tokens read from a text"
    add("--max_source_length", **count, default=128, help=read)
    words = "source language, or file of its abbreviations, for documents (default: the run's)"
    add("--abbreviations", metavar="CODE_OR_FILE", **ours, help=words)
    add("--no_check", action="store_true", **ours, help="do not load and query the result")
    return parser.parse_args(arguments)


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    # Imported here, so that --help and wrong arguments are answered at once.
    from training.process import without_noise

    with without_noise():
        try:
            print(export(options))
        except (RuntimeError, ValueError, OSError) as error:  # a RuntimeError where int8 is not
            print(f"export.py: error: {error}", file=sys.stderr)
            return 1
    return 0


def export(options):
    """Rebuilds the run's text model and exports it; returns what it has written."""
    from keras_tfmr.export import export_text_model
    from training.run_folder import RunFolder

    folder = RunFolder(options.run)
    text_model = rebuilt(folder, options)
    if options.format != "saved_model":
        return export_elsewhere(text_model, options)
    return export_text_model(
        text_model,
        options.output or folder.saved_model,
        precision=options.precision,
        metadata=folder.metadata(),
        warmup_texts=folder.sources(),
        calibration_texts=folder.sources(256),
        check=not options.no_check,
    )


def rebuilt(folder, options):
    """The text model of a run."""
    from keras_tfmr.decoding import DecodingConfig
    from training.config import TEXT_TASKS
    from training.files import RunError

    names = {field.name for field in dataclasses.fields(DecodingConfig)}
    decoding = {name: v for name, v in vars(options).items() if name in names and v is not None}
    kind = folder.read_config()["model"]["kind"]
    if options.abbreviations is not None:
        decoding["abbreviations"] = options.abbreviations
    if kind not in TEXT_TASKS:
        return folder.translator(options.weights, options.max_source_length, **decoding)
    if decoding or options.format != "saved_model":
        what = ", ".join([*(f"--{name}" for name in decoding), f"--format {options.format}"])
        raise RunError(f"{what} needs a translator. Received: {folder.path}, a run of {kind}")
    return folder.text_model(options.weights, options.max_source_length)


def export_elsewhere(translator, options):
    """Writes a translator for another engine; returns the folder."""
    from keras_tfmr.export.ctranslate2_format import write_ctranslate2
    from keras_tfmr.marian.writing import write_marian

    write = {"ctranslate2": write_ctranslate2, "marian": write_marian}[options.format]
    return write(translator, options.output or options.run / options.format)


if __name__ == "__main__":
    sys.exit(main())
