"""What benchmarks/imported.py runs in processes of their own: each loads one library's model.

A folder holds `published`, a transformers folder; `release`, its weights as Marian's .npz;
`ctranslate2`, what CTranslate2's own converter makes of it; and `sentences.json`.
"""

import json
import os
import sys
import time
from pathlib import Path

from benchmarks import measure

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

BATCH = 100  # sentences of a batch in the check
FORCED = 8  # sentences whose logits are compared
BATCHES = {1: 4, 32: 1}  # {sentences of a request: requests} of a measurement


def prepare(folder, data, size, varied="varied"):
    """Writes what the folder lacks; `varied` "" leaves the weights as transformers draws them."""
    folder, size = Path(folder), json.loads(size)
    if not (folder / "published").exists():
        make(folder / "published", Path(data), size, bool(varied))
    if not (folder / "release").exists():
        release(folder)
    if not (folder / "ctranslate2").exists():
        from ctranslate2.converters import TransformersConverter

        TransformersConverter(str(folder / "published")).convert(str(folder / "ctranslate2"))
    return True


def make(folder, data, size, varied):
    """Saves a MarianMTModel of random weights; the vocabulary is learned from the pairs."""
    import sentencepiece
    import torch
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True)
    pairs = [line.split("\t")[:2] for line in data.read_text("utf-8").splitlines()]
    found = {"</s>": None, "<unk>": None}
    for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        with (folder / f"{side}.spm").open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines), model_writer=file,
                vocab_size=size["vocab_size"] // 2, hard_vocab_limit=False, minloglevel=2,
            )  # fmt: skip
        processor = sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm"))
        found |= dict.fromkeys(processor.id_to_piece(i) for i in range(3, len(processor)))
    pad = size["vocab_size"] - 1
    pieces = [*found, *(f"\u2581x{i}" for i in range(pad))][:pad]
    ids = {piece: i for i, piece in enumerate([*pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    torch.manual_seed(1)
    model = MarianMTModel(
        MarianConfig(
            **size, activation_function="swish", scale_embedding=True, pad_token_id=pad,
            decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=None,
            max_position_embeddings=512, init_std=0.05 if varied else 0.02,
        )
    )  # fmt: skip
    if varied:
        vary(model)
    model.generation_config.update(num_beams=4, max_length=512, bad_words_ids=[[pad]])
    model.save_pretrained(folder)


def vary(model):
    """Scales the weights so that the model does not repeat one token, as small random ones do."""
    import torch

    scales = {"shared": 3, "q_proj": 2, "k_proj": 2, "out_proj": 0.35, "fc2": 0.35}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            part = name.split(".")[-2]
            if name.endswith("weight") and part in scales:
                weight *= scales[part]
        last = model.model.decoder.layers[-1].final_layer_norm.weight
        last.copy_(torch.randn_like(last))  # or the likeliest token is always the last one
        model.final_logits_bias.normal_(0, 0.3)
        model.final_logits_bias[0, 0] = 9 * model.config.d_model / 512  # so that some end
        model.final_logits_bias[0, -1] = 0.0


def release(folder):
    """Writes the same weights as Marian's release."""
    from marian_models import write_release
    from safetensors.numpy import load_file

    folder, published = folder / "release", folder / "published"
    config = json.loads((published / "config.json").read_text())
    ids = json.loads((published / "vocab.json").read_text())
    pieces = sorted(ids, key=ids.get)[: config["pad_token_id"]]
    spms = [(published / f"{side}.spm").read_bytes() for side in ("source", "target")]
    options = {
        "dim-emb": config["d_model"], "enc-depth": config["encoder_layers"],
        "dec-depth": config["decoder_layers"], "dim-vocabs": [len(pieces)] * 2,
        "transformer-heads": config["encoder_attention_heads"],
        "transformer-dim-ffn": config["encoder_ffn_dim"],
        "transformer-ffn-activation": config["activation_function"],
    }  # fmt: skip
    weights = load_file(published / "model.safetensors")
    write_release(folder, weights, options=options, spms=(spms, pieces))


def theirs(folder, form, beam_sentences, tokens):
    """Keeps what transformers computes, in published ids; padding is left out."""
    import numpy as np
    import torch
    from marian_fixture import as_marian

    folder, texts = Path(folder), json.loads((Path(folder) / "sentences.json").read_text())
    tokenizer, model = marian(folder)
    if form == "release":
        with torch.no_grad():
            as_marian(model)
            model.final_logits_bias[0, -1] = -1e9  # Marian's vocabulary has no padding
    pad, found = tokenizer.pad_token_id, {"source": [], "scores": [], "1": [], "4": []}

    def rows(ids):
        return [row[row != pad].tolist() for row in ids]

    for beams, count in ((1, len(texts)), (4, int(beam_sentences))):
        for begin in range(0, count, BATCH):
            inputs = tokenizer(texts[begin : min(begin + BATCH, count)], **PADDED)
            out = generate(model, inputs, tokenizer, beams, int(tokens))
            found[str(beams)] += rows(out.sequences[:, 1:])
            if beams == 1:
                found["source"] += rows(inputs["input_ids"])
                if not begin:
                    few = {name: value[:FORCED] for name, value in inputs.items()}
                    few["decoder_input_ids"] = out.sequences[:FORCED, :-1]
            else:
                found["scores"] += out.sequences_scores.tolist()
    (folder / f"{form}.json").write_text(json.dumps(found))
    with torch.inference_mode():
        logits = {"float32": model(**few).logits, "float64": model.double()(**few).logits}
    np.savez(folder / f"{form}.npz", **{dtype: value.numpy() for dtype, value in logits.items()})
    return True


PADDED = {"return_tensors": "pt", "padding": True}


def marian(folder):
    from transformers import MarianMTModel, MarianTokenizer

    tokenizer = MarianTokenizer.from_pretrained(folder / "published")
    return tokenizer, MarianMTModel.from_pretrained(folder / "published").eval()


def generate(model, inputs, tokenizer, beams, tokens):
    import torch

    with torch.inference_mode():
        return model.generate(
            **inputs, num_beams=beams, max_new_tokens=tokens, length_penalty=0.0,
            do_sample=False, early_stopping=False, return_dict_in_generate=True,
            bad_words_ids=[[tokenizer.pad_token_id], [tokenizer.unk_token_id]],
            output_scores=beams > 1,
        )  # fmt: skip


def compared(folder, form, tokens):
    """Compares what our model computes with what `theirs` kept."""
    import numpy as np

    from training.marian.run import model_of, read, tokenizers_of

    folder = Path(folder)
    texts = json.loads((folder / "sentences.json").read_text())
    reference = json.loads((folder / f"{form}.json").read_text())
    published = read(folder / form)
    (tokenizer, _), (_, model) = tokenizers_of(published), model_of(published)
    order = published.target.order
    ids = {int(old): new for new, old in enumerate(order) if new not in (0, 2)}
    source, found, scores = searched(model, tokenizer, texts, reference, int(tokens), order)

    def logits_of(rows):
        """Of our model after each of the reference's tokens: [len(rows), tokens, vocab]."""
        target = np.zeros((len(rows), int(tokens)), "int32")
        for line, row in zip(target, rows, strict=True):
            line[: len(reference["1"][row])] = [2, *(ids[i] for i in reference["1"][row][:-1])]
        inputs = tokenizer.encode_truncated([texts[row] for row in rows], 512)[0]
        return np.array(model([np.array(inputs), target]))

    with np.load(folder / f"{form}.npz") as file:
        rounded, exact = file["float32"], file["float64"]
    columns = [ids[i] for i in sorted(ids)]
    ends = [len(row) for row in reference["1"][: len(exact)]]
    own = logits_of(range(len(ends)))[:, :, columns]
    rounded, exact = rounded[:, :, sorted(ids)], exact[:, :, sorted(ids)]

    def apart_by(one, other):
        return max(float(np.abs(one[i, :n] - other[i, :n]).max()) for i, n in enumerate(ends))

    apart = []
    for row, (ours, other) in enumerate(zip(found["1"], reference["1"], strict=True)):
        if ours != other:
            at = next(
                i for i, pair in enumerate(zip(ours, other, strict=False)) if len({*pair}) > 1
            )
            step = logits_of([row])[0, at]
            apart.append([texts[row], float(abs(step[ids[ours[at]]] - step[ids[other[at]]]))])
    beams = zip(found["4"], reference["4"], scores, reference["scores"], texts, strict=False)

    def closest(text):
        source = np.array(tokenizer.encode_truncated([text], 512)[0])
        return closest_cut(lambda rows: model([source.repeat(len(rows), 0), rows]), int(tokens))

    return {
        "positions": sum(ends), "largest": apart_by(exact, np.zeros_like(exact)),
        "logits": apart_by(own, rounded), "exact_ours": apart_by(own, exact),
        "exact_theirs": apart_by(rounded, exact),
        "sentences": len(texts), "ended": sum(row[-1] == 0 for row in reference["1"]),
        "tokens": sum(len({*row}) for row in reference["1"]) / len(texts),
        "sources_apart": sum(a != b for a, b in zip(source, reference["source"], strict=True)),
        "greedy_apart": apart, "beam_sentences": len(found["4"]),
        "beam_ended": sum(row[-1] == 0 for row in reference["4"]),
        "beam_apart": [
            [text, abs(p - q), closest(text)] for a, b, p, q, text in beams if a != b
        ],
        "scores": max(abs(p - q) for p, q in zip(scores, reference["scores"], strict=True)),
    }  # fmt: skip


def closest_cut(logits_of, tokens, beams=4):
    """How far a search's worst kept hypothesis is from its best dropped one, at the closest step.

    Args:
        logits_of: A function from ids `[rows, length]` to logits `[rows, length, vocab]`.
        tokens: The most tokens of a translation.
        beams: The hypotheses that the search keeps; it ends with the first that ends.
    """
    import numpy as np

    rows, scores, closest = np.array([[2]], "int32"), np.zeros((1, 1)), np.inf
    while rows.shape[1] <= tokens and not (rows == 3).any():
        logits = np.array(logits_of(rows))[:, -1].astype("float64")
        logits[:, :3] = -np.inf
        total = scores + logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        best = np.argsort(-total, axis=None)[: beams + 1]
        best, values = best[:beams], total.ravel()[best]
        closest = min(closest, values[beams - 1] - values[beams])
        token = (best % total.shape[1]).astype("int32")[:, None]
        rows = np.concatenate([rows[best // total.shape[1]], token], axis=1)
        scores = values[:beams, None]
    return float(closest)


def searched(model, tokenizer, texts, reference, tokens, order):
    """Sources, {beams: translations} in published ids, and the scores of the beam search."""
    import tensorflow as tf

    from keras_tfmr.decoding import DecodingConfig

    def search(beams):
        config = DecodingConfig(beams=beams, max_length=tokens, length_penalty=0.0)

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
        def call(source):
            step, state = model.start(source, beams=beams, max_length=tokens)
            start = tf.fill([tf.shape(source)[0]], 2)
            return config.decode(step, state, start_ids=start, end_id=3, banned_ids=(0, 1, 2))

        return call

    sources, found, scores = [], {"1": [], "4": []}, []
    for beams in found:
        call = search(int(beams))
        for begin in range(0, len(reference[beams]), BATCH):
            batch = texts[begin : min(begin + BATCH, len(reference[beams]))]
            source = tokenizer.encode_truncated(batch, 512)[0]
            result = call(source)
            found[beams] += [order[row[row != 0]].tolist() for row in result.ids.numpy()[:, 0]]
            if beams == "1":
                sources += [order[row[row != 0]].tolist() for row in source.numpy()]
            else:
                scores += result.scores.numpy()[:, 0].tolist()
    return sources, found, scores


def speed(folder, engine, setting, beams, tokens, seconds):
    """Times requests of each size; returns rates, the peak of memory and the translations."""
    folder, beams = Path(folder), int(beams)
    translate = ENGINES[engine](folder, setting, beams, int(tokens))
    texts = json.loads((folder / "sentences.json").read_text())
    rates, found = {}, []
    for batch, count in BATCHES.items():
        requests = [texts[i * batch : (i + 1) * batch] for i in range(count)]
        found = [text for request in requests for text in translate(request)]  # warms up
        done, begun = 0, time.perf_counter()
        while done < 2 or time.perf_counter() - begun < float(seconds):
            for request in requests:
                translate(request)
            done += 1
        rates[batch] = done * count * batch / (time.perf_counter() - begun)
    status = Path("/proc/self/status").read_text()  # ru_maxrss would count the parent's memory
    peak = int(status.split("VmHWM:")[1].split()[0]) // 1024
    return {"rates": rates, "memory_mib": peak, "texts": found}


def texts(folder, engine):
    """The translations of all sources with the published options, in batches of like length."""
    folder = Path(folder)
    sources = json.loads((folder / "sources.json").read_text())
    translate = published_ours(folder) if engine == "ours" else published_theirs(folder)
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found = [None] * len(sources)
    for start in range(0, len(order), 32):
        chosen = order[start : start + 32]
        for i, text in zip(chosen, translate([sources[i] for i in chosen]), strict=True):
            found[i] = text
    return found


def published_ours(folder):
    from benchmarks.translating import ours as session

    return session(folder / "export" / "1", ("serve",), 1)


def published_theirs(folder):
    tokenizer, model = marian(folder)

    def translate(texts):
        return tokenizer.batch_decode(
            model.generate(**tokenizer(texts, **PADDED)), skip_special_tokens=True
        )

    return translate


def ours(folder, setting, beams, tokens):
    from benchmarks.translating import ours as session

    kind, threads, _ = setting.split()
    return session(folder / "exports" / f"{kind}-{beams}" / "1", ("serve",), int(threads))


def transformers(folder, setting, beams, tokens):
    import torch

    torch.set_num_threads(int(setting.split()[0]))
    tokenizer, model = marian(folder)

    def translate(texts):
        out = generate(model, tokenizer(texts, **PADDED), tokenizer, beams, tokens)
        return tokenizer.batch_decode(out.sequences, skip_special_tokens=True)

    return translate


def ctranslate2(folder, setting, beams, tokens):
    import ctranslate2
    import sentencepiece

    dtype, translators, _, threads, _ = setting.split()
    translator = ctranslate2.Translator(
        str(folder / "ctranslate2"), compute_type=dtype, inter_threads=int(translators),
        intra_threads=int(threads),
    )  # fmt: skip
    source = sentencepiece.SentencePieceProcessor(str(folder / "published" / "source.spm"))

    def translate(texts):
        results = translator.translate_batch(
            [[*row, "</s>"] for row in source.encode(texts, out_type=str)],
            beam_size=beams, max_decoding_length=tokens, length_penalty=0.0, disable_unk=True,
            min_decoding_length=0,
            max_batch_size=-(-len(texts) // int(translators)),
        )  # fmt: skip
        # Random weights write pieces of the source language too, which target.spm does not know.
        pieces = ("".join(result.hypotheses[0]) for result in results)
        return [text.replace("\u2581", " ").strip() for text in pieces]

    return translate


ENGINES = {"ours": ours, "transformers": transformers, "ctranslate2": ctranslate2}
PROCESSES = {"prepare": prepare, "theirs": theirs, "compared": compared, "speed": speed,
             "texts": texts}  # fmt: skip

if __name__ == "__main__":
    measure.answer(PROCESSES[sys.argv[1]](*sys.argv[2:]))
