"""Makes the fixtures of `test_peers.py`: small random models of transformers and what they answer.

    python tests/peers/make.py [--sizes base] [--out FOLDER]

Needs torch and transformers, which the tests do not. Each file holds the sizes, the weights by
name, token ids, the logits (or the encoder's output) in float64, how far the model's own in float32
lie from them, and 32 greedy tokens.
"""

import argparse
import copy
import json
from pathlib import Path

import numpy as np
import torch
import transformers

SIZES = {
    "tiny": dict(vocab=24, d_model=16, heads=4, kv_heads=2, dff=24, layers=2),
    "tutorial": dict(vocab=2000, d_model=128, heads=8, kv_heads=2, dff=512, layers=4),
    "base": dict(vocab=2000, d_model=512, heads=8, kv_heads=4, dff=2048, layers=6),
}
START, TOKENS = 2, 32


def llama(s):
    config = transformers.LlamaConfig(
        vocab_size=s["vocab"], hidden_size=s["d_model"], intermediate_size=s["dff"],
        num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
        num_key_value_heads=s["kv_heads"], rms_norm_eps=1e-5, tie_word_embeddings=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def gpt2(s):
    config = transformers.GPT2Config(
        vocab_size=s["vocab"], n_embd=s["d_model"], n_inner=s["dff"], n_layer=s["layers"],
        n_head=s["heads"], n_positions=64,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def bert(s):
    config = transformers.BertConfig(
        vocab_size=s["vocab"], hidden_size=s["d_model"], intermediate_size=s["dff"],
        num_hidden_layers=s["layers"], num_attention_heads=s["heads"], max_position_embeddings=64,
    )  # fmt: skip
    return transformers.BertModel(config, add_pooling_layer=False)


def t5(s):
    config = transformers.T5Config(
        vocab_size=s["vocab"], d_model=s["d_model"], d_kv=s["d_model"] // s["heads"],
        d_ff=s["dff"], num_layers=s["layers"], num_heads=s["heads"],
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=START,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


MODELS = {"llama": llama, "gpt2": gpt2, "bert": bert, "t5": t5}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", choices=SIZES, default="tiny")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    arguments = parser.parse_args()
    for name, make in MODELS.items():
        sizes = SIZES[arguments.sizes]
        torch.manual_seed(1)
        model = make(sizes).eval()
        spread(model)
        np.savez_compressed(arguments.out / f"{name}.npz", **answers(name, model, sizes))


def spread(model):
    """Weights so large that choices are clear, biases and norms included."""
    with torch.no_grad():
        for weight in model.parameters():
            fan = weight.shape[-1] if weight.dim() > 1 else 25
            weight.add_(torch.randn_like(weight) / fan**0.5)


def answers(name, model, sizes):
    """What a fixture holds."""
    rng = np.random.default_rng(3)
    source = torch.tensor(rng.integers(3, sizes["vocab"], size=(2, 9)))
    target = torch.tensor(rng.integers(3, sizes["vocab"], size=(2, 7)))
    found = {"sizes": json.dumps(sizes), "source": source.numpy().astype("int32")}
    ids = {"input_ids": source}
    if name == "t5":
        found["target"] = target.numpy().astype("int32")
        ids["decoder_input_ids"] = target
    with torch.no_grad():
        rounded, exact = (
            getattr(each(**ids), "last_hidden_state" if name == "bert" else "logits").numpy()
            for each in (model, copy.deepcopy(model).double())
        )
        found["output"] = exact.astype("float32")
        found["rounding"] = np.abs(rounded - exact).max()
        if name != "bert":
            begin = source if name == "t5" else torch.full((2, 1), START)
            found["greedy"] = model.generate(
                begin, do_sample=False, max_new_tokens=TOKENS, min_new_tokens=TOKENS,
                suppress_tokens=[0, 1], eos_token_id=1, pad_token_id=0, bos_token_id=START,
            )[:, 1:].numpy().astype("int32")  # fmt: skip
    weights = {k: v.numpy() for k, v in model.state_dict().items() if v.dtype == torch.float32}
    return found | {f"weight:{k}": v for k, v in weights.items()}


if __name__ == "__main__":
    main()
