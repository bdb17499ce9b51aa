"""Measures how fast whole files are translated, beside CTranslate2.

    python benchmarks/whole_files.py RUN --input sentences.txt

`training/translate.py` and CTranslate2's `translate_file` translate two files of mixed lengths, a
short one and a long one, each in a process that runs alone. The rate counts the lines that only the
long one has, so that imports, loading and tracing do not count; the seconds are those of the whole
command on the long file. Each engine is first tried with every batch size, CTranslate2 also with
one translator a core and one for all, and then takes turns at its best. How many lines it
translates as we do in float32 is counted too. If the run has a lexicon, all engines decode over its
shortlists, and the results of the whole vocabulary are kept. Writes results/whole_files.md and
.json.
"""

import argparse
import collections
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import measure
from training.run.folder import RunFolder

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

OURS = {f"keras_tfmr {precision}": precision for precision in ("float32", "bfloat16")}
DTYPES = ("float32", "int8")  # of CTranslate2


def main():
    """Measures and writes the results."""
    args = parse()
    if args.ctranslate2:
        ctranslate2(*args.ctranslate2)
        return
    path = measure.RESULTS / "whole_files.json"
    kept = json.loads(path.read_text())["rows"] if path.exists() and not args.quick else []
    shortlist = RunFolder(args.run).lexicon.exists()
    with tempfile.TemporaryDirectory() as folder:
        numbers = measured(args, Path(folder))
    rows = [{**row, "shortlist": shortlist} for row in numbers["rows"]]
    rows += [row for row in kept if row["shortlist"] != shortlist]
    numbers["rows"] = sorted(rows, key=lambda row: row["shortlist"])
    print(page(numbers))
    if not args.quick:
        measure.write("whole_files", page(numbers), numbers)


