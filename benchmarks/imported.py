"""Checks an imported model against transformers, and measures how fast each engine serves it.

    python benchmarks/imported.py --data pairs.tsv                   # everything
    python benchmarks/imported.py --data pairs.tsv --parts speed --folder DIR
    python benchmarks/imported.py --data pairs.tsv --published opus-mt-pt-en --parts bleu

The parts: `import`, time and memory of training/import_marian.py; `check`, source ids, logits,
greedy search and beams of 4 without length penalty, held against transformers; `initial`, the same
of weights as transformers draws them; `speed`, sentences a second, from strings to strings; `bleu`,
for --published only, BLEU on all pairs with the model's own options, from the export and by
transformers. Without --published, transformers saves a MarianMTModel of random weights and
OPUS-MT's size, with a vocabulary learned from the pairs. Its weights are scaled so that its
translations vary and end. It is imported from that folder, and from a Marian release of the same
weights. A translation has at most 32 tokens, because random weights seldom end it.

Every engine runs alone, in a process that loads nothing else. `speed` tries each setting in a first
turn, then the best ones again; a figure is the median of its turns. Needs torch, transformers and
ctranslate2 beside this package. Measure on a machine that does nothing else. Writes
results/imported.md and .json; a part that is not run keeps its results.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import measure

ROOT = Path(__file__).resolve().parents[1]
PROCESS = Path(__file__).with_name("imported_process.py")
TOKENS = 32
FORMS = {"published": "transformers folder", "release": "Marian release"}
GOALS = {"seconds": 30, "mib": 2048}
SIZE = {
    "vocab_size": 60_000, "d_model": 512, "encoder_layers": 6, "decoder_layers": 6,
    "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
}  # fmt: skip
QUICK = {
    "vocab_size": 600, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}  # fmt: skip
OURS = ("keras_tfmr, plain", "keras_tfmr, compiled")
SETTINGS = {  # column: (engine, settings)
    OURS[0]: ("ours", ["plain 1 thread", "plain 2 threads"]),
    OURS[1]: ("ours", ["compiled 1 thread", "compiled 2 threads"]),
    "transformers": ("transformers", ["1 thread", "2 threads"]),
    **{
        f"CTranslate2 {dtype}": ("ctranslate2", [f"{dtype} {n}" for n in (
            "1 translator, 2 threads", "2 translators, 1 thread"
        )])
        for dtype in ("float32", "int8")
    },
}  # fmt: skip
CELLS = [(beams, batch) for beams in (1, 4) for batch in (1, 32)]


def main():
    """Measures the parts, and writes the results."""
    args = parse()
    path = measure.RESULTS / "imported.json"
    keep = path.exists() and not args.quick
    numbers = json.loads(path.read_text()) if keep else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        prepare(folder, args)
        for part in args.parts:
            numbers[part] = {"found": PARTS[part](folder, args), "load": os.getloadavg()[1]}
            if part != "bleu":
                numbers["model"] = args.about or "Random weights at the size of OPUS-MT"
            numbers["machine"] = measure.machine()
            numbers["versions"] = measure.versions(
                "tensorflow", "keras", "transformers", "torch", "ctranslate2"
            )
            if not args.quick:
                measure.write("imported", page(numbers), numbers)
    print(page(numbers))


def parse():
    """The command line as a namespace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="FILE", help="tab-separated pairs")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add("--published", type=Path, help="a transformers folder instead of random weights")
    add("--about", metavar="TEXT", help="what the published model is, for the page")
    add("--folder", type=Path, help="keeps models and transformers' answers for later calls")
    add("--sentences", type=int, default=500, help="checked greedily; default: %(default)s")
    add("--beam_sentences", type=int, default=500, help="with beams; default: %(default)s")
    add("--turns", type=int, default=2, help="turns of the best settings; default: %(default)s")
    add("--seconds", type=float, default=2, help="least seconds of a cell; default: %(default)s")
    add("--quick", action="store_true", help="a tiny model, one turn; writes nothing")
    args = parser.parse_args()
    if not args.quick:  # random weights have no BLEU, and trained ones are not initial ones
        args.parts = [p for p in args.parts if p != ("initial" if args.published else "bleu")]
    if args.quick:
        args.sentences, args.beam_sentences, args.turns, args.seconds = 60, 60, 1, 0.0
    elif not args.data:
        parser.error("--data is needed")
    return args


def prepare(folder, args):
    """Writes the models and the sentences."""
    if args.quick:
        from training import phrasebook

        args.data = folder / "pairs.tsv"
        args.data.write_text("".join(f"{a}\t{b}\n" for a, b in phrasebook.generate(500, seed=3)))
    if args.published and not (folder / "published").exists():
        (folder / "published").symlink_to(args.published.resolve())
    lines = args.data.read_text("utf-8").splitlines()[: args.sentences]
    (folder / "sentences.json").write_text(json.dumps([line.split("\t")[0] for line in lines]))
    measure.alone(PROCESS, "prepare", folder, args.data, json.dumps(QUICK if args.quick else SIZE))


