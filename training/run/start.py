"""Where a fine-tuning begins: the model, weights and tokenizers of another run."""

import hashlib
from pathlib import Path

import numpy as np

from training.run.files import RunError, read_json
from training.run.folder import RunFolder
from training.run.models import make_model
from training.run.vocabulary_transfer import carry_over

RECIPE = "base"  # for a run that names no preset, such as an imported one
# A published model bans subwords by biases of -1e9, which label smoothing would add to the loss.
# A bias of -50 bans them as well.
LEAST_BIAS = -50.0


def opened(path):
    """The `Start` of a path.

    Args:
        path: A run folder, an exported version, or a folder of versions, whose newest is taken.

    Raises:
        RunError: If it is none of them.
    """
    path = Path(path)
    versions = [p for p in path.glob("[0-9]*/saved_model.pb") if p.parent.name.isdigit()]
    if (path / "saved_model.pb").exists():
        return ExportedStart(path)
    if versions and not (path / "config.json").exists():
        return ExportedStart(max(versions, key=lambda p: int(p.parent.name)).parent)
    return Start(path)


class Start:
    """A finished run, of a training or of an import, that another run begins from.

    Args:
        path: Its folder.

    Attributes:
        kind: Of the model, a key of `models.KINDS`.
        config: The model's config, a dictionary.
        weights: The file that holds the weights.

    Raises:
        RunError: If it holds no finished run.
    """

    def __init__(self, path):
        self.path, self.folder = path, RunFolder(path)
        self.described = self.folder.read_config()
        self.weights = self.folder.best
        for file in (self.weights, self.folder.results):
            if not file.exists():
                raise RunError(f"{path} is not a finished run: it has no {file.relative_to(path)}")
        self.kind = self.described["model"]["kind"]
        self.config = self.described["model"]["config"]

    @property
    def settings(self):
        """{setting: value} of the run."""
        return self.described["arguments"]

    @property
    def preset(self):
        """The preset whose recipe a training from this run follows."""
        return self.settings.get("preset", RECIPE)

    def tokenizers(self):
        """`(source, target)`, the same one twice for a joint vocabulary."""
        found = self.folder.tokenizers()
        if found is None:
            raise RunError(f"{self.path} has no tokenizers")
        return found

    def assign(self, model, tokenizers=None):
        """Gives the weights to a model of the same config.

        Args:
            model: The model.
            tokenizers: Its own `(source, target)` tokenizers if it has another vocabulary.
        """
        try:
            if tokenizers is None:
                self._assign(model)
            else:
                old = make_model(self.kind, self.config)
                self._assign(old)
                carry_over(old, self.tokenizers(), model, tokenizers)
        except (OSError, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise RunError(f"Cannot load the weights of {self.path}: {reason}") from error
        from training.run.checkpoints import value_of  # imports TensorFlow, not needed for --help

        for weight in model.trainable_variables:
            if weight.path.endswith("bias"):
                weight.assign(np.maximum(value_of(weight), LEAST_BIAS))

    def _assign(self, model):
        model.load_weights(self.weights)

    def record(self):
        """What config.json records about it, with its licence and where it began itself."""
        with self.weights.open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
        of_it = {n: self.described[n] for n in ("published", "start") if n in self.described}
        return {"path": str(self.path), "weights_sha256": checksum, **of_it}


class ExportedStart(Start):
    """A run as it was exported, read from the SavedModel alone.

    Args:
        path: Folder of the version.
    """

    def __init__(self, path):
        self.path = path
        self.weights = path / "variables" / "variables.data-00000-of-00001"
        about = read_json(path / "assets.extra" / "keras_tfmr.json")
        run = about.get("run", {}).get("config")
        if not run:
            raise RunError(f"{path} was not exported from a run: give the run folder instead")
        self.described = run
        self.kind = run["model"]["kind"]
        self.config = run["model"]["config"]

    def tokenizers(self):
        from keras_tfmr.text.tokenizer import SubwordTokenizer

        graph = _Graph(self.path)
        source, target = graph.subwords()
        tokenizer = SubwordTokenizer.from_bytes(source)
        return tokenizer, tokenizer if source == target else SubwordTokenizer.from_bytes(target)

    def _assign(self, model):
        import tensorflow as tf

        names = _Graph(self.path).weights()
        arrays = tf.train.load_checkpoint(str(self.path / "variables" / "variables"))
        for weight in model.weights:
            # Exports in bfloat16 are widened.
            weight.assign(arrays.get_tensor(names[weight.path]).astype("float32"))


class _Graph:
    """The variables and tokenizers of a SavedModel, read without loading it."""

    def __init__(self, path):
        from tensorflow.core.protobuf import saved_model_pb2

        found = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
        self._graph = found.meta_graphs[0]
        self._nodes = self._graph.object_graph_def.nodes

    def weights(self):
        """{path of a weight: its name in the checkpoint}."""
        children = self._child(self._nodes[0], "weights").children
        return {
            self._nodes[child.node_id].variable.name: (
                f"weights/{child.local_name}/.ATTRIBUTES/VARIABLE_VALUE"
            )
            for child in children
        }

    def subwords(self):
        """The SentencePiece models of the source and the target tokenizer, bytes."""
        tokenizers = self._child(self._nodes[0], "tokenizers")
        return [self._subwords(self._child(tokenizers, side)) for side in ("source", "target")]

    def _subwords(self, node):
        for step in ("_ops", "_model_resource", "_create_resource"):
            node = self._child(node, step)
        (function,) = node.function.concrete_functions
        library = {f.signature.name: f for f in self._graph.graph_def.library.function}
        (model,) = (
            op.attr["model"].s for op in library[function].node_def if op.op == "SentencepieceOp"
        )
        return model

    def _child(self, node, name):
        (found,) = (child.node_id for child in node.children if child.local_name == name)
        return self._nodes[found]
