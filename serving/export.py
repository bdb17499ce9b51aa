"""Exports a trained translator as a SavedModel for TensorFlow Serving.

    python serving/export.py runs/translator
    python serving/export.py runs/translator --to /srv/models/translator --xla --precision bfloat16
    python serving/export.py runs/translator --format ctranslate2

The new version is loaded and asked in a process of its own before it appears under the next free
number. With --format it is a folder for CTranslate2, or one that transformers loads as a
MarianMTModel, instead. Exit status: 0 done, 1 the export would not serve or the run folder cannot
be read, 2 wrong arguments.
"""

import argparse
import csv
import sys
from pathlib import Path

if __name__ == "__main__":
    # Run as a script, it finds the project's packages beside its folder, not in it.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

# What of a `DecodingConfig` a run can have settings of, and the command line options.
DECODING = ("beams", "n", "length_penalty", "length_offset", "max_length", "length_factor")
FORMATS = ("saved_model", "ctranslate2", "marian")


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    introduction, rest = __doc__.split("\n", 1)
    parser = argparse.ArgumentParser(
        description=introduction, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("run", metavar="RUN_FOLDER", type=Path, help="what training/train_pt_en.py wrote")
    add("--to", metavar="DIR", type=Path, help="folder of versions [RUN_FOLDER/saved_model]")
    add("--format", choices=FORMATS, default="saved_model", help="[%(default)s]")
    add("--weights", metavar="FILE", type=Path, help="[RUN_FOLDER/weights/best.weights.h5]")
    add("--xla", action="store_true", help="compile the decoder; the server must allow it")
    add("--precision", choices=("float32", "bfloat16"), default="float32", help="[%(default)s]")
    add("--beams", type=int, metavar="N", help="beam width, 1 for greedy [the run's]")
    add("--n", type=int, metavar="N", help="translations of translate_nbest [beam width]")
    add("--length_penalty", type=float, metavar="X", help="[the run's]")
    add("--max_length", type=int, metavar="N", help="most tokens of a translation")
    add("--length_factor", type=float, metavar="X", help="most tokens for each source token [3]")
    add("--max_source_length", type=int, metavar="N", default=128, help="of a text [%(default)s]")
    add("--no_check", action="store_true", help="do not load and ask the result")
    return parser.parse_args(arguments)


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    # Only here, so that --help and a wrong argument are answered at once.
    from keras_tfmr.export.check import ExportError
    from training.run.folder import RunError

    try:
        print(export(options))
    except (ExportError, RunError, ValueError, OSError) as error:
        print(f"export: {error}", file=sys.stderr)
        return 1
    return 0


def export(options):
    """Rebuilds the run's translator and exports it; returns the version's path."""
    from keras_tfmr.export import export_translator
    from training.run.folder import read_json

    run = read_json(options.run / "config.json")
    if options.format != "saved_model":
        return export_elsewhere(translator_of(options, run), options)
    results = options.run / "results.json"
    return export_translator(
        translator_of(options, run),
        options.to or options.run / "saved_model",
        xla=options.xla,
        precision=options.precision,
        metadata={"config": run, "results": read_json(results) if results.exists() else None},
        warmup_texts=validation_texts(options.run),
        check=not options.no_check,
    )


def export_elsewhere(translator, options):
    """Writes a translator for another engine; returns the folder."""
    from keras_tfmr.export.ctranslate2_format import write_ctranslate2
    from keras_tfmr.export.marian_format import write_marian

    write = {"ctranslate2": write_ctranslate2, "marian": write_marian}[options.format]
    return write(translator, options.to or options.run / options.format)


def translator_of(options, run):
    """The `Translator` of a run folder, with the decoding options of the command line."""
    from keras_tfmr.decoding import DecodingConfig
    from keras_tfmr.text.tokenizer import SubwordTokenizer
    from keras_tfmr.text.translator import Translator
    from training.run.folder import tokenizer_paths
    from training.run.models import make_model

    model = make_model(run["model"]["kind"], run["model"]["config"])
    model.load_weights(options.weights or options.run / "weights" / "best.weights.h5")
    joint, both = tokenizer_paths(options.run)
    asked = {name: getattr(options, name, None) for name in DECODING}
    asked = {name: value for name, value in asked.items() if value is not None}
    decoding = {name: run["arguments"][name] for name in DECODING if name in run["arguments"]}
    decoding |= asked
    if "n" not in asked:
        decoding["n"] = decoding["beams"]
    return Translator(
        model,
        *(SubwordTokenizer.load(path) for path in ([joint] if joint.exists() else both)),
        config=DecodingConfig(**decoding),
        max_source_length=options.max_source_length,
    )


def validation_texts(run, count=16):
    """The first source sentences the run was measured on: real requests for the warm-up file."""
    file = run / "translations.tsv"
    if not file.exists():
        return None
    with file.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines, dialect="excel-tab", quoting=csv.QUOTE_NONE)
        return [row["source"] for row, _ in zip(rows, range(count), strict=False)] or None


if __name__ == "__main__":
    sys.exit(main())
