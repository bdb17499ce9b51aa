"""Models that others wrote, with their weights: the same logits, the same greedy tokens.

The fixtures are made by `tests/peers/make.py`. Larger ones, made by `--sizes base --out FOLDER`,
are checked with `KERAS_TFMR_PEERS=FOLDER`.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from helpers import to_numpy
from keras import ops
from peer_models import PEERS

from keras_tfmr.decoding import greedy

START = 2
FOLDER = Path(os.environ.get("KERAS_TFMR_PEERS", Path(__file__).parents[1] / "peers"))


def peer(name):
    """Our model with the peer's weights, and the fixture."""
    with np.load(FOLDER / f"{name}.npz") as file:
        fixture = dict(file)
    weights = {k.removeprefix("weight:"): v for k, v in fixture.items() if k.startswith("weight:")}
    kind = PEERS[name](json.loads(str(fixture["sizes"])))
    model = kind.model()
    kind.load(model, weights)
    return model, fixture


@pytest.mark.parametrize("name", PEERS)
def test_outputs_of_the_full_pass(name):
    model, fixture = peer(name)
    if name == "bert":
        output = model.encoder(fixture["source"])
    elif name == "t5":
        output = model([fixture["source"], fixture["target"]])
    else:
        output = model(fixture["source"])
    # Beside the numbers of float64, where the peer's own in float32 may be further away than this.
    atol = max(1e-4, 2 * float(fixture["rounding"]))
    np.testing.assert_allclose(to_numpy(output), fixture["output"], atol=atol, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in PEERS if name != "bert"])
def test_greedy_tokens_of_the_cached_step(name):
    model, fixture = peer(name)
    expected = fixture["greedy"]
    length = expected.shape[1]
    begin = fixture["source"] if name == "t5" else len(expected)
    step, state = model.start(begin, max_length=length + 1)
    found = greedy(
        step, state, bos_ids=ops.full((len(expected),), START, "int32"), eos_id=1,
        max_length=length + 1, min_length=length + 1, banned_ids=(0,),
    )  # fmt: skip
    np.testing.assert_array_equal(to_numpy(found.ids)[:, 0, :length], expected)
