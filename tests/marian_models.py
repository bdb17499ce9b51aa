"""A small published model with random weights, in the files that transformers saves."""

import functools
import io
import json

import numpy as np
import sentencepiece
from safetensors.numpy import save_file

from training import phrasebook

VOCAB = 300  # ids 0 "</s>", 1 "<unk>", the last "<pad>"
CONFIG = {
    "model_type": "marian", "vocab_size": VOCAB, "d_model": 24, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "activation_function": "swish",
    "scale_embedding": True, "pad_token_id": VOCAB - 1, "decoder_start_token_id": VOCAB - 1,
    "eos_token_id": 0, "forced_eos_token_id": None, "bos_token_id": None,
    "max_position_embeddings": 64, "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}  # fmt: skip
TAGS = [">>eng<<", ">>fra<<"]
GENERATION = {
    "num_beams": 4, "max_length": 15, "bad_words_ids": [[VOCAB - 1]], "pad_token_id": VOCAB - 1,
    "decoder_start_token_id": VOCAB - 1, "eos_token_id": 0, "length_penalty": 1.0,
}  # fmt: skip


@functools.cache
def spms_and_pieces():
    """Two SentencePiece models, and a joint vocabulary, whose ids are 0 to VOCAB - 2."""
    pairs = phrasebook.pairs(800)
    spms, pieces = [], {}
    for lines in zip(*pairs, strict=True):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, vocab_size=200,
            hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
        spms.append(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=spms[-1])
        pieces |= dict.fromkeys(processor.id_to_piece(i) for i in range(3, len(processor)))
    pieces = [*pieces][: VOCAB - 3 - len(TAGS)]
    return spms, ["</s>", "<unk>", *TAGS, *pieces, *["\u2581z\u2028"] * (VOCAB - 5 - len(pieces))]


@functools.cache
def random_weights(joint=True):
    """{name: array} of a MarianMTModel whose translations depend on the text and end early."""
    rng, width, hidden = np.random.default_rng(4), CONFIG["d_model"], CONFIG["encoder_ffn_dim"]

    def product(name, inputs, outputs, scale=3):
        return {
            f"{name}.weight": rng.normal(scale=scale / inputs**0.5, size=(outputs, inputs)),
            f"{name}.bias": rng.normal(scale=0.1, size=outputs),
        }

    def norm(name):
        return {
            f"{name}.weight": rng.normal(1, 0.1, width), f"{name}.bias": rng.normal(0, 0.1, width)
        }  # fmt: skip

    def table():
        return rng.normal(scale=width**-0.5, size=(VOCAB, width))

    bias = rng.normal(scale=0.3, size=(1, VOCAB))
    bias[0, 0] += 3  # translations end
    arrays = {"final_logits_bias": bias}
    if joint:
        arrays["model.shared.weight"] = table()
    else:
        for name in ("model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
            arrays[f"{name}.weight"] = table()
    for side, kinds in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        for layer in (f"model.{side}.layers.{number}" for number in range(2)):
            for kind in kinds:
                for projection in ("q_proj", "k_proj", "v_proj"):
                    arrays |= product(f"{layer}.{kind}.{projection}", width, width)
                arrays |= product(f"{layer}.{kind}.out_proj", width, width, 12)
                arrays |= norm(f"{layer}.{kind}_layer_norm")
            arrays |= product(f"{layer}.fc1", width, hidden)
            arrays |= product(f"{layer}.fc2", hidden, width, 12)
            arrays |= norm(f"{layer}.final_layer_norm")
    return {name: array.astype("float32") for name, array in arrays.items()}


def write_published(folder, weights=None, *, config=(), generation=(), tagged=True):
    """A folder as `save_pretrained` leaves it, of one target language if not `tagged`; its path."""
    folder.mkdir(exist_ok=True)
    spms, pieces = spms_and_pieces()
    if not tagged:
        pieces = [piece.removeprefix(">>").removesuffix("<<") for piece in pieces]
    ids = {piece: number for number, piece in enumerate([*pieces, "<pad>"])}
    files = {
        "config": {**CONFIG, **dict(config)}, "vocab": ids,
        "generation_config": {**GENERATION, **dict(generation)},
    }  # fmt: skip
    joint = files["config"]["share_encoder_decoder_embeddings"]
    files |= {} if joint else {"target_vocab": ids}
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    save_file(random_weights(joint) if weights is None else weights, folder / "model.safetensors")
    for side, spm in zip(("source", "target"), spms, strict=True):
        (folder / f"{side}.spm").write_bytes(spm)
    return folder
