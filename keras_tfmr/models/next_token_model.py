"""The base of the functional models that predict each next token, and can be decoded."""

from typing import Any

import keras
from keras import ops, tree

from keras_tfmr import _checks, compat
from keras_tfmr.decoding import Examples, Sampling
from keras_tfmr.decoding.constraints import Constraints
from keras_tfmr.decoding.searches import check_numbers
from keras_tfmr.layers import LearnedPositions
from keras_tfmr.models.derived_steps import DerivedSteps
from keras_tfmr.models.functional_model import FunctionalModel
from keras_tfmr.models.model_step import CachedStep, WholeSequenceStep
from keras_tfmr.models.programs import Programs, SearchOptions
from keras_tfmr.models.transformer_config import TransformerConfig

LOGITS = "logits"  # the name of their output, if a model has several


class NextTokenModel(FunctionalModel):
    """The base of `TranslationModel` and `LanguageModel`.

    Attributes:
        target_place, logits_place: The places of the target ids among the inputs and of the logits
            among the outputs.
        precision: The precision of a finished model, which is for decoding only; otherwise None.
        bounded: Whether no logit's exp() can overflow; known for finished models only.
    """

    target_name: str  # of the input with the target ids
    least_inputs = 1  # the target ids, and the sources that a model needs

    def __init__(
        self,
        inputs: Any,
        outputs: Any,
        name: str | None = None,
        *,
        config: TransformerConfig | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(inputs, outputs, name=name, config=config, **kwargs)
        if len(self.inputs) < self.least_inputs:
            raise ValueError(
                f"A {type(self).__name__} needs a source beside the target ids; one without is a "
                f"LanguageModel. Received: inputs {[x.name for x in self.inputs]}"
            )
        self.target_place = place_of_target(self, self.target_name)
        self.logits_place = place_of_logits(self)
        check_logits(self, self.outputs[self.logits_place])
        self.derived, self.programs = DerivedSteps(self), Programs(self)
        self.precision, self.bounded = None, False

    @property
    def vocab_size(self) -> int:
        """The number of target token IDs."""
        return self.outputs[self.logits_place].shape[-1]

    def why_not_cached(self) -> str | None:
        """Why `start` decodes by calling the model on all tokens so far; None if it has caches."""
        problem = self.derived.problem
        return None if problem is None else str(problem)

    def check_lengths(self, **lengths: int) -> None:
        """Raises a ValueError if fewer positions are learned than these lengths of named inputs."""
        if self.learned_positions() is not None:
            self(
                tree.map_structure(
                    lambda x: keras.KerasTensor((1, lengths[x.name], *x.shape[2:]), x.dtype),
                    self.input,
                )
            )

    def step_and_state(self, sources, batch, num_beams, max_length, fixed_shapes=None, before=0):
        """A `DecodingStep` and its state before the first token.

        Args:
            sources: The list of the inputs other than the target ids.
            batch: Number of examples.
            num_beams, max_length, fixed_shapes: As for `TranslationModel.start`.
            before: The number of tokens to decode before these, those of a prompt.
        """
        num_beams = _checks.integer("num_beams", num_beams)
        max_length = before + _checks.integer("max_length", max_length)
        if fixed_shapes is None:
            fixed_shapes = keras.backend.backend() == "jax"
        if not self.derived.has_caches(num_beams, fixed_shapes):
            step = WholeSequenceStep(self, num_beams, max_length)
            return step, step.start(sources, batch)
        derived = self.derived.step(num_beams, fixed_shapes)
        examples, vectors = [], []
        if derived.encode is not None:
            positions = ops.arange(max_length, dtype="int32")
            examples, vectors = derived.encode([*sources, positions])
        step = CachedStep(
            derived, self.vocab_size, num_beams, max_length, vectors,
            shrinks=not fixed_shapes, bounded=self.bounded,
        )  # fmt: skip
        caches = derived.empty_caches(batch * num_beams, max_length if fixed_shapes else None)
        return step, {"length": ops.zeros((), "int32"), "caches": caches, "examples": examples}

    def source_list(self, source):
        """The inputs other than the target ids as a list, of what `start` takes.

        Raises:
            ValueError: If these are others than the model has.
        """
        inputs = [x for place, x in enumerate(self.inputs) if place != self.target_place]
        names, sources = [x.name for x in inputs], None
        if isinstance(source, dict) and sorted(source) == sorted(names):
            sources = [ops.convert_to_tensor(source[name]) for name in names]
        elif len(names) == 1 and source is not None and not isinstance(source, dict):
            sources = [ops.convert_to_tensor(source)]
        elif not names and source is None:
            sources = []
        if sources is not None:
            for x, given in zip(inputs, sources, strict=True):
                # Keras would drop or add an axis of size 1.
                if len(x.shape) != len(given.shape):
                    raise ValueError(
                        f"{x.name} must have shape {x.shape}. Received: shape {tuple(given.shape)}"
                    )
                if "int" in x.dtype and len(x.shape) == 2:  # Keras would cut fractions off
                    _checks.values(x.name, given, "int32", 0, _checks.LARGEST)
            return sources
        received = sorted(source) if isinstance(source, dict) else type(source).__name__
        raise ValueError(
            f"The source of {self.name!r} must be a dictionary of the inputs {names}"
            f"{', or the only one' * (len(names) == 1)}. Received: {received}"
        )

    def generated(
        self, tensors, config, bos_ids, eos_id, sampling, jit_compile, run_eagerly, fixed_shapes
    ):
        """The `DecodingResult` of `generate`, of the tensors that `search_of` takes."""
        examples = Examples(bos_ids, eos_id, prefix=tensors.get("prefix"))
        Constraints(config, examples).check_ids(self.vocab_size)
        self.derived.check_start(bos_ids)
        options = SearchOptions(config, examples.eos_id, fixed_shapes)
        if sampling is not None:
            _checks.instance("sampling", sampling, Sampling)
            # Drawn here, random numbers are the same in each program, whatever its padding.
            draws = sampling.draws(ops.zeros_like(bos_ids), config.max_length)
            top_k = ops.cast(draws.top_k, "int32")
            tensors = {**tensors, "sampling": {**draws._asdict(), "top_k": top_k}}
        result = self.programs.run(tensors, options, jit_compile, run_eagerly)
        check_numbers(result)
        return result

    def search_of(self, tensors, options):
        """The search that `generate` compiles.

        Args:
            tensors: {name: nested tensors `[batch, ...]`}: `sources`, the list of inputs other than
                the target ids; if there is sampling, `sampling`, the arguments of `Sampling`; in a
                padded batch, `max_lengths`; what `generate` of the class adds.
            options: A `SearchOptions`.
        """
        raise NotImplementedError

    def wider(self, tensors, options):
        """These tensors, with ids padded so that few programs serve all lengths."""
        raise NotImplementedError

    def learned_positions(self):
        """The least number of positions that are learned; None if none are."""
        layers = compat.flatten_layers(self)
        learned = [layer.max_length for layer in layers if isinstance(layer, LearnedPositions)]
        return min(learned, default=None)


def place_of_target(model, name):
    """The place of the input of this name; or of the only one."""
    names = [x.name for x in model.inputs]
    if name not in names and len(names) > 1:
        raise ValueError(f"One input must be named {name!r}. Received: inputs {names}")
    return names.index(name) if name in names else 0


def place_of_logits(model):
    """The place of the logits among the outputs of a model."""
    if len(model.outputs) == 1:
        return 0
    if isinstance(model.output, dict) and LOGITS in model.output:
        return [x is model.output[LOGITS] for x in model.outputs].index(True)
    raise ValueError(
        f"Several outputs must be a dictionary with the key {LOGITS!r}. Received: "
        f"{sorted(model.output) if isinstance(model.output, dict) else model.output}"
    )


def check_logits(model, logits):
    """Raises a ValueError unless these can be logits `[batch, target, vocab]`."""
    if len(logits.shape) != 3 or logits.shape[-1] is None:
        raise ValueError(
            "The logits must have shape [batch, target, vocab], vocab being known. Received: "
            f"{logits.shape}"
        )
    for operation in model.operations:
        ends_here = any(x is logits for x in tree.flatten(operation.output))
        softmax = getattr(operation, "activation", None) is keras.activations.softmax
        softmax |= isinstance(operation, keras.layers.Softmax)
        if ends_here and (softmax or compat.operation_name(operation) == "Softmax"):
            raise ValueError(
                "The output must be logits, to which losses and searches apply the softmax. "
                f"Received: {operation.name!r}, which ends in a softmax"
            )
