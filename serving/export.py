"""Exports a trained or published model as a SavedModel for TensorFlow Serving.

    python serving/export.py runs/translator
    python serving/export.py runs/translator --output models/translator --precision bfloat16
    python serving/export.py opus-mt-pt-en --output models/pt-en --precision int8 --calibrate in.txt
    python serving/export.py runs/translator --precision int8 --shortlist
    python serving/export.py runs/translator --format ctranslate2

A separate process loads and queries the new version before it appears under the next free number.
With --format, the script writes a folder for CTranslate2 instead, or one that transformers loads as
a MarianMTModel. Exit status: 0 done, 1 the export would not serve or the preset cannot be read, 2
wrong arguments.
"""

import signal
import sys
from pathlib import Path

from keras_tfmr._files import check_folder
from keras_tfmr.compat import import_tensorflow
from keras_tfmr.text.strings import read_lines
from training.command import preset_options, scripts

# Options that are keyword arguments of `from_preset`.
OF_PRESET = (
    *preset_options.NAMES, "num_return_sequences", "max_length_ratio", "max_new_tokens",
    "abbreviations",
)  # fmt: skip
# Those without an effect on a format of others.
OF_SAVED_MODEL = (
    "precision", "calibrate", "max_new_tokens", "languages", "abbreviations", "language",
    "warm_up", "no_check",
)  # fmt: skip


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    # fmt: off
    parser.add_argument("preset", metavar="PRESET",
        help="folder of a run or of a published model, or hf://OWNER/NAME")
    parser.add_argument("--output", metavar="DIR", type=Path,
        help="folder to write (default: FORMAT in the folder PRESET)")
    parser.add_argument("--format", choices=("saved_model", "ctranslate2", "transformers"),
        default="saved_model", help="format to write")
    parser.add_argument("--precision", choices=("float32", "bfloat16", "int8"),
        help="precision of weights and layers (default: float32)")
    parser.add_argument("--calibrate", metavar="FILE", type=scripts.file_to_read,
        help="texts like those of real requests, a line each, for --precision int8 and the warm-up "
        "(default: the preset's, else sentences in its language)")
    parser.add_argument("--nbest", metavar="N", type=scripts.number_from(1),
        dest="num_return_sequences",
        help="hypotheses of translate_nbest (default: --num_beams)")
    parser.add_argument("--max_length_ratio", metavar="X", type=scripts.number_from(0.0),
        help="maximum tokens of a translation per source token, plus 8 "
        "(default: the preset's, else 3)")
    parser.add_argument("--max_new_tokens", metavar="N", type=scripts.number_from(1),
        help="maximum tokens of a completion (default: the preset's, else 128)")
    parser.add_argument("--abbreviations", metavar="FILE", type=scripts.file_to_read,
        help="file of abbreviations, for documents (default: the preset's, else those of the "
        "source's language)")
    parser.add_argument("--warm_up", nargs="+", metavar="NAME",
        help="signatures that a server warms up before it serves (default: translate and "
        "translate_nbest; classify; complete and complete_greedily)")
    parser.add_argument("--no_check", action="store_true", help="do not load and query the result")
    # fmt: on
    preset_options.add_to(parser)
    options = parser.parse_args(arguments)
    if options.output is None and not Path(options.preset).is_dir():
        parser.error(f"--output is needed, because {options.preset} is no folder")
    for name in OF_SAVED_MODEL if options.format != "saved_model" else ():
        if vars(options)[name]:
            parser.error(f"--{name} has no effect with --format {options.format}")
    return options


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    try:
        print(export(options))
    except (OSError, RuntimeError, ValueError) as error:
        print(f"export.py: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def export(options):
    """Loads the preset and writes the export; returns its path."""
    given = preset_options.given(options, OF_PRESET)
    output = options.output or Path(options.preset, options.format)
    check_folder(output)
    texts = options.calibrate and read_lines(options.calibrate)
    # Here, because it takes long: --help and wrong arguments are answered at once.
    import_tensorflow()
    from keras_tfmr.text_models.load import load_text_model
    from keras_tfmr.text_models.shortlist import shortlist_for

    text_model = load_text_model(options.preset, options.weights or True, **given)
    shortlist = options.shortlist
    if shortlist is not None:
        shortlist = shortlist_for(text_model, options.preset, shortlist)
    return text_model.export(
        output,
        format=options.format,
        precision=options.precision,
        texts=texts,
        warm_up=options.warm_up,
        shortlist=shortlist,
        check=not options.no_check,
    )


if __name__ == "__main__":
    # As Ctrl-C is, an exception, which removes the unfinished export and ends the check.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
