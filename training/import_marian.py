"""Turns a published Marian model, such as one of OPUS-MT, into a run folder.

    python training/import_marian.py Helsinki-NLP/opus-mt-tc-big-en-pt --output runs/opus
    python training/import_marian.py opus-2020-01-01.zip --output runs/opus --target_language por

MODEL is a folder, a .zip, a .tar.gz, or the name of a model on the Hugging Face Hub, which needs
huggingface_hub and heeds HF_HOME, HF_TOKEN and HF_ENDPOINT. It is a Marian release (*.npz,
decoder.yml, and *vocab.yml with source.spm and target.spm, or SentencePiece models as
vocabularies) or a transformers folder (config.json, model.safetensors, vocab.json, source.spm,
target.spm). Export the run folder like any other: python serving/export.py RUN.
"""

import sys
from pathlib import Path


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    from keras_tfmr import _command_line

    parser = _command_line.parser(__doc__)
    add = parser.add_argument
    add("model", metavar="MODEL", help="published model: a folder, an archive, or OWNER/NAME")
    add("--output", metavar="DIR", type=Path, required=True, help="run folder to write")
    add("--revision", help="branch, tag or commit of a model on the Hub")
    add("--target_language", metavar="CODE", help="target language for texts without a tag")
    add("--overwrite", action="store_true", help="delete an earlier run in the folder")
    return parser.parse_args(arguments)


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    # Imported here, so that --help and wrong arguments are answered at once.
    from training.process import command

    return command("import_marian.py", import_to_folder, options)


def import_to_folder(options):
    """Finds the model, and imports it."""
    from training.marian.files import found

    path = found(options.model, options.revision)
    from training.marian.run import import_model
    from training.run_folder import RunFolder, begin, run_lock

    folder = RunFolder(options.output)
    with run_lock(folder):
        begin(folder, {"folder": options.model}, overwrite=options.overwrite)
        published = import_model(path, folder, target_language=options.target_language)
    for note in published.notes:
        print(f"note: {note}")
    print(f"Imported {published.name} ({published.form}) to {options.output}: see its report.md")


if __name__ == "__main__":
    sys.exit(main())
