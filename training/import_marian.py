"""Turns a published Marian model, such as one of OPUS-MT, into a run folder.

    python training/import_marian.py Helsinki-NLP/opus-mt-tc-big-en-pt --output runs/opus
    python training/import_marian.py opus-2020-01-01.zip --output runs/opus --target_language por

MODEL is a folder, a .zip, a .tar.gz, or the name of a model on the Hugging Face Hub, which needs
huggingface_hub and heeds HF_HOME, HF_TOKEN and HF_ENDPOINT. It is a Marian release (*.npz,
decoder.yml, and *vocab.yml with source.spm and target.spm, or SentencePiece models as
vocabularies) or a transformers folder (config.json, model.safetensors, vocab.json, source.spm,
target.spm). Export the run folder like any other: python serving/export.py RUN.
"""

import shlex
import sys
from pathlib import Path

REPORT = """# {name}

`{command}`

Imported from a {form}: {layers} layers of width {d_model}, {heads} heads, {source_vocab:,} source
and {target_vocab:,} target subwords. Published decoding options: {decoding}.

## Licence

The models of OPUS-MT are published by the Language Technology Research Group at the University of
Helsinki under CC BY 4.0. If you pass on this model or its export, name the group and the licence
(https://creativecommons.org/licenses/by/4.0/), and say that the model was changed: its vocabulary
was renumbered for keras_tfmr. To cite it: Tiedemann and Thottingal 2020, OPUS-MT: Building open
translation services for the World (https://aclanthology.org/2020.eamt-1.61). A model from another
source keeps its own licence.

## What differs from the published model

{notes}
"""
DIFFERENCES = ("The unknown subword is never produced.",)


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
    from keras_tfmr import marian
    from keras_tfmr.marian.files import found, unpacked
    from training.run_folder import RunFolder, begin, run_lock

    path, folder = found(options.model, options.revision), RunFolder(options.output)
    with run_lock(folder):
        begin(folder, {"folder": options.model}, overwrite=options.overwrite)
        with unpacked(path) as unpacked_path:
            published = marian.read(unpacked_path, language=options.target_language, name=path.stem)
        write_run(published, folder)
    for note in published.notes:
        print(f"note: {note}")
    print(f"Imported {published.name} ({published.form}) to {options.output}: see its report.md")


def write_run(published, folder):
    """Writes a `keras_tfmr.marian.Published` into a `RunFolder`, in place of a run."""
    from keras_tfmr.config import versions
    from training.corpus.store import delete
    from training.files import save_weights, write_atomically, write_json
    from training.run_folder import PACKAGES

    model, tokenizers = published.model, (published.source_tokenizer, published.target_tokenizer)
    decoding = published.decoding.to_dict()
    del decoding["num_return_sequences"]  # as many as there are beams, also with other beams
    described = {
        "model": {"kind": "transformer", "config": model.config.to_dict()},
        "training": {},
        "arguments": decoding,
        "command": shlex.join(["python", *sys.argv]),
        "corpus": {},
        "versions": versions(*PACKAGES),
        "published": {
            "name": published.name,
            "form": published.form,
            "target_language": tokenizers[0].target_language,
            "target_languages": tokenizers[0].target_languages,
            "notes": published.notes,
        },
    }
    folder.clear()
    delete(folder.encoded)
    folder.write_config(described)
    folder.save_tokenizers(tokenizers)
    save_weights(model, folder.best)
    write_atomically(folder.report, report(published, described["command"]))
    write_json(folder.results, {"parameters": int(model.count_params())})


def report(published, command):
    """The text of report.md."""
    config, decoding = published.model.config, published.decoding.to_dict()
    return REPORT.format(
        name=published.name,
        command=command,
        form=published.form,
        layers=f"{config.encoder_layers} + {config.decoder_layers}",
        d_model=config.d_model,
        heads=config.num_heads,
        source_vocab=config.source_vocab,
        target_vocab=config.target_vocab,
        decoding=", ".join(f"{name} {value}" for name, value in decoding.items()),
        notes="\n".join(f"- {line}" for line in (*DIFFERENCES, *published.notes)),
    )


if __name__ == "__main__":
    sys.exit(main())
