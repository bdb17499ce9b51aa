"""What transformers computes with a small MarianMTModel of random weights: tests/data/marian.npz.

Run where torch and transformers are installed: python tests/marian_fixture.py. The tests read the
file, so that they need neither.
"""

from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "data" / "marian.npz"
VOCAB = 300  # ids 0 "</s>", 1 "<unk>", the last "<pad>"
CONFIG = {
    "vocab_size": VOCAB, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "activation_function": "swish", "scale_embedding": True,
    "pad_token_id": VOCAB - 1, "decoder_start_token_id": VOCAB - 1, "eos_token_id": 0,
    "forced_eos_token_id": None, "bos_token_id": None, "max_position_embeddings": 64,
    "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True,
}  # fmt: skip
LONGEST = 14
BANNED = [[VOCAB - 1], [1]]  # padding, and the unknown piece, which our search never writes


def main():
    """Writes the file."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(7)
    model = MarianMTModel(MarianConfig(init_std=0.3, **CONFIG)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.requires_grad:
                weight += 0.1 * torch.randn_like(weight)
                if name == "model.decoder.layers.1.final_layer_norm.weight":
                    # Or a token is always likeliest next to itself.
                    weight.copy_(torch.randn_like(weight))
                if any(part in name for part in ("encoder_attn.out", "fc2", "embed", "shared")):
                    weight *= 3
                weight.copy_(weight.half().float())  # so that the file can hold halves
        model.model.shared.weight[-1] = 0.0
        model.final_logits_bias += 0.3 * torch.randn(1, VOCAB)
        model.final_logits_bias.copy_(model.final_logits_bias.half().float())
        model.final_logits_bias[0, -1] = 0.0
        model.final_logits_bias[0, 0] = 5.0  # so that some sentences end
    weights = {
        name: value.numpy().astype("float16")
        for name, value in model.state_dict().items()
        if name in ("model.shared.weight", "final_logits_bias") or ".layers." in name
    }
    source = torch.randint(2, VOCAB - 1, (6, 9))
    for row, length in enumerate((9, 7, 5, 8, 3, 6)):
        source[row, length - 1] = 0
        source[row, length:] = VOCAB - 1
    target = torch.randint(2, VOCAB - 1, (6, 7))
    target[:, 0] = VOCAB - 1
    record = {"source": source, "target": target}
    inputs = {"input_ids": source, "attention_mask": (source != VOCAB - 1).long()}
    with torch.no_grad():
        record["logits"] = model(**inputs, decoder_input_ids=target).logits[:2]
        for beams in (1, 4):
            found = model.generate(
                **inputs, num_beams=beams, max_new_tokens=LONGEST, length_penalty=0.0,
                bad_words_ids=BANNED, do_sample=False, early_stopping=False,
                output_scores=True, return_dict_in_generate=True,
            )  # fmt: skip
            record[f"ids_{beams}"] = found.sequences[:, 1:]
            if beams > 1:
                record["scores_4"] = found.sequences_scores
    arrays = {name: np.array(value) for name, value in record.items()}
    FILE.parent.mkdir(exist_ok=True)
    np.savez_compressed(FILE, **arrays, **{f"weights:{n}": w for n, w in weights.items()})
    print(FILE, FILE.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
