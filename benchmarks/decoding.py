"""Compares exports with other engines on real sentences, from strings to strings.

    python benchmarks/decoding.py RUN --data validation.tsv --name small

RUN is a finished run; the page keeps the models of other names. Latency is one sentence in a
request, one request at a time; throughput is 32 sentences of similar length in a request, from one
caller per core. All engines have the run's weights. `--peers` names the others, whose packages must
be installed: CTranslate2, and `generate` of a MarianMTModel of transformers in float32, which takes
post-norm models alone, such as those of `base`. Writes results/decoding.md and .json.

With `--untrained base 60000`, a model of that size with random weights and as many subwords takes
the place of the run's, and every translation has 12 tokens.

With `--shortlist`, both engines also decode in int8 with a shortlist, which CTranslate2 calls vmap:
of the run's pairs; for a model without training, one drawn from Zipf's distribution, by which words
of several sentences are often the same.
"""

import functools
import itertools
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path

import harness

DTYPES = ("float32", "int8")
NAMES = {"ctranslate2": "CTranslate2", "transformers": "transformers"}
HEADER = ["beams", "sentences in a request", "engine", "BLEU", "same as float32", "sentences/s",
          "ms a request", "threads", "our float32 / it", "our int8 / it",
          "our int8 with a shortlist / it"]  # fmt: skip
TOKENS = 12  # of each translation by an untrained model
SHORT = "int8 with a shortlist"
ZIPF = 100, 300  # candidates of a source id, and of every text, of a model without training
THREADS = {  # of an operation or translator × operations or translators side by side
    1: ((1, 1), (2, 2), (harness.CORES, 1)),
    32: ((1, harness.CORES), (harness.CORES, harness.CORES), (harness.CORES, 1)),
}


def one(engine, dtype, path, beams, rows, threads, texts, seconds, tokens, short=False):
    """In its own process: sentences a second, milliseconds of a request, and translations."""
    sources = json.loads(Path(texts).read_text())
    order = sorted(range(len(sources)), key=lambda i: len(sources[i])) if rows > 1 else None
    order = order or list(range(len(sources)))
    batches = [order[i : i + rows] for i in range(0, len(order), rows)]
    if engine == "keras_tfmr":
        translate = exported(path, *threads)
    elif engine == "ctranslate2":
        translate = ctranslate2(path, dtype, beams, *threads, *tokens, short)
    else:
        translate = transformers(path, beams, threads[0], *tokens)
    found = [None] * len(sources)
    for batch in batches:  # warms up
        for row, text in zip(batch, translate([sources[i] for i in batch]), strict=True):
            found[row] = text
    callers = harness.CORES if rows > 1 else 1
    rate, milliseconds = called(translate, sources, batches, seconds, callers)
    return {"rate": rate, "ms": milliseconds, "texts": found}


def called(translate, sources, batches, seconds, callers):
    """Sentences a second of all callers, and the median milliseconds of a request."""
    done, times = [], []
    begun = time.perf_counter()

    def caller(number):
        first = True
        while first or time.perf_counter() - begun < seconds:
            for batch in batches[number::callers]:
                before = time.perf_counter()
                translate([sources[i] for i in batch])
                times.append(time.perf_counter() - before)
                done.append(len(batch))
            first = False

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - begun), statistics.median(times) * 1e3


