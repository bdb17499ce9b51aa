"""Makes a run folder from a published model."""

import shlex
import sys

from keras_tfmr.config import versions
from keras_tfmr.text.marian_tokenizer import MarianTokenizer, joined
from training.files import RunError
from training.marian.files import unpacked
from training.marian.release import read_release
from training.marian.transformers_folder import read_transformers_folder
from training.marian.weights import Weights
from training.run import PACKAGES

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


def read(path):
    """The `Published` of a folder or archive, in either form.

    Raises:
        RunError: If it cannot be read, or the model has another architecture.
    """
    with unpacked(path) as folder:
        if (folder / "config.json").exists():
            return read_transformers_folder(folder, path.stem)
        return read_release(folder, path.stem)


def model_of(published):
    """The `TransformerConfig` and the `TranslationModel` of a published model, with its weights."""
    from keras_tfmr.models import TransformerConfig, TranslationModel

    config = TransformerConfig(
        source_vocab=len(published.source.order),
        target_vocab=len(published.target.order),
        **published.config,
    )
    model = TranslationModel(config)
    Weights(published).assign(model)
    return config, model


def tokenizers_of(published, target_language=None):
    """The `(source, target)` tokenisers of a published model.

    Raises:
        RunError: If the model does not know the language, or an .spm cannot be read.
    """
    try:
        source = joined(
            published.spms[0],
            published.source.own_pieces(),
            reads_tags=True,
            target_language=target_language,
        )
        target = joined(published.spms[1], published.target.own_pieces())
    except ValueError as error:
        raise RunError(str(error)) from error
    return MarianTokenizer(source), MarianTokenizer(target)


def import_model(path, folder, *, target_language=None):
    """Writes a published model into a `RunFolder` without a run; returns the `Published`.

    Args:
        path: The published folder or archive.
        target_language: The language into which a model with several target languages translates
            texts without a tag.

    Raises:
        RunError: If the model cannot be imported.
    """
    from training.files import save_weights, write_atomically, write_json

    published = read(path)
    tokenizers = tokenizers_of(published, target_language)
    config, model = model_of(published)
    described = {
        "model": {"kind": "transformer", "config": config.to_dict()},
        "training": {},
        "arguments": dict(published.decoding),
        "command": shlex.join(["python", *sys.argv]),
        "corpus": {},
        "versions": versions(*PACKAGES),
        "published": {
            "name": published.name,
            "form": published.form,
            "target_language": tokenizers[0].target_language,
            "target_languages": [tag[2:-2] for tag in tokenizers[0].tags],
            "notes": list(published.notes),
        },
    }
    folder.write_config(described)
    folder.save_tokenizers(tokenizers)
    save_weights(model, folder.best)
    write_atomically(folder.report, report(published, config, described["command"]))
    write_json(folder.results, {"parameters": int(model.count_params())})
    return published


def report(published, config, command):
    """The text of report.md."""
    decoding = ", ".join(f"{name} {value}" for name, value in published.decoding.items())
    return REPORT.format(
        name=published.name,
        command=command,
        form=published.form,
        layers=f"{config.encoder_layers} + {config.decoder_layers}",
        d_model=config.d_model,
        heads=config.num_heads,
        source_vocab=config.source_vocab,
        target_vocab=config.target_vocab,
        decoding=decoding,
        notes="\n".join(f"- {line}" for line in (*DIFFERENCES, *published.notes)),
    )
