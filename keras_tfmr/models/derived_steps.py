"""How a model decodes: by the steps derived from its graph, or by the whole model."""

import contextlib
import functools
import warnings

import keras
from keras import tree

from keras_tfmr import _checks
from keras_tfmr.layers import MultiHeadAttention
from keras_tfmr.models.explain import with_scores
from keras_tfmr.models.graph import (
    calls_of,
    calls_that_depend_on,
    is_given,
    is_padding_mask,
    tensors_in,
)
from keras_tfmr.models.position_wise import NoStepError, is_ours
from keras_tfmr.models.step_check import BEAMS, LookAheadError, compare
from keras_tfmr.models.step_derivation import derived_step


class DerivedSteps:
    """Steps derived from the graph of a model, each once.

    It is not a layer, so that Keras does not take its contents for parts of the model.
    """

    def __init__(self, model):
        self.model, self.steps, self.warned = model, {}, False

    @functools.cached_property
    def graph(self):
        """What the logits need: see `calls_of`."""
        return calls_of(keras.Model(self.model.input, self.model.outputs[self.model.logits_place]))

    @functools.cached_property
    def explaining(self):
        """The model with the scores of its attention."""
        return with_scores(self.model)

    @functools.cached_property
    def plain(self):
        """Whether only layers of this package depend on the target ids, called as usual."""
        return is_plain(self.graph, self.model.target_place)

    def follow(self, other):
        """Decodes as the model of another one, of which this model is a copy with other layers."""
        if not other.plain:
            self.problem = other.problem

    def step(self, num_beams, fixed_shapes):
        """The `DerivedStep`; or a `NoStepError` error."""
        key = num_beams, 0 if fixed_shapes else None
        if key not in self.steps:
            try:
                self.steps[key] = derived_step(self.graph, self.model.target_place, *key)
            except NoStepError as error:
                self.steps[key] = error
        if isinstance(self.steps[key], NoStepError):
            raise self.steps[key]
        return self.steps[key]

    @functools.cached_property
    def problem(self):
        """Why the model has no caches, a `NoStepError` or `LookAheadError`; or None.

        Layers of this package, called as usual, are believed. Otherwise the model is compared with
        itself on a longer target, and with its step.
        """
        fixed_shapes, step, problem = keras.backend.backend() == "jax", None, None
        try:
            step = self.step(1 if self.plain else BEAMS, fixed_shapes)
        except NoStepError as error:
            problem = error
        # Finished models are copies of plain ones, or follow others.
        if self.plain or self.model.precision is not None:
            return problem
        try:
            compare(self.model, self.graph, step, fixed_shapes)
        except LookAheadError as error:
            return error
        except NoStepError as error:
            return problem or error
        return problem

    def has_caches(self, num_beams, fixed_shapes):
        """Whether the model decodes with caches; if not, a warning says once why.

        Raises:
            LookAheadError: If a layer looks at later tokens.
        """
        if self.plain:  # this step, which is needed anyway, shows it as well as another
            with contextlib.suppress(NoStepError):
                self.step(num_beams, fixed_shapes)
                return True
        if isinstance(self.problem, LookAheadError):
            raise self.problem
        if self.problem is not None and not self.warned:
            self.warned = True
            warnings.warn(
                f"{self.model.name!r} decodes by calling the whole model on all tokens so far, "
                f"which is slow: {self.problem}",
                stacklevel=4,
            )
        return self.problem is None

    def check_start(self, bos_ids):
        """Raises a ValueError if a known start token is padding, which the model masks.

        A step would attend to it.
        """
        known, fixed_shapes = _checks.known(bos_ids), keras.backend.backend() == "jax"
        if known is None or (known != 0).all() or not self.has_caches(1, fixed_shapes):
            return
        if self.step(1, fixed_shapes).masks_padding:
            raise ValueError(
                f"{self.model.name!r} masks the ID 0 as padding, so that no target can start with "
                "it: give the embedding mask_zero=False. Received: the start token 0"
            )


def is_plain(graph, target):
    """See `DerivedSteps.plain`; as usual is with tensors, and an embedding with `reverse=True`.

    A `MultiHeadAttention` on its own may attend to later tokens.
    """
    inputs, _, calls = graph
    for call in calls_that_depend_on(inputs[target], calls):
        if all(is_padding_mask(x, inputs[target]) for x in call.outputs):
            continue  # Keras's own, of an embedding
        options = {name: value for name, value in call.kwargs.items() if name != "reverse"}
        given = [x for x in tree.flatten((call.args, options)) if is_given(x)]
        if isinstance(call.operation, MultiHeadAttention) or not is_ours(call.operation):
            return False
        if len(given) > len(tensors_in(given)):
            return False
    return True
