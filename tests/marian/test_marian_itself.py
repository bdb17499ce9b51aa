"""Models that Marian trains here: read, they translate as Marian does; written, Marian reads them.

Run by hand: MARIAN_PYTHON is the interpreter of an environment with pymarian and sentencepiece.
"""

import json
import os
import subprocess

import pytest
import sentencepiece

from keras_tfmr import Translator
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.presets import marian
from keras_tfmr.presets.marian.writing import write_marian
from training import phrasebook

PYTHON = os.environ.get("MARIAN_PYTHON")
TEST = 1000  # sentences
MODEL = """--type transformer --enc-depth 1 --dec-depth 2 --dim-emb 24 --transformer-heads 3
    --transformer-dim-ffn 48 --transformer-postprocess dan --transformer-ffn-activation swish"""
TRAINING = """--mini-batch 64 --mini-batch-fit false --learn-rate 0.004 --lr-warmup 400
    --label-smoothing 0.1 --optimizer-params 0.9 0.98 1e-9 --clip-norm 1 --seed 1 --cpu-threads 2
    --workspace 500 --max-length 60 --after 1500u --quiet --overwrite"""
# With two threads, pymarian 1.12.42 crashes now and then.
DECODING = """--beam-size 1 --normalize 0 --mini-batch 1 --cpu-threads 1 --quiet
    --quiet-translation"""
GREEDY = DecodingConfig(
    num_beams=1, length_penalty=0.0, max_length=512, max_length_ratio=3.0, max_length_extra=0
)
# {vocabulary: (its files, options that tie the embeddings)}
VOCABULARIES = {
    "sentencepiece": ("joint.spm joint.spm", "--tied-embeddings-all"),
    "joint": ("vocab.yml vocab.yml", "--tied-embeddings-all"),
    "separate": ("source.vocab.yml target.vocab.yml", "--tied-embeddings"),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="MARIAN_PYTHON is not set"),
]


def run(folder, options):
    """What Marian writes, which runs in the folder."""
    command = [PYTHON, "-m", "pymarian", *options.split()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def learn(folder, pairs):
    """Writes a SentencePiece model for each language, and their pieces as vocabularies."""
    sides = {}
    for name, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=folder / name, vocab_size=300, minloglevel=2
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        spm = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        sides[f"{name}.vocab.yml"] = [spm.id_to_piece(i) for i in range(3, len(spm))]
    sides["vocab.yml"] = dict.fromkeys(piece for pieces in sides.values() for piece in pieces)
    for name, pieces in sides.items():
        spelt = (json.dumps(piece, ensure_ascii=False) for piece in ("</s>", "<unk>", *pieces))
        write(folder / name, (f"{piece}: {number}" for number, piece in enumerate(spelt)))


def split(folder, lines, is_split=True):
    """Lines as Marian takes them: SentencePiece models that are vocabularies split them there."""
    if not is_split:
        return lines
    spm = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    return [" ".join(pieces) for pieces in spm.encode(list(lines), out_type=str)]


def joined(folder, lines, is_split=True):
    if not is_split:
        return lines
    spm = sentencepiece.SentencePieceProcessor(model_file=str(folder / "target.spm"))
    return [spm.decode(line.split()) for line in lines]


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("vocabulary", [*VOCABULARIES])
def test_a_model_translates_as_marian_does_and_marian_as_what_is_written(
    vocabulary, tied, tmp_path
):
    release, (files, tying) = tmp_path / "release", VOCABULARIES[vocabulary]
    release.mkdir()
    pairs, is_split = phrasebook.pairs(TEST + 8000), vocabulary != "sentencepiece"
    sources, _ = zip(*pairs[:TEST], strict=True)
    learn(release, pairs[TEST:])
    for name, lines in zip(("source", "target"), zip(*pairs[TEST:], strict=True), strict=True):
        spm = sentencepiece.SentencePieceProcessor(model_file=str(release / f"{name}.spm"))
        rows = spm.encode(list(lines), out_type=str) if is_split else [[line] for line in lines]
        write(tmp_path / f"train.{name}", map(" ".join, rows))
    sets = f"--train-sets {tmp_path / 'train.source'} {tmp_path / 'train.target'}"
    sizes = "" if is_split else "--dim-vocabs 500 500"
    tying = tying if tied else ""
    run(release, f"train --model model.npz {sets} --vocabs {files} {sizes} {tying} {MODEL} "
                 f"{TRAINING}")  # fmt: skip
    write(release / "decoder.yml", ["models: [model.npz]", f"vocabs: [{', '.join(files.split())}]"])
    write(tmp_path / "lines", split(release, sources, is_split))
    ask = f"decode --config decoder.yml --input {tmp_path / 'lines'} {DECODING}"
    theirs = joined(release, run(release, ask).splitlines(), is_split)

    published = marian.read(release)
    assert published.model.config.tied_logits == tied
    tokenizers = published.source_tokenizer, published.target_tokenizer
    translator = Translator(published.model, *tokenizers, GREEDY)
    ours = translator.translate(sources)
    same = sum(map(str.__eq__, ours, theirs))
    assert same >= 0.99 * TEST
    assert len({*theirs}) > TEST / 4, "Marian has learned too little to tell models apart"

    written = write_marian(translator, tmp_path / "written")
    write(tmp_path / "lines", split(written, sources))
    again = joined(written, run(written, ask).splitlines())
    same_again = sum(map(str.__eq__, ours, again))
    print(f"\n{vocabulary}, {'tied' if tied else 'untied'}: {same} and {same_again} of {TEST}")
    assert same_again >= 0.99 * TEST
