"""Models that others wrote, with their weights: the same logits, the same greedy tokens.

transformers made the files in tests/peers; the history has the script: `git log -p --
tests/peers/make.py`.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import to_numpy
from keras import ops
from peer_models import PEERS, with_weights_of

from keras_tfmr.decoding import greedy

START = 2
FOLDER = Path(__file__).parents[1] / "peers"


@pytest.mark.parametrize("peer", PEERS)
def test_outputs_and_greedy_tokens(peer):
    """Those of the full pass, and of the cached step."""
    with np.load(FOLDER / f"{peer.__name__}.npz") as file:
        fixture = dict(file)
    weights = {k.removeprefix("weight:"): v for k, v in fixture.items() if k.startswith("weight:")}
    model = with_weights_of(peer, json.loads(str(fixture["sizes"])), weights)
    source, name = fixture["source"], peer.__name__
    run = model.encoder if name == "bert" else model
    output = run([source, fixture["target"]] if name == "t5" else source)
    # Beside the numbers of float64, where the peer's own in float32 may be further away than this.
    atol = max(1e-4, 2 * float(fixture["rounding"]))
    np.testing.assert_allclose(to_numpy(output), fixture["output"], atol=atol, rtol=1e-4)
    if name == "bert":
        return
    expected = fixture["greedy"]
    rows, length = expected.shape
    step, state = model.start(source if name == "t5" else rows, max_length=length + 1)
    found = greedy(
        step, state, bos_ids=ops.full((rows,), START, "int32"), eos_id=1,
        max_length=length + 1, min_length=length + 1, banned_ids=(0,),
    )  # fmt: skip
    np.testing.assert_array_equal(to_numpy(found.ids)[:, 0, :length], expected)
