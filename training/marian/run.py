"""Makes a run folder from a published model."""

import shlex
import sys

import numpy as np

from keras_tfmr.config import versions
from keras_tfmr.export.marian_names import halves, layer_weights, reordered
from keras_tfmr.text.marian_tokenizer import MarianTokenizer, joined
from training.files import RunError
from training.marian.files import unpacked
from training.marian.release import read_release
from training.marian.transformers_folder import read_transformers_folder
from training.run_folder import PACKAGES

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


class Weights:
    """Reads arrays by Marian's names, reorders them, and records which are left."""

    def __init__(self, published):
        self.published, self.config = published, published.config
        self.order = np.argsort(halves(self.config["d_model"]))
        self.left = dict(published.arrays)

    def assign(self, model):
        """Sets every weight of a `TranslationModel` of the published config.

        Raises:
            RunError: If an array is missing, has another shape, or does not belong to the model.
        """
        self._embeddings(model)
        self._logits(model.logits)
        for name, weight, axes in layer_weights(model):
            array = self._array(name)
            self._set(weight, name, array.reshape(-1) if len(weight.shape) == 1 else array, axes)
        if self.left:
            names = ", ".join(sorted(self.left)[:5])
            raise RunError(
                f"the model has {len(self.left)} arrays that no Marian Transformer has: {names}"
            )

    def _embeddings(self, model):
        sides = {"encoder": self.published.source, "decoder": self.published.target}
        if self.config["joint_vocab"]:
            del sides["encoder"]
        shared = "Wemb" in self.left
        for side, vocabulary in sides.items():
            name = "Wemb" if shared else f"{side}_Wemb"
            table = self._rows(name, vocabulary, keep=True)
            self._set(getattr(model, side).embedding.tokens.embeddings, name, table, (1,))
        for name in ("Wemb",) if shared else ("encoder_Wemb", "decoder_Wemb"):
            self.left.pop(name, None)

    def _logits(self, logits):
        target, tied = self.published.target, self.config["tied_logits"]
        name = "decoder_ff_logit_out_b"
        bias = self._rows(name, target, columns=True)[:, 0]
        bias = target.biases(bias, self.published.banned)
        self._set(logits.bias if tied else logits.dense.bias, name, bias)
        if not tied:
            name = "decoder_ff_logit_out_W"
            kernel = self._rows(name, target, columns=True).T
            self._set(logits.dense.kernel, name, kernel, (0,))

    def _rows(self, name, vocabulary, keep=False, columns=False):
        """A table with a row for each of our ids; `columns` for one that has them as columns."""
        table = self._array(name, keep)
        table = table.reshape(-1, table.shape[-1]).T if columns else table
        if len(table) < len(vocabulary.pieces):
            raise RunError(
                f"{name} has {len(table)} rows, the vocabulary {len(vocabulary.pieces)} pieces"
            )
        return table if name.endswith("_b") else vocabulary.rows(table)

    def _array(self, name, keep=False):
        if name not in self.left:
            raise RunError(f"the model has no array {name}")
        array = self.left[name] if keep else self.left.pop(name)
        if array.dtype.kind != "f":
            raise RunError(f"{name} holds {array.dtype}; expected floats")
        return array.astype("float32", copy=False)

    def _set(self, weight, name, value, axes=()):
        """Assigns an array, with our order along these axes."""
        if tuple(weight.shape) != value.shape:
            raise RunError(
                f"{name} has shape {value.shape} in our layout; expected {tuple(weight.shape)}"
            )
        weight.assign(reordered(value, self.order, axes))


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
    """Writes a published model into a `RunFolder`, in place of a run; returns the `Published`.

    Args:
        path: The published folder or archive.
        target_language: The language into which a model with several target languages translates
            texts without a tag.

    Raises:
        RunError: If the model cannot be imported.
    """
    from training.corpus.store import delete
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
    folder.clear()
    delete(folder.encoded)
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
