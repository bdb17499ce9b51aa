"""Checks an imported model against transformers, and measures how fast each engine serves it.

    python benchmarks/imported.py --data pairs.tsv                               # random weights
    python benchmarks/imported.py --data pairs.tsv --published opus-mt-pt-en

Without --published, transformers saves a MarianMTModel of OPUS-MT's size with random weights, which
are scaled so that its translations vary and end. The model is imported by training/import_marian.py
and exported by serving/export.py. Every engine then translates the same sentences, greedily and
with 4 beams, up to 32 tokens, from strings to strings, one request at a time. With --published, the
BLEU of each engine counts. Needs torch, transformers and ctranslate2 beside keras_tfmr. Writes
results/imported.md and .json.
"""

import itertools
import json
import tempfile
from pathlib import Path

import harness
from decoding import called, exported

TOKENS = 32
SIZE = {"vocab_size": 60_000, "d_model": 512, "heads": 8, "layers": 6, "ffn_dim": 2048}
QUICK = {"vocab_size": 600, "d_model": 32, "heads": 4, "layers": 2, "ffn_dim": 64}
THREADS = tuple(dict.fromkeys(((1, harness.CORES), (harness.CORES, 1))))


def make(folder, data, size):
    """Saves a MarianMTModel of random weights; the vocabulary is learned from the pairs."""
    import sentencepiece
    import torch
    from transformers import MarianConfig, MarianMTModel

    folder, vocab = Path(folder), size["vocab_size"]
    folder.mkdir(parents=True)
    pairs = harness.pairs_of(data)
    found = {"</s>": None, "<unk>": None}
    for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        with (folder / f"{side}.spm").open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines), model_writer=file, vocab_size=vocab // 2,
                hard_vocab_limit=False, minloglevel=2,
            )  # fmt: skip
        processor = sentencepiece.SentencePieceProcessor(str(folder / f"{side}.spm"))
        found |= dict.fromkeys(processor.id_to_piece(i) for i in range(3, len(processor)))
    pieces = [*found, *(f"\u2581x{i}" for i in range(vocab))][: vocab - 1]
    ids = {piece: i for i, piece in enumerate([*pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    torch.manual_seed(1)
    layers = {
        f"{side}_{name}": size[field]
        for side in ("encoder", "decoder")
        for name, field in (("layers", "layers"), ("attention_heads", "heads"),
                            ("ffn_dim", "ffn_dim"))
    }  # fmt: skip
    model = MarianMTModel(MarianConfig(
        **layers, vocab_size=vocab, d_model=size["d_model"], activation_function="swish",
        scale_embedding=True, pad_token_id=vocab - 1, decoder_start_token_id=vocab - 1,
        eos_token_id=0, forced_eos_token_id=None, max_position_embeddings=512, init_std=0.05,
    ))  # fmt: skip
    vary(model)
    model.generation_config.update(num_beams=4, max_length=512, bad_words_ids=[[vocab - 1]])
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


def convert(published, to):
    """CTranslate2's own conversion."""
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(published)).convert(str(to))


def transformers(path, beams, threads):
    """A function from texts to texts."""
    import torch
    from transformers import MarianMTModel, MarianTokenizer

    torch.set_num_threads(threads)
    tokenizer = MarianTokenizer.from_pretrained(path)
    model = MarianMTModel.from_pretrained(path).eval()

    def translate(texts):
        with torch.inference_mode():
            ids = model.generate(
                **tokenizer(texts, return_tensors="pt", padding=True), num_beams=beams,
                max_new_tokens=TOKENS, length_penalty=0.0, do_sample=False, early_stopping=False,
                bad_words_ids=[[tokenizer.pad_token_id], [tokenizer.unk_token_id]],
            )  # fmt: skip
        return tokenizer.batch_decode(ids, skip_special_tokens=True)

    return translate


def ctranslate2(path, published, dtype, beams, within, translators):
    """The same function, with CTranslate2 and SentencePiece."""
    import ctranslate2
    import sentencepiece

    translator = ctranslate2.Translator(
        path, compute_type=dtype, intra_threads=within, inter_threads=translators
    )
    source = sentencepiece.SentencePieceProcessor(f"{published}/source.spm")

    def translate(texts):
        results = translator.translate_batch(
            [[*row, "</s>"] for row in source.encode(texts, out_type=str)], beam_size=beams,
            max_decoding_length=TOKENS, length_penalty=0.0, disable_unk=True,
            min_decoding_length=0, max_batch_size=-(-len(texts) // translators),
        )  # fmt: skip
        # Random weights write pieces of the source language too, which target.spm does not know.
        pieces = ("".join(result.hypotheses[0]) for result in results)
        return [text.replace("\u2581", " ").strip() for text in pieces]

    return translate


def one(do, **task):
    """In its own process: `make`, `convert`, or the speed of an engine."""
    if do != "speed":
        return {"make": make, "convert": convert}[do](**task)
    beams, rows, threads = task["beams"], task["rows"], task["threads"]
    if task["engine"] == "keras_tfmr":
        translate = exported(f"{task['folder']}/{task['dtype']}-{beams}/1", *threads)
    elif task["engine"] == "transformers":
        translate = transformers(task["published"], beams, threads[0])
    else:
        path = f"{task['folder']}/ctranslate2"
        translate = ctranslate2(path, task["published"], task["dtype"], beams, *threads)
    sources = json.loads(Path(task["folder"], "sources.json").read_text())
    batches = [range(i, min(i + rows, len(sources))) for i in range(0, len(sources), rows)]
    texts = [text for batch in batches for text in translate([sources[i] for i in batch])]
    rate, milliseconds = called(translate, sources, batches, task["seconds"], 1)
    return {"rate": rate, "ms": milliseconds, "mib": harness.peak_mib(), "texts": texts}


def measured(args, folder):
    """The import's time and memory, and the rows of all engines."""
    import sacrebleu

    published = args.published or folder / "published"
    if not args.published:
        task = {"do": "make", "folder": published, "data": args.data,
                "size": QUICK if args.quick else SIZE}  # fmt: skip
        harness.alone(__file__, task)
    sources, references = zip(*harness.pairs_of(args.data)[: args.sentences], strict=True)
    (folder / "sources.json").write_text(json.dumps(sources))
    imported = harness.command("training/import_marian.py", published, "--output", folder / "run")
    # The export refuses random weights in int8: their log-probabilities move by 0.2 nats a token.
    ours = ("float32", "int8") if args.published else ("float32",)
    engines = [*(("keras_tfmr", dtype) for dtype in ours), ("transformers", "float32")]
    if harness.installed("ctranslate2"):
        harness.alone(__file__, {"do": "convert", "published": published,
                                 "to": folder / "ctranslate2"})  # fmt: skip
        engines += [("CTranslate2", "float32"), ("CTranslate2", "int8")]
    for dtype, beams in itertools.product(ours, args.beams):
        harness.command(
            "serving/export.py", folder / "run", "--output", folder / f"{dtype}-{beams}",
            "--num_beams", beams, "--precision", dtype, "--nbest", 1, "--max_length", TOKENS,
            "--max_length_ratio", 1000, "--length_penalty", 0,
        )  # fmt: skip
    rows = []
    for beams, size in itertools.product(args.beams, (1, 32)):
        task = {"do": "speed", "folder": folder, "published": published, "beams": beams,
                "rows": size, "seconds": args.seconds}  # fmt: skip
        sides = {
            f"{engine} {dtype}": {
                f"{within} × {between} threads": lambda task={
                    **task, "engine": engine, "dtype": dtype, "threads": (within, between)
                }: harness.alone(__file__, task)
                for within, between in THREADS
            }
            for engine, dtype in engines
        }  # fmt: skip
        found = harness.compare(sides, args.turns, quick=args.quick)
        expected = found["transformers float32"]["texts"]
        for side, cell in found.items():
            texts = cell.pop("texts")
            bleu = sacrebleu.corpus_bleu(texts, [list(references)]).score
            rows.append({"beams": beams, "sentences": size, "engine": side, **cell,
                         "same": sum(map(str.__eq__, texts, expected)),
                         "bleu": bleu if args.published else None})  # fmt: skip
    return imported, rows, len(sources)


def page(numbers):
    rows = [
        [row["beams"], row["sentences"], row["engine"], float(row["rate"]), row["mib"],
         f"{row['same']} of {numbers['sentences']}", row["setting"],
         *harness.ahead(row, numbers["rows"], ("beams", "sentences"), ("float32", "int8")),
         "" if row["bleu"] is None else f"{row['bleu']:.2f}"]
        for row in numbers["rows"]
    ]  # fmt: skip
    header = [
        "beams", "sentences in a request", "engine", "sentences/s", "peak memory, MiB",
        "same as transformers", "threads", "our float32 / it", "our int8 / it", "BLEU",
    ]  # fmt: skip
    seconds, mib = (numbers["import"][key] for key in ("seconds", "mib"))
    return (
        f"{numbers['model']}. The import takes {seconds:.1f} s and {mib:,.0f} MiB.\n\n"
        + harness.table(header, rows)
    )


def main():
    parser, add, full = harness.parser(__doc__, turns=2)
    full("--data", type=Path, metavar="FILE", help="pairs; the sources are translated")
    add("--published", type=Path, help="a transformers folder instead of random weights")
    full("--sentences", type=int, default=64, help="at most")
    full("--beams", type=int, nargs="+", default=[1, 4], help="beam widths")
    full("--seconds", type=float, default=2, help="of a turn")
    args = parser.parse_args()
    if not (args.quick or args.data):
        parser.error("--data is needed")
    if not harness.installed("torch", "transformers"):
        raise SystemExit("this benchmark compares with transformers, which is not installed")
    packages = ("tensorflow", "keras", "transformers", "torch", "ctranslate2")
    numbers = harness.about(*packages)
    numbers["model"] = str(args.published or "Random weights of OPUS-MT's size")
    with tempfile.TemporaryDirectory() as folder:
        if args.quick:
            args.data = harness.tiny_pairs(Path(folder, "pairs.tsv"))
            args.sentences, args.beams, args.seconds = 4, [1], 0.0
        numbers["import"], numbers["rows"], numbers["sentences"] = measured(args, Path(folder))
    harness.report("imported", "An imported model", page(numbers), numbers, quick=args.quick)


if __name__ == "__main__":
    harness.serve(one) or main()