def exported(path, within, between):
    """A function from texts to texts: the SavedModel in a session, as a server runs it."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 -- registers the tokeniser's operations

    session = tf.compat.v1.Session(graph=tf.Graph(), config=tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=within, inter_op_parallelism_threads=between
    ))  # fmt: skip
    with session.graph.as_default():
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
    signature = meta.signature_def["serving_default"]
    call = session.make_callable(
        signature.outputs["translation"].name, [signature.inputs["text"].name]
    )

    def translate(texts):
        column = np.array([text.encode() for text in texts], object)
        return [text.decode() for text in call(column)]

    return translate


def ctranslate2(path, dtype, beams, within, translators, least, most, short):
    """The same function, with CTranslate2 and SentencePiece."""
    import ctranslate2

    source, target = harness.subwords(path)
    translator = ctranslate2.Translator(
        str(path), compute_type=dtype, intra_threads=within, inter_threads=translators
    )

    def translate(texts):
        results = translator.translate_batch(
            source.encode(texts, out_type=str), beam_size=beams, length_penalty=0.6,
            disable_unk=True, suppress_sequences=[["<pad>"], ["<s>"]], min_decoding_length=least,
            max_decoding_length=most, use_vmap=short,
        )  # fmt: skip
        return [target.decode(result.hypotheses[0]) for result in results]

    return translate


def transformers(path, beams, within, least, most):
    """The same function, with MarianMTModel and its tokenizer."""
    import torch
    from transformers import MarianMTModel, MarianTokenizer

    torch.set_num_threads(within)
    model, tokenizer = (kind.from_pretrained(path) for kind in (MarianMTModel, MarianTokenizer))

    def translate(texts):
        ids = tokenizer(texts, return_tensors="pt", padding=True)
        with torch.inference_mode():
            found = model.generate(
                **ids, num_beams=beams, min_new_tokens=least, max_new_tokens=most, max_length=None
            ).clip(max=tokenizer.vocab_size - 1)  # an untrained model has more ids than pieces
        return tokenizer.batch_decode(found, skip_special_tokens=True)

    return translate


def sides(args, run, folder, texts, beams, rows):
    """{side: {threads: function}} of one beam width and size of requests."""

    def settings(**task):
        task |= {"beams": beams, "rows": rows, "texts": texts, "seconds": args.seconds}
        task["tokens"] = (TOKENS, TOKENS) if args.untrained else (0, 128)
        return {
            f"{within} × {between} threads": functools.partial(
                harness.alone, __file__, {**task, "threads": (within, between)}
            )
            for within, between in dict.fromkeys(THREADS[rows])
        }

    found = {}
    for dtype in args.dtypes:
        to = folder / f"{dtype}-{beams}"
        if not to.exists():
            words = ("--num_beams", beams, "--precision", dtype, "--output", to)
            harness.command("serving/export.py", run, *words)
        found[f"keras_tfmr {dtype}"] = settings(engine="keras_tfmr", dtype=dtype, path=to / "1")
    for peer in args.peers:
        to = folder / peer
        if not to.exists():
            harness.command("serving/export.py", run, "--format", peer, "--output", to)
        for dtype in args.dtypes if peer == "ctranslate2" else ["float32"]:
            name = f"{NAMES[peer]} {dtype}"
            found[name] = settings(engine=peer, dtype=dtype, path=to)
    if args.shortlist:
        to = folder / f"short-{beams}"
        if not to.exists():
            export_short(args, run, to, num_beams=beams)
        found[f"keras_tfmr {SHORT}"] = settings(engine="keras_tfmr", dtype="int8", path=to / "1")
    if args.shortlist and "ctranslate2" in args.peers:
        to = folder / "vmap"
        if not to.exists():
            export_short(args, run, to, format="ctranslate2")
        found["CTranslate2 int8 with vmap"] = settings(
            engine="ctranslate2", dtype="int8", path=to, short=True
        )
    return found


def export_short(args, run, to, format="saved_model", **options):
    """Exports a run with a shortlist, a SavedModel in int8."""
    from keras_tfmr import Translator
    from keras_tfmr.text_models.shortlist import shortlist_for

    translator = Translator.from_preset(run, **options)
    shortlist = zipf(translator) if args.untrained else shortlist_for(translator, run, "")
    precision = "int8" if format == "saved_model" else None
    translator.export(to, format=format, precision=precision, shortlist=shortlist)


def zipf(translator):
    """A shortlist of target ids that are drawn from Zipf's distribution, as words are."""
    import numpy as np

    from keras_tfmr.shortlist import Shortlist

    candidates, always = ZIPF
    ids = np.arange(4, translator.model.vocab_size)
    chance = 1 / np.arange(1, len(ids) + 1)
    size = translator.source_tokenizer.vocab_size, candidates
    table = np.random.default_rng(0).choice(ids, size, p=chance / chance.sum())
    return Shortlist(table.astype("int32"), ids[:always].astype("int32"))


def untrained(run, preset, vocab, texts, to):
    """The run's translator with random weights of another size, as a preset in a folder."""
    from keras_tfmr import Transformer, TransformerConfig, Translator

    if not to.exists():
        sizes = {"source_vocab": int(vocab), "target_vocab": int(vocab)}
        model = Transformer(TransformerConfig.preset(preset, **sizes))
        translator = Translator.from_preset(run)
        other = translator.replace(model=model, min_length=TOKENS, max_length=TOKENS)
        other.texts = texts
        other.save_to_preset(to)
    return to


