"""Turns a published Marian model, such as one of OPUS-MT, into a run folder.

    python training/import_marian.py opus-mt-pt-en --run runs/opus-pt-en
    python training/import_marian.py opus-2020-01-01.zip --run runs/opus --target_language por

FOLDER is the downloaded model: a Marian release (*.npz, *vocab.yml, source.spm, target.spm,
decoder.yml) or a transformers folder (config.json, model.safetensors, vocab.json, source.spm,
target.spm), as a folder, a .zip or a .tar.gz. Export the run folder like any other:
python serving/export.py RUN.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    from keras_tfmr import _command_line

    parser = _command_line.parser(__doc__)
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="published model, a folder or an archive")
    add("--run", metavar="DIR", type=Path, required=True, help="run folder to write")
    add("--target_language", metavar="CODE", help="target language for texts without a tag")
    add("--overwrite", action="store_true", help="delete an earlier run in the folder")
    return parser.parse_args(arguments)


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    from training.marian.published import MarianError
    from training.marian.run import import_model
    from training.run.claim import Claim
    from training.run.files import RunError
    from training.run.folder import RunFolder

    try:
        with Claim(RunFolder(options.run)) as claim:
            claim.begin({}, {"folder": str(options.folder)}, overwrite=options.overwrite)
            published = import_model(
                options.folder, claim.folder, target_language=options.target_language
            )
    except (MarianError, RunError) as error:
        print(f"import_marian.py: error: {error}", file=sys.stderr)
        return 1
    for note in published.notes:
        print(f"note: {note}")
    print(f"Imported {published.name} ({published.form}) to {options.run}: see its report.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
