"""Exports a trained model as a SavedModel for TensorFlow Serving.

    python serving/export.py runs/translator
    python serving/export.py runs/translator --to /srv/models/translator --xla --precision bfloat16
    python serving/export.py runs/translator --format ctranslate2

The new version is loaded and queried in a separate process before it appears under the next free
number. --format writes a folder for CTranslate2, or one that transformers loads as a MarianMTModel,
instead. Exit status: 0 done, 1 the export would not serve or the run folder cannot be read, 2 wrong
arguments.
"""

import sys
from pathlib import Path

DECODING = ("beams", "n", "length_penalty", "max_length", "length_factor")  # options
FORMATS = ("saved_model", "ctranslate2", "marian")


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    from keras_tfmr import _command_line

    parser = _command_line.parser(__doc__)
    add = parser.add_argument
    add("run", metavar="RUN_FOLDER", type=Path, help="what a script of training/ wrote")
    add("--to", metavar="DIR", type=Path, help="where to write (default: RUN_FOLDER/FORMAT)")
    add("--format", choices=FORMATS, default="saved_model", help="what to write")
    add("--weights", metavar="FILE", type=Path, help="(default: the best of the run)")
    add("--xla", action="store_true", help="compile the decoder; the server must allow it")
    add("--precision", choices=("float32", "bfloat16"), default="float32", help="of the weights")
    add("--beams", type=int, metavar="N", help="beam width, 1 for greedy (default: the run's)")
    add("--n", type=int, metavar="N", help="translations of translate_nbest (default: --beams)")
    add("--length_penalty", type=float, metavar="X", help="(default: the run's)")
    add("--max_length", type=int, metavar="N", help="most tokens of a translation (default: 128)")
    add(
        "--length_factor",
        type=float,
        metavar="X",
        help="the same for each source token (default: 3)",
    )
    add("--max_source_length", type=int, metavar="N", default=128, help="most tokens of a text")
    add("--no_check", action="store_true", help="do not load and query the result")
    return parser.parse_args(arguments)


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    # Only here, so that --help and a wrong argument are answered at once.
    from keras_tfmr.export.check import ExportError
    from training.run.files import RunError

    try:
        print(export(options))
    except (ExportError, RunError, ValueError, OSError) as error:
        print(f"export.py: error: {error}", file=sys.stderr)
        return 1
    return 0


def export(options):
    """Rebuilds the run's text model and exports it; returns the version's path."""
    from keras_tfmr.export import export_text_model
    from training.run.folder import RunFolder
    from training.text.settings import TASKS

    folder = RunFolder(options.run)
    if folder.read_config()["model"]["kind"] in TASKS:
        return export_text_task(folder, options)
    asked = {name: getattr(options, name) for name in DECODING}
    translator = folder.translator(
        options.weights,
        options.max_source_length,
        **{name: value for name, value in asked.items() if value is not None},
    )
    if options.format != "saved_model":
        return export_elsewhere(translator, options)
    return export_text_model(
        translator,
        options.to or folder.saved_model,
        xla=options.xla,
        precision=options.precision,
        metadata=folder.metadata(),
        warmup_texts=folder.sources(),
        check=not options.no_check,
    )


def export_text_task(folder, options):
    """Exports the classifier, tagger or language model of a run."""
    from keras_tfmr.export import export_text_model
    from training.run.files import RunError
    from training.text.tasks import text_model_of

    given = [name for name in DECODING if getattr(options, name) is not None]
    if given or options.format != "saved_model":
        what = ", ".join([*(f"--{name}" for name in given), f"--format {options.format}"])
        raise RunError(f"{what} is for translators; {folder.path} is a run of another task")
    return export_text_model(
        text_model_of(folder, options.weights, options.max_source_length),
        options.to or folder.saved_model,
        xla=options.xla,
        precision=options.precision,
        metadata=folder.metadata(),
        warmup_texts=folder.sources(),
        check=not options.no_check,
    )


def export_elsewhere(translator, options):
    """Writes a translator for another engine; returns the folder."""
    from keras_tfmr.export.ctranslate2_format import write_ctranslate2
    from keras_tfmr.export.marian_format import write_marian

    write = {"ctranslate2": write_ctranslate2, "marian": write_marian}[options.format]
    return write(translator, options.to or options.run / options.format)


if __name__ == "__main__":
    sys.exit(main())