def measured(args, folder):
    """Rows of all cases."""
    import sacrebleu

    run = args.run or harness.tiny_run(folder)
    pairs = [("O gato preto dorme.", "The black cat sleeps.")] * 4
    if args.data:
        pairs = harness.pairs_of(args.data)
    sources, references = map(list, zip(*pairs[: args.sentences], strict=True))
    if args.untrained:
        run = untrained(run, *args.untrained, sources[:64], folder / "untrained")
    texts = folder / "sources.json"
    texts.write_text(json.dumps(sources))
    rows = []
    for beams, size in itertools.product(args.beams, args.rows):
        found = harness.compare(
            sides(args, run, folder, texts, beams, size), args.turns, quick=args.quick
        )
        expected = found[f"keras_tfmr {args.dtypes[0]}"]["texts"]
        for side, cell in found.items():
            translations = cell.pop("texts")
            cell["bleu"] = sacrebleu.corpus_bleu(translations, [references]).score
            same = sum(map(str.__eq__, translations, expected))
            cell["same"] = same if "float32" in args.dtypes else "–"
            rows.append({"model": args.name, "beams": beams, "sentences": size, "engine": side,
                         **cell})  # fmt: skip
    return rows, len(sources)


def case(row):
    """What a row is of: it is replaced by one of the same."""
    return row["model"], row["beams"], row["sentences"]


def page(numbers):
    lines = []
    for model, group in itertools.groupby(numbers["rows"], key=lambda row: row["model"]):
        group = list(group)
        about = "{commit}, {date}, {machine}".format(**group[0])
        lines.append(f"\n## {model}\n\nCommit {about}.\n")
        rows = [
            [row["beams"], row["sentences"], row["engine"], f"{row['bleu']:.2f}", row["same"],
             float(row["rate"]), float(row["ms"]), row["setting"],
             *harness.ahead(row, group, ("beams", "sentences"), (*DTYPES, SHORT))]
            for row in group
        ]  # fmt: skip
        lines.append(harness.table(HEADER, rows))
    return (
        f"{numbers['sentences']:,} sentences. One sentence: one caller; {max(THREADS)}: one "
        "caller per core.\n" + "\n".join(lines) + numbers["elsewhere"]
    )


def main():
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("run", type=Path, nargs="?", help="folder of a finished run")
    add("--data", type=Path, metavar="FILE", help="pairs; the sources are translated")
    add("--name", default="a model", help="of the model in the page")
    add("--untrained", nargs=2, metavar=("PRESET", "SUBWORDS"), help="a size, with random weights")
    add("--shortlist", action="store_true", help="in int8 with a shortlist, too")
    add("--exports", type=Path, metavar="DIR", help="folder of exports, kept for another run")
    add("--dtypes", nargs="+", choices=DTYPES, default=DTYPES, help="of the exports")
    add("--peers", nargs="+", choices=NAMES, default=["ctranslate2"], help="other engines")
    add("--sentences", type=int, default=1000, help="at most")
    add("--beams", type=int, nargs="+", default=[1, 4], help="beam widths")
    add("--rows", type=int, nargs="+", choices=THREADS, default=list(THREADS),
        help="sentences of a request")  # fmt: skip
    add("--seconds", type=float, default=5, help="of a turn")
    args = harness.parsed(parser)
    if args.quick:
        args.beams, args.seconds, args.sentences = [1], 0.0, 8
    elif not (args.run and args.data):
        parser.error("RUN and --data are needed")
    args.peers = [peer for peer in args.peers if harness.installed(peer)]
    numbers = harness.about("tensorflow", "keras", *args.peers)
    with tempfile.TemporaryDirectory() as folder:
        folder = args.exports or Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        rows, numbers["sentences"] = measured(args, folder)
    before = {} if args.quick else harness.kept("decoding")
    kept = before.get("rows", [])
    numbers["elsewhere"] = before.get("elsewhere", "")  # what another machine measured, in words
    about = {name: numbers[name] for name in ("date", "commit", "machine")}
    rows = [{**row, **about} for row in rows]
    anew = {case(row) for row in rows}
    numbers["rows"] = [row for row in kept if case(row) not in anew] + rows
    numbers["rows"].sort(key=case)
    harness.report(
        "decoding", "Decoding of real sentences", page(numbers), numbers, quick=args.quick
    )


if __name__ == "__main__":
    harness.serve(one) or main()
