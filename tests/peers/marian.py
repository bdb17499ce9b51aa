"""Lets Marian train two tiny models and translate with them: tests/data/marian_peer.zip.

Run where pymarian and sentencepiece are installed, from the root of the repository:
python tests/peers/marian.py. The tests read the file, so that they need neither.

`opus` has the form of OPUS-MT's releases: post-norm, a SentencePiece model for each language and
one vocabulary in YAML; Marian translates with it. `spm` has that of Marian's documentation: a
SentencePiece model as the vocabulary of both languages; and it is pre-norm. Marian scores the
references with it: step by step, pymarian 1.12.42 decodes a pre-norm model to broken sentences
whose log-probabilities are not those of its own scorer.
"""

import itertools
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import sentencepiece

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from training import phrasebook  # noqa: E402

FILE = ROOT / "tests" / "data" / "marian_peer.zip"
SIZES = """--type transformer --dim-emb 24 --transformer-heads 3 --transformer-dim-ffn 48
    --tied-embeddings-all --enc-depth 1 --dec-depth 2"""
TRAINING = """--mini-batch 64 --mini-batch-fit false --lr-warmup 400
    --label-smoothing 0.1 --optimizer-params 0.9 0.98 1e-9 --clip-norm 1 --seed 1 --cpu-threads 2
    --workspace 500 --max-length 60 --quiet --overwrite"""
FORMS = {
    "opus": """--transformer-postprocess dan --transformer-ffn-activation swish
    --vocabs vocab.yml vocab.yml --learn-rate 0.004 --after 1500u""",
    "spm": """--transformer-preprocess n --transformer-postprocess da
    --transformer-postprocess-top n --transformer-ffn-activation swish
    --vocabs joint.spm joint.spm --dim-vocabs 500 500 --learn-rate 0.003 --after 2000u
    --sentencepiece-options --normalization_rule_name=identity""",
}
DECODING = "--mini-batch 1 --cpu-threads 1 --quiet --quiet-translation --n-best"
SEARCHES = {"greedy": "--beam-size 1 --normalize 0", "beam": "--beam-size 4 --normalize 1"}


def main():
    """Writes the file."""
    pairs = itertools.islice((pair for pair in phrasebook.pairs(1) if pair.type == "person"), 8200)
    pairs = [pair[:2] for pair in pairs]
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
    ):
        for form, options in FORMS.items():
            made = Path(folder) / form
            made.mkdir()
            answers = train_and_ask(made, form, options, pairs[200:], pairs[:200])
            for path in sorted(made.iterdir()):
                if path.name in ("model.npz", "vocab.yml") or path.suffix == ".spm":
                    archive.write(path, f"{form}/{path.name}")
            archive.writestr(f"{form}/decoder.yml", decoder(form))
            archive.writestr(f"{form}.json", json.dumps(answers, ensure_ascii=False))
    print(FILE, FILE.stat().st_size)


def decoder(form):
    """The text of decoder.yml."""
    vocabulary = "vocab.yml" if form == "opus" else "joint.spm"
    vocabs = f"vocabs: [{vocabulary}, {vocabulary}]"
    return f"models: [model.npz]\n{vocabs}\nbeam-size: 4\nnormalize: 1\n"


def train_and_ask(folder, form, options, train, test):
    """{"source": sentences, and "greedy" and "beam": [[translation, log-probability, score], ...]
    or "references": [[reference, log-probability], ...]}."""
    spms = spms_of(folder, train) if form == "opus" else [None, None]
    vocabs = re.search(r"--vocabs (\S+ \S+)", options)[0]
    for name, pairs in (("train", train), ("test", test)):
        for side, spm in enumerate(spms):
            write(folder / f"{name}.{side}", (pair[side] for pair in pairs), spm)
    files = "--train-sets train.0 train.1"
    marian(folder, f"train --model model.npz {files} {SIZES} {options} {TRAINING}")
    sources, references = zip(*test, strict=True)
    answers = {"source": sources}
    if form == "spm":
        ask = f"score --model model.npz {vocabs} --train-sets test.0 test.1 --cpu-threads 1 --quiet"
        scores = map(float, marian(folder, ask).splitlines())
        return answers | {"references": [*zip(references, scores, strict=True)]}
    for search, how in SEARCHES.items():
        ask = f"decode --models model.npz {vocabs} --input test.0 {DECODING} {how}"
        answers[search] = best(marian(folder, ask), spms[1])
    return answers


def spms_of(folder, pairs):
    """Learns source.spm and target.spm and writes the pieces of both to vocab.yml."""
    pieces, spms = ["</s>", "<unk>"], []
    for side, name in enumerate(("source", "target")):
        prefix = folder / name
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(pair[side] for pair in pairs),
            model_prefix=prefix,
            vocab_size=300,
            normalization_rule_name="identity",
            minloglevel=2,
        )
        prefix.with_suffix(".model").rename(prefix.with_suffix(".spm"))
        prefix.with_suffix(".vocab").unlink()
        spms.append(sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.spm"))
        pieces += [spms[-1].id_to_piece(i) for i in range(3, len(spms[-1]))]
    lines = (
        f"{json.dumps(p, ensure_ascii=False)}: {i}" for i, p in enumerate(dict.fromkeys(pieces))
    )
    write(folder / "vocab.yml", lines)
    return spms


def write(path, lines, spm=None):
    lines = (" ".join(spm.encode(line, out_type=str)) if spm else line for line in lines)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def marian(folder, options):
    """Runs Marian; returns what it writes."""
    command = [sys.executable, "-m", "pymarian", *options.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    return done.stdout


def best(nbest, spm):
    """[translation, log-probability, score] of each sentence, from the first of its lines
    `0 ||| text ||| F0= -1.2 ||| -0.3`."""
    first = {}
    for line in nbest.splitlines():
        first.setdefault(*line.split(" ||| ", 1))
    fields = (line.split(" ||| ") for line in first.values())
    return [
        [spm.decode(text.split()), float(features.split()[1]), float(score)]
        for text, features, score in fields
    ]


if __name__ == "__main__":
    main()
