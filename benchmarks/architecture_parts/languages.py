"""The causal Transformer, the LSTMN and Keras's LSTM as language models of the target side."""

import concurrent.futures
import itertools
import multiprocessing
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from benchmarks import measure
from keras_tfmr import LanguageModel, TransformerConfig
from keras_tfmr.layers import Logits
from keras_tfmr.losses import real_tokens, smoothed_cross_entropy
from keras_tfmr.recurrent import LSTMNConfig, LSTMNLanguageModel
from keras_tfmr.text.tokenizer import SubwordTokenizer
from training.corpus.batches import Batches
from training.corpus.pairs import read_pairs
from training.run.on_tensorflow import TensorFlowTrainer, Workers
from training.run.schedule import BudgetSchedule

VOCAB, DROPOUT = 8000, 0.1
EMBEDDING, UNITS = 128, 192  # gives the recurrent ones about the parameters of the Transformer
EVALUATIONS = 12
RATES = (1e-3, 3e-3, 1e-2)  # tried first; more follow while the best one is the first or last
CLAIM = (
    "Cheng et al. (arXiv 1601.06733, table 1) report for the LSTMN a perplexity of 108 on words of "
    "the Penn Treebank, 115 for an LSTM of as many units (300), both trained to the end. Here the "
    "models have about as many parameters, sentences are short and subwords are predicted.\n"
)
SEARCH = 0.2  # share of the minutes for the trial of each rate


def transformer():
    return LanguageModel(
        TransformerConfig(
            target_vocab=VOCAB,
            source_vocab=VOCAB,
            decoder_layers=3,
            d_model=192,
            num_heads=4,
            dff=768,
            norm_first=True,
            dropout_rate=DROPOUT,
        )
    )


def lstmn():
    return LSTMNLanguageModel(
        LSTMNConfig(vocab=VOCAB, embedding_dim=EMBEDDING, units=UNITS, dropout_rate=DROPOUT)
    )


def lstm():
    """The LSTMN's model with `keras.layers.LSTM` in its place."""
    token_ids = keras.Input((None,), dtype="int32")
    dropout = keras.layers.Dropout(DROPOUT)
    x = dropout(keras.layers.Embedding(VOCAB, EMBEDDING, mask_zero=False)(token_ids))
    x = keras.layers.LSTM(UNITS, return_sequences=True)(x)
    return keras.Model(token_ids, Logits(VOCAB)(dropout(x)))


MODELS = {"transformer": transformer, "lstmn": lstmn, "lstm": lstm}


def run(args):
    """Yields (model, {"parameters", "rate", "rates", "tokens_per_second", "rows"}).

    The models are trained side by side, each in a process of its own with one thread. Their minutes
    are of processor time, which does not depend on what else the machine does.
    """
    vocabulary(args)
    names = [name for name in MODELS if not args.models or name in args.models]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(len(names), mp_context=context) as pool:
        yield from zip(names, pool.map(tuned, names, [args] * len(names)), strict=True)


