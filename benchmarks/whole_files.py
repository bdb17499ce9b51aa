"""Measures how fast whole files are translated, beside CTranslate2's `translate_file`.

    python benchmarks/whole_files.py RUN --input sources.txt

Each engine is a command that reads a file and writes a file, in a process of its own:
training/translate.py in float32, bfloat16 and int8, and CTranslate2 in float32 and int8. Each
translates a short file and a long one; a rate is the difference of their lines over that of their
times, so that the start of the process does not count. Needs ctranslate2 beside keras_tfmr. Writes
results/whole_files.md and .json.
"""

import tempfile
import time
from pathlib import Path

import harness

OURS = ("float32", "bfloat16", "int8")
THEIRS = ("float32", "int8")


def one(model, dtype, beams, batch, translators, threads, source, target):
    """In its own process: CTranslate2 translates a file; the seconds count from before it loads."""
    begun = time.perf_counter()
    import ctranslate2

    encoder, decoder = harness.subwords(model)
    translator = ctranslate2.Translator(
        model, compute_type=dtype, inter_threads=translators, intra_threads=threads
    )
    translator.translate_file(
        source, target, max_batch_size=batch, beam_size=beams, length_penalty=0.6,
        source_tokenize_fn=lambda text: encoder.encode(text, out_type=str),
        target_detokenize_fn=decoder.decode, disable_unk=True,
        suppress_sequences=[["<pad>"], ["<s>"]], min_decoding_length=0, max_decoding_length=128,
    )  # fmt: skip
    return {"seconds": time.perf_counter() - begun}


def sides(args, run, files, folder):
    """{beams: {side: {setting: function}}}."""

    def both(translate):
        """A function that translates both files and returns the rate."""

        def run():
            answers = [translate(file, folder / "out.txt") for file in files]
            seconds = [answer["seconds"] for answer in answers]
            lines = args.lines[1] - args.lines[0]
            rate = lines / max(seconds[1] - seconds[0], 1e-9)
            texts = harness.lines_of(folder / "out.txt")
            return {"rate": rate, "seconds": seconds[1], "texts": texts}

        return run

    def ours(*words):
        return both(lambda source, target: harness.command(
            "training/translate.py", run, *words, "--input", source, "--output", target,
            "--overwrite",
        ))  # fmt: skip

    def theirs(**task):
        return both(lambda source, target: harness.alone(
            __file__, {**task, "source": source, "target": target}
        ))  # fmt: skip

    model = folder / "ctranslate2"
    peers = harness.installed("ctranslate2")
    if peers:
        harness.command("serving/export.py", run, "--format", "ctranslate2", "--output", model)
    for beams in args.beams:
        found = {
            f"keras_tfmr {dtype}": {
                f"{n} lines": ours("--num_beams", beams, "--precision", dtype, "--batch_size", n)
                for n in args.batches
            }
            for dtype in args.dtypes
        }
        for dtype in [name for name in args.dtypes if peers and name in THEIRS]:
            found[f"CTranslate2 {dtype}"] = {
                f"{n} lines, {translators} × {threads} threads": theirs(
                    model=model, dtype=dtype, beams=beams, batch=n, translators=translators,
                    threads=threads,
                )
                for n in args.batches
                for translators, threads in {(harness.CORES, 1), (1, harness.CORES)}
            }  # fmt: skip
        yield beams, found


def measured(args, folder):
    """Rows of all engines."""
    run = args.run or harness.tiny_run(folder)
    texts = harness.SENTENCES * args.lines[1]
    if args.input:
        texts = [line.split("\t")[0] for line in harness.lines_of(args.input)]
    if len(texts) < args.lines[1]:
        raise SystemExit(f"{args.input} has {len(texts)} lines, --lines asks for {args.lines[1]}")
    files = [folder / f"{count}.txt" for count in args.lines]
    for file, count in zip(files, args.lines, strict=True):
        file.write_text("".join(f"{text}\n" for text in texts[:count]), "utf-8")
    rows = []
    for beams, found in sides(args, run, files, folder):
        cells = harness.compare(found, args.turns, quick=args.quick)
        expected = cells[f"keras_tfmr {args.dtypes[0]}"]["texts"]
        for engine, cell in cells.items():
            same = sum(map(str.__eq__, cell.pop("texts"), expected))
            rows.append({"beams": beams, "engine": engine, "same": same, **cell})
    return rows


def page(numbers):
    short, long = numbers["lines"]
    rows = [
        [row["beams"], row["engine"], row["setting"], float(row["rate"]),
         f"{min(row['rates']):,.0f} to {max(row['rates']):,.0f}", row["seconds"],
         f"{row['same'] / long:.1%}", *harness.ahead(row, numbers["rows"], ("beams",), OURS)]
        for row in numbers["rows"]
    ]  # fmt: skip
    header = ["beams", "engine", "batches", "lines/s", "turns", "s, whole command", "same lines",
              *(f"our {dtype} / it" for dtype in OURS)]  # fmt: skip
    return (
        f"Files of {short:,} and {long:,} lines. Same lines: those equal to our first row's.\n\n"
        + harness.table(header, rows)
    )


def main():
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("run", type=Path, nargs="?", help="folder of a finished run")
    add("--input", type=Path, metavar="FILE", help="text; of lines with tabs, the first column")
    add("--lines", type=int, nargs=2, default=(6000, 22_000), help="lines of both files")
    add("--beams", type=int, nargs="+", default=(1, 4), help="beam widths")
    add("--batches", type=int, nargs="+", default=(32, 64, 128), help="lines translated together")
    add("--dtypes", nargs="+", choices=OURS, default=OURS, help="precisions")
    args = harness.parsed(parser, "run", "input")
    if args.quick:
        args.lines, args.beams = (4, 8), (1,)
    numbers = {**harness.about("tensorflow", "keras", "ctranslate2"), "lines": list(args.lines)}
    with tempfile.TemporaryDirectory() as folder:
        numbers["rows"] = measured(args, Path(folder))
    harness.report("whole_files", "Whole files", page(numbers), numbers, quick=args.quick)


if __name__ == "__main__":
    harness.serve(one) or main()
