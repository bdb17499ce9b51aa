"""Lets Marian train tiny models and translate with them: tests/data/marian_peer.zip.

Run where pymarian, sentencepiece and numpy are installed, from the root of the repository:
python tests/peers/marian.py FORM ..., which leaves other forms in the file as they are. The tests
read the file, so that they need neither.

`opus` has the form of OPUS-MT's releases: post-norm, a SentencePiece model for each language and
one vocabulary in YAML; Marian translates with it. `spm` has that of Marian's documentation: a
SentencePiece model as the vocabulary of both languages; and it is pre-norm. Marian scores the
references with it: step by step, pymarian 1.12.42 decodes a pre-norm model to broken sentences
whose log-probabilities are not those of its own scorer. `ssru` is like `opus`, but its decoder is
that of Marian's and Firefox's small models; 16 bits of each weight, to keep the file small.
"""

import itertools
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import sentencepiece

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from training import phrasebook  # noqa: E402

FILE = ROOT / "tests" / "data" / "marian_peer.zip"
TYPE = "--type transformer --tied-embeddings-all --enc-depth 1"
SIZES = "--dim-emb 24 --transformer-heads 3 --transformer-dim-ffn 48 --dec-depth 2"
TRAINING = """--mini-batch 64 --mini-batch-fit false --lr-warmup 400
    --label-smoothing 0.1 --optimizer-params 0.9 0.98 1e-9 --clip-norm 1 --seed 1 --cpu-threads 2
    --workspace 500 --max-length 60 --quiet --overwrite"""
FORMS = {
    "opus": f"""{SIZES} --transformer-postprocess dan --transformer-ffn-activation swish
    --vocabs vocab.yml vocab.yml --learn-rate 0.004 --after 1500u""",
    "spm": f"""{SIZES} --transformer-preprocess n --transformer-postprocess da
    --transformer-postprocess-top n --transformer-ffn-activation swish
    --vocabs joint.spm joint.spm --dim-vocabs 500 500 --learn-rate 0.003 --after 2000u
    --sentencepiece-options --normalization_rule_name=identity""",
    "ssru": """--dim-emb 16 --transformer-heads 2 --transformer-dim-ffn 32 --dec-depth 1
    --transformer-decoder-autoreg rnn --dec-cell ssru
    --transformer-postprocess dan --transformer-ffn-activation relu
    --vocabs vocab.yml vocab.yml --learn-rate 0.006 --after 4000u""",
}
SUBWORDS = {"opus": 300, "ssru": 100}
DECODING = "--mini-batch 1 --cpu-threads 1 --quiet --quiet-translation --n-best"
SEARCHES = {"greedy": "--beam-size 1 --normalize 0", "beam": "--beam-size 4 --normalize 1"}


def main(forms):
    """Writes the file, with these forms anew."""
    pairs = itertools.islice((pair for pair in phrasebook.pairs(1) if pair.type == "person"), 8200)
    pairs = [pair[:2] for pair in pairs]
    old = {}
    if FILE.exists():
        with zipfile.ZipFile(FILE) as archive:
            names = (n for n in archive.namelist() if not n.startswith(tuple(forms)))
            old = {name: archive.read(name) for name in names}
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
    ):
        for name, content in old.items():
            archive.writestr(name, content)
        for form in forms:
            made = Path(folder) / form
            made.mkdir()
            answers = train_and_ask(made, form, FORMS[form], pairs[200:], pairs[:200])
            for path in sorted(made.iterdir()):
                if path.name in ("model.npz", "vocab.yml") or path.suffix == ".spm":
                    archive.write(path, f"{form}/{path.name}")
            archive.writestr(f"{form}/decoder.yml", decoder(form))
            archive.writestr(f"{form}.json", json.dumps(answers, ensure_ascii=False))
    print(FILE, FILE.stat().st_size)


def decoder(form):
    """The text of decoder.yml."""
    vocabulary = "joint.spm" if form == "spm" else "vocab.yml"
    vocabs = f"vocabs: [{vocabulary}, {vocabulary}]"
    return f"models: [model.npz]\n{vocabs}\nbeam-size: 4\nnormalize: 1\n"


def train_and_ask(folder, form, options, train, test):
    """{"source": sentences, and "greedy" and "beam": [[translation, log-probability, score], ...]
    or "references": [[reference, log-probability], ...]}."""
    spms = [None, None] if form == "spm" else spms_of(folder, train, SUBWORDS[form])
    vocabs = re.search(r"--vocabs (\S+ \S+)", options)[0]
    for name, pairs in (("train", train), ("test", test)):
        for side, spm in enumerate(spms):
            write(folder / f"{name}.{side}", (pair[side] for pair in pairs), spm)
    files = "--train-sets train.0 train.1"
    marian(folder, f"train --model model.npz {files} {TYPE} {options} {TRAINING}")
    if form == "ssru":
        cut_weights(folder / "model.npz")
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


def cut_weights(path):
    """Leaves the first 16 bits of each weight, which a zip packs to half the size."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    for array in arrays.values():
        if array.dtype == "float32":
            array.view("uint32")[...] &= 0xFFFF0000
    np.savez(path, **arrays)


def spms_of(folder, pairs, size):
    """Learns source.spm and target.spm and writes the pieces of both to vocab.yml."""
    pieces, spms = ["</s>", "<unk>"], []
    for side, name in enumerate(("source", "target")):
        prefix = folder / name
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(pair[side] for pair in pairs),
            model_prefix=prefix,
            vocab_size=size,
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
    main(sys.argv[1:] or [*FORMS])