def tuned(name, args):
    """Tries rates for a share of the minutes each, and trains anew with the best."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tokenizer = vocabulary(args)
    training = sentences(tokenizer, args.data, 2000 if args.quick else None)
    validation = sentences(tokenizer, args.validation, 200 if args.quick else None)

    def result(rate, minutes):
        keras.utils.set_random_seed(1)
        make = MODELS[name]
        return train(make(), make(), training, validation, 60 * minutes, rate)

    tried = search(lambda rate: result(rate, SEARCH * args.minutes)["rows"][-1]["perplexity"])
    best = min(tried, key=tried.get)
    rates = {f"{rate:g}": perplexity for rate, perplexity in sorted(tried.items())}
    return {"rate": best, "rates": rates, **result(best, args.minutes)}


def search(perplexity):
    """{rate: perplexity}: three rates, and further ones until the best lies between two others."""
    tried = {rate: perplexity(rate) for rate in RATES}
    while (best := min(tried, key=tried.get)) in (min(tried), max(tried)):
        beyond = best * (0.3 if best == min(tried) else 3.0)
        tried[beyond] = perplexity(beyond)
    return tried


def vocabulary(args):
    """One for all models and later runs."""
    path = Path(args.runs) / "language.model"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        SubwordTokenizer.learn(read_pairs(args.data).targets, VOCAB).save(path)
    return SubwordTokenizer.load(path)


def sentences(tokenizer, path, limit):
    """The target side as `Batches`."""
    ids = tokenizer.encode_lines(list(read_pairs(path).targets)[:limit])
    return Batches(
        ids, ids, tokens_per_batch=1024, seed=1,
        start_id=tokenizer.start_id, end_id=tokenizer.end_id, max_length=128,
    )  # fmt: skip


class NextToken:
    """What a `Trainer` asks of its task: here the next token of one side."""

    def sums(self, model, batch):
        """Loss, real tokens and those predicted."""
        inputs, labels = batch
        logits = model(inputs, training=True)
        weight = real_tokens(labels)
        right = weight * tf.cast(tf.equal(tf.argmax(logits, -1, tf.int32), labels), tf.float32)
        losses = smoothed_cross_entropy(labels, logits)
        return tf.reduce_sum(losses * weight), tf.reduce_sum(weight), tf.reduce_sum(right)


def train(model, averaged, training, validation, seconds, rate):
    """Trains for so many seconds of processor time, evaluations not counted."""
    trainer = TensorFlowTrainer(
        NextToken(), model, averaged, BudgetSchedule(rate, 400),
        average=0.999, clip_norm=1.0, seed=1, workers=Workers(),
    )  # fmt: skip
    perplexity = perplexity_function(averaged, validation)
    used, tokens, rows = 0.0, 0, []
    for number, (inputs, labels) in enumerate(endless(training)):
        before = time.process_time()
        trainer.update([(inputs, labels)], number, (min(used / seconds, 1.0), 0.0, 0.0))
        used += time.process_time() - before
        tokens += int(np.count_nonzero(labels))
        if used >= seconds * (len(rows) + 1) / EVALUATIONS:
            trainer.take_averages()
            rows.append({"minutes": used / 60, "tokens": tokens, "perplexity": perplexity()})
        if used >= seconds:
            break
    return {
        "parameters": model.count_params(), "tokens_per_second": tokens / used, "rows": rows
    }  # fmt: skip


def endless(training):
    for epoch in itertools.count():
        for (_, target_in), target_out in training.dataset(epoch):
            yield target_in, target_out


def perplexity_function(model, validation):
    """A function: exp of the mean cross-entropy of the validation tokens."""

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def total(inputs, labels):
        losses = smoothed_cross_entropy(labels, model(inputs, training=False))
        return tf.reduce_sum(losses * real_tokens(labels)), tf.reduce_sum(real_tokens(labels))

    def perplexity():
        batches = (total(inputs, labels) for (_, inputs), labels in validation.dataset())
        loss, tokens = (float(sum(values)) for values in zip(*batches, strict=True))
        return float(np.exp(loss / tokens))

    return perplexity


def section(results):
    header = [
        "model", "parameters", "rate", "minutes", "tokens/s", "perplexity", "lowest", "at minute"
    ]  # fmt: skip
    rows = [
        [
            name, f"{r['parameters']:,}", f"{r['rate']:g}", r["rows"][-1]["minutes"],
            r["tokens_per_second"], r["rows"][-1]["perplexity"], low["perplexity"], low["minutes"],
        ]
        for name, r in results.items()
        for low in [min(r["rows"], key=lambda row: row["perplexity"])]
    ]  # fmt: skip
    return (
        "## Language models\n\n"
        f"The target side of the pairs in {VOCAB:,} subwords of its own; perplexity a subword on "
        "the validation set. The minutes are of training alone, in the time of one processor core; "
        f"the rate falls to nothing by their end.{searched(results)}\n\n"
        f"{measure.table(header, rows)}\n{CLAIM}"
    )


def searched(results):
    """How the rates were found, and what each gave."""
    if not all(r["rates"] for r in results.values()):
        return " One rate for all of them; none has been searched yet."
    tried = "".join(
        f"\n- {name}: " + ", ".join(f"{rate}: {value:.1f}" for rate, value in r["rates"].items())
        for name, r in results.items()
    )
    return (
        " The models were trained side by side, each with the best of its own "
        f"rates. Perplexity by rate, each tried for {SEARCH:.0%} of the minutes:\n{tried}"
    )