def imports(folder, args):
    """Seconds and MiB of the import of each form."""
    return {form: imported(folder / form, folder / f"run-{form}") for form in FORMS}


def imported(published, run):
    command = ["training/import_marian.py", published, "--run", run, "--overwrite"]
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, *map(str, command)], cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{command} failed")
    return {"seconds": time.perf_counter() - begun, "mib": usage.ru_maxrss // 1024}


def check(folder, args):
    """What differs from transformers, for each form."""
    found = {}
    for form in FORMS:
        if not (folder / f"{form}.npz").exists():
            measure.alone(PROCESS, "theirs", folder, form, args.beam_sentences, TOKENS)
        found[form] = measure.alone(PROCESS, "compared", folder, form, TOKENS)
    return found


def initial(folder, args):
    """What differs from transformers where nobody has scaled the weights that it draws."""
    inner = folder / "initial"
    inner.mkdir(exist_ok=True)
    (inner / "sentences.json").write_bytes((folder / "sentences.json").read_bytes())
    size = json.dumps(QUICK if args.quick else SIZE)
    measure.alone(PROCESS, "prepare", inner, args.data, size, "")
    return check(inner, args)


def speed(folder, args):
    """{column: {setting: {"beams,batch": rates of the turns, "mib,beams", "same", "texts"}}}."""
    exports(folder)
    found = {column: {name: {} for name in names} for column, (_, names) in settings(args).items()}
    texts = {}
    for turn in range(args.turns):
        for column, (engine, names) in settings(args).items():
            for beams, name in itertools.product((1, 4), names):
                cells = found[column]
                if turn and name not in {best(cells, (beams, batch))[1] for batch in (1, 32)}:
                    continue
                answer = measure.alone(
                    PROCESS, "speed", folder, engine, name, beams, TOKENS, args.seconds
                )
                for batch, rate in answer["rates"].items():
                    cells[name].setdefault(f"{beams},{batch}", []).append(rate)
                    print(turn, column, name, beams, batch, f"{rate:.2f}/s", flush=True)
                cells[name][f"mib,{beams}"] = answer["memory_mib"]
                texts[column, name, beams] = answer["texts"]
    for (column, name, beams), own in texts.items():
        other = texts["transformers", settings(args)["transformers"][1][0], beams]
        cell = found[column][name]
        cell["same"] = cell.get("same", 0) + sum(map(str.__eq__, own, other))
        cell["texts"] = cell.get("texts", 0) + len(own)
    return found


def settings(args):
    """The settings that are tried; for a quick run, the first of each engine."""
    count = 1 if args.quick else None
    return {column: (engine, names[:count]) for column, (engine, names) in SETTINGS.items()}


def best(cells, cell):
    """The highest median of a cell, and its setting."""
    name = "{},{}".format(*cell)
    return max((statistics.median(found[name]), setting) for setting, found in cells.items())


def exports(folder):
    """Exports the run greedily and with beams of 4, plain and compiled."""
    if not (folder / "run-published").exists():
        imported(folder / "published", folder / "run-published")
    for beams in (1, 4):
        for setting in ("plain", "compiled"):
            to = folder / "exports" / f"{setting}-{beams}"
            if to.exists():
                continue
            command = [
                sys.executable, ROOT / "serving" / "export.py", folder / "run-published", "--to",
                to, "--beams", beams, "--n", 1, "--max_length", TOKENS, "--length_factor", 1000,
                "--length_penalty", 0, "--no_check", *["--no_xla"] * (setting == "plain"),
            ]  # fmt: skip
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


def bleu(folder, args):
    """What both engines make of all sources: BLEU, and the translations that differ."""
    import sacrebleu

    run, export = folder / "run-published", folder / "export"
    if not run.exists():
        imported(folder / "published", run)
    if not export.exists():
        command = [sys.executable, ROOT / "serving" / "export.py", run, "--to", export, "--no_xla"]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    lines = args.data.read_text("utf-8").splitlines()
    pairs = [line.split("\t")[:2] for line in (lines[:60] if args.quick else lines)]
    sources, references = map(list, zip(*pairs, strict=True))
    (folder / "sources.json").write_text(json.dumps(sources))
    texts = {name: measure.alone(PROCESS, "texts", folder, name) for name in ("ours", "theirs")}
    apart = [
        (source, one, other)
        for source, one, other in zip(sources, *texts.values(), strict=True)
        if one != other
    ]
    scores = {name: sacrebleu.corpus_bleu(own, [references]).score for name, own in texts.items()}
    return {"model": args.about or "", "sentences": len(sources), "bleu": scores, "apart": apart}


def page(numbers):
    """The results as Markdown."""
    lines = ["# An imported model", ""]
    model = f"{numbers['model']}. " if "model" in numbers else ""
    lines += [f"{model}{numbers['machine']}; {numbers['versions']}."]
    for part, write in PAGES.items():
        if part in numbers:
            lines += ["", write(numbers[part]["found"], numbers[part]["load"])]
    return "\n".join(lines) + "\n"


def import_page(found, load):
    rows = [[FORMS[form], values["seconds"], values["mib"]] for form, values in found.items()]
    table = measure.table(["import", "s", "peak memory, MiB"], rows)
    goals = f"Goals: {GOALS['seconds']} s, {GOALS['mib']:,} MiB. Load of the machine: {load:.1f}."
    return f"{table}\n{goals}"


def check_page(found, _):
    rows, notes = [], []
    for form, values in found.items():
        counts = [(values["sentences"], values["sources_apart"])]
        counts += [(values["sentences"], len(values["greedy_apart"]))]
        counts += [(values["beam_sentences"], len(values["beam_apart"]))]
        cells = [f"{count - apart} of {count}" for count, apart in counts]
        rows.append([FORMS[form], f"{values['logits']:.1e}", *cells, f"{values['scores']:.1e}"])
        notes.append(
            f"{FORMS[form]}: the logits are those of {values['positions']} positions, and up to "
            f"{values['largest']:.2g}. Ours differ from those of transformers in float64 by at "
            f"most {values['exact_ours']:.1e}, its own in float32 by {values['exact_theirs']:.1e}. "
            f"{values['ended']} greedy "
            f"translations and {values['beam_ended']} of the beam search end before {TOKENS} "
            f"tokens; a greedy one has {values['tokens']:.0f} different tokens on average."
        )
        for text, gap in values["greedy_apart"]:
            notes.append(f"Another greedy translation, {gap:.1e} apart: `{text}`")
        for text, gap, cut in values["beam_apart"]:
            notes.append(
                f"Another translation of the beam search, {gap:.1e} apart; a hypothesis that was "
                f"dropped on the way had missed a kept one by {cut:.1e}: `{text}`"
            )
    header = ["against transformers", "logits apart, at most", "same source ids", "same greedy ids",
              "same ids, beam 4", "scores apart, at most"]  # fmt: skip
    return measure.table(header, rows) + "\n" + "\n".join(f"- {note}" for note in notes)


def initial_page(found, load):
    return f"## Weights as transformers draws them\n\n{check_page(found, load)}"


def speed_page(found, load):
    rows, fastest = [], {}
    for column, cells in found.items():
        fastest[column] = [best(cells, cell) for cell in CELLS]
        last = cells[fastest[column][-1][1]]
        rates = [rate for rate, _ in fastest[column]]
        rows.append([column, *rates, last["mib,4"], f"{last['same']} of {last['texts']}"])
    for column in list(SETTINGS)[len(OURS) :]:
        ratios = [
            max(fastest[name][i][0] for name in OURS) / fastest[column][i][0]
            for i in range(len(CELLS))
        ]
        rows.append([f"ours / {column}", *ratios, "", ""])
    cells = [f"{'greedy' if beams == 1 else 'beam 4'}, batch {n}" for beams, n in CELLS]
    header = ["sentences a second", *cells, "peak memory, MiB (beam 4)", "same as transformers"]
    tried = "; ".join(
        f"{column}: {' / '.join(name for _, name in cells)}" for column, cells in fastest.items()
    )
    return (
        f"{measure.table(header, rows)}\nThe same sentences for all, up to {TOKENS} tokens; one "
        f"request at a time. Fastest settings of the four: {tried}. Load of the machine: "
        f"{load:.1f}."
    )


def bleu_page(found, _):
    same = found["sentences"] - len(found["apart"])
    ours, theirs = (found["bleu"][name] for name in ("ours", "theirs"))
    rows = [
        ["the SavedModel of the imported run", f"{ours:.2f}"],
        ["transformers' `generate`", f"{theirs:.2f}"],
    ]
    lines = [
        f"## A trained model\n\n{found['model']}.\n",
        measure.table(["with the published options", "BLEU"], rows),
        f"The same translation: {same} of {found['sentences']}. The others:\n",
    ]
    lines += [f"- `{one}`; transformers: `{other}` (of `{s}`)" for s, one, other in found["apart"]]
    return "\n".join(lines)


PAGES = {
    "import": import_page, "check": check_page, "initial": initial_page, "speed": speed_page,
    "bleu": bleu_page,
}  # fmt: skip
PARTS = {"import": imports, "check": check, "initial": initial, "speed": speed, "bleu": bleu}

if __name__ == "__main__":
    main()
