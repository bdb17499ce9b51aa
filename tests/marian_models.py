"""Published Marian models in both forms, written from the arrays of tests/data/marian.npz.

The file holds the weights of a small MarianMTModel and what transformers computed with it; the
history has the script that made it: `git log -p -- tests/marian_fixture.py`.
"""

import functools
import io
import json
from pathlib import Path

import numpy as np
import sentencepiece
import yaml
from safetensors.numpy import save_file

from training import phrasebook

FILE = Path(__file__).parent / "data" / "marian.npz"
VOCAB = 300  # ids 0 "</s>", 1 "<unk>", the last "<pad>"
LONGEST = 14  # tokens of the translations in the file
CONFIG = {
    "vocab_size": VOCAB, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "activation_function": "swish", "scale_embedding": True,
    "pad_token_id": VOCAB - 1, "decoder_start_token_id": VOCAB - 1, "eos_token_id": 0,
    "forced_eos_token_id": None, "bos_token_id": None, "max_position_embeddings": 64,
    "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True,
}  # fmt: skip
TAGS = [">>eng<<", ">>fra<<"]
GENERATION = {
    "num_beams": 4, "max_length": 15, "bad_words_ids": [[VOCAB - 1]], "pad_token_id": VOCAB - 1,
    "decoder_start_token_id": VOCAB - 1, "eos_token_id": 0, "length_penalty": 1.0,
}  # fmt: skip
OPTIONS = {
    "type": "transformer", "dim-emb": 24, "enc-depth": 2, "dec-depth": 2, "transformer-heads": 4,
    "transformer-dim-ffn": 48, "transformer-ffn-activation": "swish", "transformer-ffn-depth": 2,
    "transformer-preprocess": "", "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d", "transformer-decoder-autoreg": "self-attention",
    "transformer-tied-layers": [], "transformer-train-position-embeddings": False,
    "tied-embeddings-all": True, "dim-vocabs": [VOCAB - 1, VOCAB - 1],
}  # fmt: skip
DECODER = {"models": ["opus.npz"], "vocabs": ["opus.vocab.yml"] * 2, "beam-size": 6, "normalize": 1}
NAMES = {  # transformers' names of a layer's arrays: Marian's
    **{f"{a}.{p}": f"{b}_{{}}{q}" for a, b in (("self_attn", "self"), ("encoder_attn", "context"))
       for p, q in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("out_proj", "o"))},
    "fc1": "ffn_{}1", "fc2": "ffn_{}2", "self_attn_layer_norm": "self_Wo_ln_{}",
    "encoder_attn_layer_norm": "context_Wo_ln_{}", "final_layer_norm": "ffn_ffn_ln_{}",
}  # fmt: skip


def fixture():
    """What transformers computed, by name, and its weights in float32."""
    with np.load(FILE) as file:
        record = {name: file[name] for name in file.files}
    weights = {
        name.removeprefix("weights:"): record.pop(name).astype("float32")
        for name in [*record]
        if name.startswith("weights:")
    }
    return record, weights


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


def write_transformers_folder(folder, weights, *, config=(), generation=()):
    """A folder as `save_pretrained` leaves it."""
    folder.mkdir(exist_ok=True)
    spms, pieces = spms_and_pieces()
    config = {"model_type": "marian", **CONFIG, **dict(config)}
    ids = {piece: number for number, piece in enumerate([*pieces, "<pad>"])}
    generation = {**GENERATION, **dict(generation)}
    files = {"config": config, "vocab": ids, "generation_config": generation}
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    save_file(weights, folder / "model.safetensors")
    _write_spms(folder, spms)
    return folder


def write_release(folder, weights, *, options=(), decoder=(), extra=()):
    """A folder as a release of OPUS-MT is unpacked."""
    folder.mkdir(exist_ok=True)
    spms, pieces = spms_and_pieces()
    arrays = {"Wemb": weights["model.shared.weight"][:-1]}
    arrays["decoder_ff_logit_out_b"] = weights["final_logits_bias"][:, :-1]
    for name, value in weights.items():
        if ".layers." not in name:
            continue
        _, side, _, number, *parts, kind = name.split(".")
        theirs = NAMES[".".join(parts)]
        word = {"weight": "scale" if "_ln_" in theirs else "W",
                "bias": "bias" if "_ln_" in theirs else "b"}[kind]  # fmt: skip
        value = value.T if value.ndim == 2 else value[None]
        arrays[f"{side}_l{int(number) + 1}_{theirs.format(word)}"] = value
    text = yaml.safe_dump({**OPTIONS, **dict(options)}) + "\0"
    arrays["special:model.yml"] = np.frombuffer(text.encode(), "int8")
    np.savez(folder / "opus.npz", **arrays, **dict(extra))
    lines = [f"{json.dumps(piece, ensure_ascii=False)}: {i}\n" for i, piece in enumerate(pieces)]
    lines[7] = "? " + lines[7].replace(": 7", "\n: 7")  # as a long key is written
    (folder / "opus.vocab.yml").write_text("".join(lines), encoding="utf-8")
    (folder / "decoder.yml").write_text(yaml.safe_dump({**DECODER, **dict(decoder)}))
    _write_spms(folder, spms)
    return folder


def _write_spms(folder, spms):
    for side, spm in zip(("source", "target"), spms, strict=True):
        (folder / f"{side}.spm").write_bytes(spm)
