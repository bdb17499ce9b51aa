"""Turns a published MarianMT model, such as one of OPUS-MT, into a run folder.

    python training/import_marian.py hf://Helsinki-NLP/opus-mt-tc-big-en-it --output runs/opus
    python training/import_marian.py opus-mt-en-ROMANCE --output runs/opus --language por

MODEL is a folder as transformers saves it (config.json, model.safetensors, vocab.json, source.spm,
target.spm), or hf://OWNER/NAME on the Hugging Face Hub, which needs huggingface_hub and heeds
HF_HOME, HF_TOKEN and HF_ENDPOINT. Export the run folder like any other: python serving/export.py
RUN.
"""

if __name__ == "__main__":
    from training.command.scripts import begin_quietly

    begin_quietly()

import shlex
import sys
from pathlib import Path

from training.command import scripts

REPORT = """# {published[name]}

`{command}`

{config.encoder_layers} + {config.decoder_layers} layers of width
{config.d_model}, {config.num_heads} heads, {config.source_vocab:,} source and
{config.target_vocab:,} target subwords. Published decoding options: {decoding}.

## Licence

The models of OPUS-MT are published by the Language Technology Research Group at the University of
Helsinki under CC BY 4.0. If you pass on this model or its export, name the group and the licence
(https://creativecommons.org/licenses/by/4.0/), and say that the model was changed: its vocabulary
was renumbered for keras_tfmr. To cite it: Tiedemann and Thottingal 2020, OPUS-MT: Building open
translation services for the World (https://aclanthology.org/2020.eamt-1.61). A model from another
source keeps its own licence.

## What differs from the published model

- The unknown subword is never produced.
{notes}"""


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    # fmt: off
    parser.add_argument("model", metavar="MODEL",
        help="published model: a folder, or hf://OWNER/NAME")
    parser.add_argument("--output", metavar="DIR", type=Path, required=True,
        help="run folder to write")
    parser.add_argument("--language", metavar="CODE",
        help="target language for texts without a tag")
    parser.add_argument("--languages", nargs=2, metavar="CODE",
        help="codes of source and target, as in pt en (default: those that the model states)")
    parser.add_argument("--overwrite", action="store_true",
        help="delete an earlier run in the folder")
    # fmt: on
    return parser.parse_args(arguments)


def main(arguments=None):
    """The command; returns its exit status."""
    return scripts.command("import_marian.py", import_model, parse_arguments(arguments))


def import_model(options):
    """Reads the model, then writes it into the folder, in place of an earlier run if asked to."""
    from keras_tfmr._files import check_writable
    from keras_tfmr.compat import import_tensorflow
    from training.command.disk import RunError, write_atomically
    from training.corpus.store import delete
    from training.run.run_folder import RunFolder, holds_run, run_lock

    folder = RunFolder(options.output)
    check_writable(folder.path, is_folder=True)
    if holds_run(folder) and not options.overwrite:
        raise RunError(f"{folder.path} holds a run: choose another --output, or give --overwrite")
    import_tensorflow()  # now, because it takes long
    from keras_tfmr import Translator

    chosen = {"language": options.language, "languages": options.languages}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    translator = Translator.from_preset(options.model, **chosen)
    config = translator.record["config"]
    if not (published := config.get("published")):
        raise RunError(f"{options.model} is a run, not a published model")
    config["command"] = shlex.join(["python", *sys.argv])
    if options.overwrite:
        with run_lock(folder):
            folder.clear()
            delete(folder.encoded)
            (folder.path / ".lock").unlink()  # a preset is written into an empty folder
    translator.save_to_preset(folder.path)
    report = REPORT.format(
        command=config["command"],
        published=published,
        config=translator.model.config,
        decoding=", ".join(f"{n} {value}" for n, value in translator.config.to_dict().items()),
        notes="".join(f"- {line}\n" for line in published["notes"]),
    )
    write_atomically(folder.report, report)
    for note in published["notes"]:
        print(f"note: {note}")
    print(f"Imported {published['name']} to {folder.path}: see its report.md")


if __name__ == "__main__":
    sys.exit(main())
