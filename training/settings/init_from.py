"""Training that starts from another run: fine-tuning."""

from pathlib import Path

from keras_tfmr.presets.folder import PresetFolder
from keras_tfmr.presets.registered import registered_name
from training.command.disk import RunError, sha256
from training.settings.models import MODELS, TEXT_MODELS
from training.settings.recipes import RECIPES, for_tuning

DROPOUT = ("dropout_rate", "attention_dropout_rate")  # which no weight depends on
RECIPE = "base"  # for a run that names no preset, such as an imported one


class Start:
    """A finished run, of a training or of an import, that another run begins from.

    Args:
        path: Its folder.

    Attributes:
        config: The fields of the model's config.
        settings: {setting: value} of the run.
        weights: The file that holds the weights.
    """

    def __init__(self, path):
        self.path, self.folder = Path(path), PresetFolder(path)
        self.content = self.folder.read_config()
        self.settings = self.content.get("arguments", {})
        if "made_by" not in self.content["model"]:
            raise RunError(
                f"{path} holds a model of somebody's own, or one with changed layers: a run can "
                f"begin from a model that has made_by and config in {self.folder.config}"
            )
        self.config = self.content["model"]["config"]
        self.weights = self.folder.best
        for file in (self.weights, self.folder.results):
            if not file.exists():
                raise RunError(f"{path} is not a finished run: it has no {file.relative_to(path)}")

    def settings_for(self, given):
        """{setting: value} of those given, and those that follow from this run.

        The model is the same, but for its dropout; its rate is by default a third of its preset's.

        Raises:
            ValueError: If the run is of another task, or a given setting contradicts it.
        """
        task = given["task"]
        model = self._model(task)
        preset = self.settings.get("preset", RECIPE)
        if preset not in RECIPES[model]:
            raise RunError(f"{self.folder.config}: arguments.preset {preset!r} is unknown")
        fixed = self._fixed(task, model, preset)
        for name, value in (self.config | fixed).items():
            if name in given and given[name] != value and name not in DROPOUT:
                raise ValueError(
                    f"{name} is that of --init_from {self.path}, {value}: leave it out. "
                    f"Received: {given[name]}"
                )
        defaults = for_tuning(RECIPES[model][preset])
        if task == "translation":
            defaults["protect"] = self._protection(given.get("protect"))
        return defaults | given | fixed

    def _model(self, task):
        """The name of the model for `--model`; a ValueError if the run is of another task."""
        expected = registered_name(TEXT_MODELS[task])
        if (found := self.content["text_model"]["class_name"]) != expected:
            raise ValueError(
                f"a run of {task} can begin from a {expected}. Received: --init_from {self.path}, "
                f"which holds a {found}"
            )
        if task != "translation":
            return "transformer"
        names = {registered_name(made_by): name for name, made_by in MODELS.items()}
        if (made_by := self.content["model"]["made_by"]) not in names:
            raise ValueError(
                f"a run can begin from a model of {', '.join(names)}. Received: --init_from "
                f"{self.path}, a model of {made_by}"
            )
        return names[made_by]

    def _fixed(self, task, model, preset):
        """The settings that are this run's."""
        vocab_size = self.settings.get("vocab_size", self.config["target_vocab"])
        fixed = {"preset": preset, "vocab_size": vocab_size}
        if task == "translation":
            fixed |= {"model": model, "joint_vocab": self.config["joint_vocab"]}
        return fixed

    def _protection(self, given):
        """The spans that this run protects; a ValueError if it has no slots for those given."""
        own = self.content["text_model"]["config"].get("protect") or []
        if given and not own:
            raise ValueError(
                f"--protect needs slots, which the vocabulary of --init_from {self.path} lacks: "
                f"leave it out. Received: {' '.join(given)}"
            )
        return own

    def tokenizers(self):
        """`(source, target)`, the same one twice for a joint vocabulary."""
        tokenizers = self.folder.tokenizers()
        if tokenizers is None:
            raise RunError(f"{self.path} has no tokenizers")
        if (languages := tokenizers[0].target_languages) and tokenizers[0].target_language is None:
            raise RunError(
                f"{self.path} has several target languages, and none for texts that choose none: "
                f"repeat import_marian.py with --language, one of {', '.join(languages)}"
            )
        return tokenizers

    def record(self):
        """Its record in config.json, with its licence and where it started itself."""
        record = {"path": str(self.path), "weights_sha256": sha256(self.weights)}
        for name in ("published", "start"):
            if name in self.content:
                record[name] = self.content[name]
        return record
