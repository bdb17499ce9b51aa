"""Marian, run by the `pymarian` of another environment, trained from scratch at our model's size.

The recipe is that of `--task transformer-base` (arXiv 1804.00344): post-norm, tied embeddings,
Adam(0.9, 0.98), label smoothing 0.1, inverse square root after a warm-up, smoothed weights; but
with the caller's rate and warm-up and ten times its smoothing, because its own are for many more
updates. MARIAN_REPLICAS says how many copies of the model share an update.
"""

import io
import json
import os
import re
import subprocess
import time
from pathlib import Path

import harness
import sacrebleu
import sentencepiece

MODEL = """--type transformer --tied-embeddings-all --enc-depth 3 --dec-depth 3 --dim-emb 192
    --transformer-heads 4 --transformer-dim-ffn 768 --transformer-ffn-activation relu
    --transformer-postprocess dan --transformer-dropout 0.1"""
RECIPE = """--mini-batch 64 --maxi-batch 1000 --label-smoothing 0.1 --optimizer-params 0.9 0.98 1e-9
    --clip-norm 1 --exponential-smoothing 0.001 --sync-sgd --max-length 100 --workspace 2000
    --seed 1 --shuffle-in-ram --disp-freq 50u --disp-label-counts"""
DECODING = """--mini-batch 64 --maxi-batch 100 --cpu-threads 2 --max-length-factor 3 --quiet
    --quiet-translation"""
GREEDY, BEAMS = "--beam-size 1 --normalize 0", "--beam-size 4 --normalize 0.6"


def train(args):
    """Rows of BLEU by minutes of training, and the last model's translations of the test set; the
    models stay beside our run, in RUN-marian."""
    folder = Path(f"{args.run}-marian")
    valid = harness.pairs_of(args.validation)
    valid = valid[:: max(1, len(valid) // args.pairs)][: args.pairs]  # spread over the file
    test = [source for source, _ in harness.pairs_of(args.test)] if args.test else []
    sources, references = zip(*valid, strict=True)
    processor = prepare(folder, harness.pairs_of(args.data), {"valid": sources, "test": test})
    begun, models = trained(args, folder)
    rows = []
    for minutes, updates, model in measured(begun, models, args.every):
        texts = translated(args.marian, folder, model, processor, "valid", GREEDY)
        bleu = sacrebleu.corpus_bleu(texts, [list(references)]).score
        rows.append({"minutes": minutes, "updates": updates, "bleu": round(bleu, 2)})
    return rows, translated(args.marian, folder, model, processor, "test", BEAMS) if test else []


def prepare(folder, pairs, texts):
    """Writes pieces separated by spaces, of other sources too, and one vocabulary.

    Returns:
        The SentencePieceProcessor of both languages: 8,000 subwords, as ours by default.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for pair in pairs for text in pair]), model_writer=model,
        vocab_size=8000, hard_vocab_limit=False, byte_fallback=True, minloglevel=2,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [processor.id_to_piece(i) for i in range(3, len(processor))]  # behind <unk>, <s>, </s>
    ids = {piece: i for i, piece in enumerate(["</s>", "<unk>", *pieces])}
    lines = (f"{json.dumps(piece, ensure_ascii=False)}: {i}" for piece, i in ids.items())
    write(folder / "vocab.yml", lines)
    for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        write(folder / f"train.{side}", spaced(processor, lines))
        (folder / f"{side}.spm").write_bytes(model.getvalue())
    for name, sources in texts.items():
        write(folder / f"{name}.source", spaced(processor, sources))
    return processor


def spaced(processor, texts):
    """Texts as pieces with spaces between them."""
    return (" ".join(row) for row in processor.encode(list(texts), out_type=str))


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def trained(args, folder):
    """(When training began, the models saved on the way), after `args.minutes` of training."""
    log = folder / "train.log"
    for old in (log, *folder.glob("model.*")):
        old.unlink(missing_ok=True)
    options = f"""train {MODEL} {RECIPE} --cpu-threads {os.environ["MARIAN_REPLICAS"]}
        --learn-rate {args.rate} --lr-warmup {args.warmup} --lr-decay-inv-sqrt {args.warmup}
        --save-freq {25 if args.minutes < 1 else 100}u
        --vocabs vocab.yml vocab.yml --train-sets train.source train.target --model model.npz
        --log train.log --quiet"""
    process = start(args.marian, options, folder)
    while not (log.exists() and "Training started" in log.read_text("utf-8")):
        if process.poll() is not None:
            raise RuntimeError(process.communicate()[1][-2000:])
        time.sleep(0.1)
    begun = time.time()
    time.sleep(60 * args.minutes)
    while process.poll() is None and not any(folder.glob("model.iter*.npz")):
        time.sleep(0.1)  # a few seconds may not be enough for the first model
    process.terminate()  # Marian saves and ends
    process.communicate()
    return begun, list(folder.glob("model.iter*.npz"))


def measured(begun, models, every):
    """(Minutes, updates, path) of the last model before each multiple of `every` minutes."""
    found = {}
    for model in models:
        minutes = (model.stat().st_mtime - begun) / 60
        updates = int(re.search(r"iter(\d+)", model.name)[1])
        mark = -(-minutes // every)
        found[mark] = max(found.get(mark, (0,)), (round(minutes, 3), updates, model))
    return [found[mark] for mark in sorted(found)]


def translated(python, folder, model, processor, name, search):
    """Marian's translations of the sources in NAME.source."""
    options = f"""decode --models {model.name} --vocabs vocab.yml vocab.yml
        --input {name}.source {search} {DECODING}"""
    out, errors = start(python, options, folder).communicate()
    texts = [processor.decode(line.split()) for line in out.splitlines()]
    if len(texts) != len(harness.lines_of(folder / f"{name}.source")):
        raise RuntimeError(errors[-2000:])
    return texts


def start(python, options, folder):
    """Marian, running in a folder."""
    command = [python, "-m", "pymarian", *options.split()]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
