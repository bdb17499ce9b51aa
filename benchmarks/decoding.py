"""Compares exports with CTranslate2 on real sentences, from strings to strings.

    python benchmarks/decoding.py RUN --data validation.tsv
    python benchmarks/decoding.py RUN --data validation.tsv --lexicon train.tsv    # with shortlists

RUN is a finished run. Latency is one sentence in a request, one request at a time; throughput is 32
sentences of similar length in a request, from one caller per core. Both engines have the run's
weights; CTranslate2 gets the run's shortlists as its vocabulary map. Needs ctranslate2 beside
keras_tfmr. Writes results/decoding.md and .json.
"""

import itertools
import json
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

import harness

OURS = ("float32", "int8")
THEIRS = ("float32", "int8")
THREADS = {  # of an operation or translator × operations or translators side by side
    1: ((1, 1), (2, 2), (harness.CORES, 1)),
    32: ((1, harness.CORES), (harness.CORES, harness.CORES), (harness.CORES, 1)),
}


def one(engine, dtype, path, beams, rows, threads, texts, seconds, shortlist=False):
    """In its own process: sentences a second, milliseconds of a request, and translations."""
    sources = json.loads(Path(texts).read_text())
    order = sorted(range(len(sources)), key=lambda i: len(sources[i])) if rows > 1 else None
    order = order or list(range(len(sources)))
    batches = [order[i : i + rows] for i in range(0, len(order), rows)]
    if engine == "keras_tfmr":
        translate = exported(path, *threads)
    else:
        translate = ctranslate2(path, dtype, beams, *threads, shortlist=shortlist)
    found = [None] * len(sources)
    for batch in batches:  # warms up
        for row, text in zip(batch, translate([sources[i] for i in batch]), strict=True):
            found[row] = text
    rate, milliseconds = called(
        translate, sources, batches, seconds, harness.CORES if rows > 1 else 1
    )
    return {"rate": rate, "ms": milliseconds, "mib": harness.peak_mib(), "texts": found}


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


def ctranslate2(path, dtype, beams, within, translators, *, shortlist=False):
    """The same function, with CTranslate2 and SentencePiece."""
    import ctranslate2
    import sentencepiece

    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=f"{path}/{side}.spm")
        for side in ("source", "target")
    )
    translator = ctranslate2.Translator(
        str(path), compute_type=dtype, intra_threads=within, inter_threads=translators
    )

    def translate(texts):
        results = translator.translate_batch(
            source.encode(texts, out_type=str), beam_size=beams, length_penalty=0.6,
            disable_unk=True, suppress_sequences=[["<pad>"], ["<s>"]], min_decoding_length=0,
            max_decoding_length=128, use_vmap=shortlist,
        )  # fmt: skip
        return [target.decode(result.hypotheses[0]) for result in results]

    return translate


def sides(args, run, folder, texts, beams, rows):
    """{side: {threads: function}} of one beam width and size of requests."""
    shortlist = args.lexicon is not None

    def settings(**task):
        task |= {"beams": beams, "rows": rows, "texts": texts, "seconds": args.seconds}
        return {
            f"{within} × {between} threads": lambda threads=(within, between): harness.alone(
                __file__, {**task, "threads": threads}
            )
            for within, between in dict.fromkeys(THREADS[rows])
        }

    found = {}
    for dtype in OURS:
        to = folder / f"{dtype}-{beams}"
        if not to.exists():
            words = ("--num_beams", beams, "--precision", dtype, "--output", to)
            harness.command("serving/export.py", run, *words)
        found[f"keras_tfmr {dtype}"] = settings(engine="keras_tfmr", dtype=dtype, path=to / "1")
    if harness.installed("ctranslate2"):
        to = folder / "ctranslate2"
        if not to.exists():
            harness.command("serving/export.py", run, "--format", "ctranslate2", "--output", to)
        for dtype in THEIRS:
            found[f"CTranslate2 {dtype}"] = settings(
                engine="ctranslate2", dtype=dtype, path=to, shortlist=shortlist
            )
    return found