def parse():
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("run", type=Path, nargs="?", help="folder of a finished run")
    add("--input", type=Path, help="text; of lines with tabs, the first column")
    add("--lines", type=int, nargs=2, default=(8000, 50_000), help="default: 8000 50000")
    add("--beams", type=int, nargs="+", default=(1, 4), help="default: 1 4")
    add("--batches", type=int, nargs="+", default=(32, 64, 128), help="lines; default: 32 64 128")
    add("--turns", type=int, default=3, help="default: %(default)s")
    add("--quick", action="store_true", help="a few lines, one turn; writes nothing")
    add("--ctranslate2", nargs=7, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.quick:
        args.lines, args.beams, args.turns = (4, 8), (1,), 1
    return args


def measured(args, folder):
    """All figures."""
    texts = sources(args)
    files = [folder / f"{count}.txt" for count in args.lines]
    for file, count in zip(files, args.lines, strict=True):
        file.write_text("".join(f"{text}\n" for text in texts[:count]), "utf-8")
    rows = []
    for beams in args.beams:
        cells = tried(engines(args, beams, folder), files[-1], folder, args)
        found, answers = collections.defaultdict(list), {}
        for _ in range(args.turns):
            for name, (_, command) in cells.items():
                short, long = (seconds(command, file, folder / "out.txt") for file in files)
                rate = (args.lines[1] - args.lines[0]) / max(long - short, 1e-9)
                found[name].append((rate, long))
                answers[name] = (folder / "out.txt").read_text("utf-8").splitlines()
        expected = answers[next(iter(OURS))]
        for name, turns in found.items():
            rates, whole = zip(*turns, strict=True)
            same = sum(a == b for a, b in zip(answers[name], expected, strict=True))
            rows.append({
                "beams": beams, "engine": name, "setting": cells[name][0], "rates": rates,
                "seconds": statistics.median(whole), "same": same,
            })  # fmt: skip
            print(rows[-1], flush=True)
    return {
        "machine": measure.machine(),
        "versions": measure.versions("tensorflow", "keras", "ctranslate2"),
        "lines": list(args.lines), "turns": args.turns, "rows": rows,
    }  # fmt: skip


def sources(args):
    """The lines to translate."""
    if args.quick:
        return ["O gato preto dorme.", "A casa é branca e grande."] * 4
    lines = args.input.read_text("utf-8").splitlines()
    if len(lines) < args.lines[1]:
        sys.exit(f"{args.input} has {len(lines)} lines, --lines asks for {args.lines[1]}")
    return [line.split("\t")[0] for line in lines[: args.lines[1]]]


def engines(args, beams, folder):
    """{engine: {setting: command without its files}}."""
    translate = [sys.executable, ROOT / "training" / "translate.py", args.run, "--beams", beams]
    found = {
        name: {
            f"{n} lines": [*translate, "--precision", precision, "--batch_size", n]
            for n in args.batches
        }
        for name, precision in OURS.items()
    }
    model = folder / "ctranslate2"
    if not importlib.util.find_spec("ctranslate2"):
        print("CTranslate2 is not installed: left out", file=sys.stderr)
        return found
    if not model.exists():
        export = [sys.executable, ROOT / "serving" / "export.py", args.run, "--to", model]
        subprocess.run(
            list(map(str, (*export, "--format", "ctranslate2"))),
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    cores = len(os.sched_getaffinity(0))
    for dtype in DTYPES:
        found[f"CTranslate2 {dtype}"] = {
            f"{n} lines, {inter} × {intra} threads": [
                sys.executable, __file__,
                "--ctranslate2", model, dtype, beams, n, f"{inter}x{intra}",
            ]
            for n in args.batches
            for inter, intra in {(cores, 1), (1, cores)}
        }  # fmt: skip
    return found


def tried(engines, file, folder, args):
    """{engine: (setting, command)} of the fastest setting of each, in one turn."""
    fastest = {}
    for name, settings in engines.items():
        settings = dict(list(settings.items())[:1]) if args.quick else settings
        times = {
            setting: seconds(command, file, folder / "out.txt")
            for setting, command in settings.items()
        }
        print(name, {setting: round(time, 1) for setting, time in times.items()}, flush=True)
        setting = min(times, key=times.get)
        fastest[name] = (setting, settings[setting])
    return fastest


def seconds(command, source, target):
    """Seconds of a whole command that translates a file."""
    if "--ctranslate2" in command:
        words = [*command, source, target]
    else:
        words = [*command, "--input", source, "--output", target, "--overwrite"]
    begun = time.perf_counter()
    subprocess.run(
        list(map(str, words)), check=True, stderr=subprocess.DEVNULL,
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
    )  # fmt: skip
    found = time.perf_counter() - begun
    with source.open("rb") as asked, target.open("rb") as came:
        assert sum(1 for _ in asked) == sum(1 for _ in came)
    return found


def ctranslate2(folder, dtype, beams, batch, threads, source, target):
    """Translates a file in this process."""
    import ctranslate2
    import sentencepiece

    encoder, decoder = (
        sentencepiece.SentencePieceProcessor(model_file=f"{folder}/{side}.spm")
        for side in ("source", "target")
    )
    inter, intra = map(int, threads.split("x"))
    translator = ctranslate2.Translator(
        folder, compute_type=dtype, inter_threads=inter, intra_threads=intra
    )
    translator.translate_file(
        source, target, max_batch_size=int(batch), beam_size=int(beams), length_penalty=0.6,
        source_tokenize_fn=lambda text: encoder.encode(text, out_type=str),
        target_detokenize_fn=decoder.decode, disable_unk=True,
        suppress_sequences=[["<pad>"], ["<s>"]], min_decoding_length=0, max_decoding_length=128,
        use_vmap=Path(folder, "vmap.txt").exists(),
    )  # fmt: skip


def page(numbers):
    """The results as Markdown."""
    rows = []
    rates = {
        (row["shortlist"], row["beams"], row["engine"]): row["rates"] for row in numbers["rows"]
    }
    short, long = numbers["lines"]
    for row in numbers["rows"]:
        theirs, vocabulary = row["rates"], "shortlists" if row["shortlist"] else "all"
        ratios = [
            ratio(rates[row["shortlist"], row["beams"], name], theirs) for name in OURS
        ] if row["engine"] not in OURS else [""] * len(OURS)  # fmt: skip
        rows.append([
            vocabulary, row["beams"], row["engine"], row["setting"], spread(theirs, "{:,.0f}"),
            row["seconds"], f"{row['same'] / long:.1%}", *ratios,
        ])  # fmt: skip
    header = ["vocabulary", "beams", "engine", "batches", "lines/s", "s, whole command"]
    header += ["same lines", *(f"{name} / it" for name in OURS)]
    return (
        f"# Whole files\n\n{numbers['machine']}; {numbers['versions']}. Files of {short:,} and "
        f"{long:,} lines, {numbers['turns']} turns.\nThe least and the greatest rate of each "
        "engine, the median of the seconds, the share of lines that it translates as\nwe do in "
        "float32, and our rates divided by those of the engine.\n\n" + measure.table(header, rows)
    )


def ratio(ours, theirs):
    """The least and the greatest ratio of two engines' rates."""
    return spread([min(ours) / max(theirs), max(ours) / min(theirs)], "{:.2f}")


def spread(values, form):
    """The least and the greatest value."""
    return f"{form.format(min(values))} to {form.format(max(values))}"


if __name__ == "__main__":
    main()