def measured(args, folder):
    """Rows of all cases."""
    import sacrebleu

    run = args.run or harness.tiny_run(folder)
    pairs = [("O gato preto dorme.", "The black cat sleeps.")] * 4
    if args.data:
        pairs = [line.split("\t")[:2] for line in args.data.read_text("utf-8").splitlines()]
    sources, references = map(list, zip(*pairs[: args.sentences], strict=True))
    texts = folder / "sources.json"
    texts.write_text(json.dumps(sources))
    if args.lexicon:
        run = shutil.copytree(run, folder / "listed")
        harness.command("training/learn_lexicon.py", run, "--data", args.lexicon)
    rows = []
    for beams, size in itertools.product(args.beams, args.rows):
        found = harness.compare(
            sides(args, run, folder, texts, beams, size), args.turns, quick=args.quick
        )
        expected = found["keras_tfmr float32"]["texts"]
        for side, cell in found.items():
            translations = cell.pop("texts")
            cell["bleu"] = sacrebleu.corpus_bleu(translations, [references]).score
            cell["same"] = sum(map(str.__eq__, translations, expected))
            rows.append({"beams": beams, "sentences": size, "engine": side,
                         "shortlist": bool(args.lexicon), **cell})  # fmt: skip
    return rows, len(sources)


def page(numbers):
    cells = {
        (row["shortlist"], row["beams"], row["sentences"], row["engine"]): row
        for row in numbers["rows"]
    }
    lines = []
    for (shortlist, beams, size, engine), row in cells.items():
        ours = cells[shortlist, beams, size, f"keras_tfmr {OURS[0]}"]
        narrow = cells[shortlist, beams, size, f"keras_tfmr {OURS[-1]}"]
        theirs = not engine.startswith("keras_tfmr")
        lines.append([
            "shortlists" if shortlist else "all", beams, size, engine, f"{row['bleu']:.2f}",
            row["same"], float(row["rate"]), float(row["ms"]), row["setting"],
            ours["rate"] / row["rate"] if theirs else "",
            narrow["rate"] / row["rate"] if theirs else "",
        ])  # fmt: skip
    header = ["vocabulary", "beams", "sentences in a request", "engine", "BLEU",
              "same as float32", "sentences/s", "ms a request", "threads",
              "our float32 / it", "our int8 / it"]  # fmt: skip
    return (
        f"{numbers['sentences']:,} sentences. One sentence: one caller; {max(THREADS)}: one "
        f"caller per core.\n\n{harness.table(header, lines)}"
    )


def main():
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("run", type=Path, nargs="?", help="folder of a finished run")
    add("--data", type=Path, metavar="FILE", help="pairs; the sources are translated")
    add("--lexicon", type=Path, metavar="FILE", help="pairs to learn shortlists from")
    add("--sentences", type=int, default=1000, help="at most (default: %(default)s)")
    add("--beams", type=int, nargs="+", default=[1, 4], help="(default: 1 4)")
    add("--rows", type=int, nargs="+", choices=THREADS, default=list(THREADS),
        help="sentences of a request (default: 1 32)")  # fmt: skip
    add("--seconds", type=float, default=5, help="of a turn (default: %(default)s)")
    args = parser.parse_args()
    if args.quick:
        args.beams, args.seconds, args.sentences = [1], 0.0, 8
    elif not (args.run and args.data):
        parser.error("RUN and --data are needed")
    numbers = harness.about("tensorflow", "keras", "ctranslate2")
    with tempfile.TemporaryDirectory() as folder:
        rows, numbers["sentences"] = measured(args, Path(folder))
    other = [] if args.quick else harness.kept("decoding").get("rows", [])
    kept = [row for row in other if row["shortlist"] != bool(args.lexicon)]
    numbers["rows"] = sorted(rows + kept, key=lambda row: row["shortlist"])
    harness.report(
        "decoding", "Decoding of real sentences", page(numbers), numbers, quick=args.quick
    )


if __name__ == "__main__":
    harness.serve(one) or main()
