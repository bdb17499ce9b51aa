"""Shortlists: against the full pass restricted by hand; what is learned, against plain counting."""

import collections

import numpy as np
import pytest
from text_models import LINES, by_hand, tiny_model, tokenizer, write_run

from keras_tfmr import Translator
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.export.saved_session import SavedSession
from keras_tfmr.text.lexicon import Lexicon
from training import learn_lexicon
from training.command.disk import RunError
from training.run.run_folder import RunFolder

VOCAB = tokenizer().vocab_size
TEXTS = [*LINES, "", "Olá 👋", b"\xff\xfe caf\xe9", "gato " * 40]


def lexicon():
    """Random candidates, so that the best token of the whole vocabulary is seldom among them."""
    rng = np.random.default_rng(4)
    table = rng.integers(0, VOCAB, (VOCAB, 2))
    return Lexicon(table, rng.choice(VOCAB, 12, replace=False), VOCAB)


def listed(model, lexicon, **decoding):
    decoding = {"num_beams": 3, "num_return_sequences": 2, "max_length": 12, **decoding}
    config = DecodingConfig(**decoding)
    return Translator(model, tokenizer(), config=config, max_source_length=24, lexicon=lexicon)


@pytest.mark.parametrize("fields", [{"tied_logits": False}, {"logits_bias": True}])
def test_greedy_is_the_full_pass_over_the_allowed_ids(fields):
    model = tiny_model(**fields)
    bias = model.logits.bias if "logits_bias" in fields else model.logits.dense.bias
    bias.assign(np.random.default_rng(1).normal(0, 5, VOCAB))
    translator = listed(model, lexicon(), num_beams=1, num_return_sequences=1)
    found = translator.translate_nbest(TEXTS)
    for text, (hypothesis,) in zip(TEXTS[:2], found, strict=False):
        source = tokenizer().encode_truncated([text], 24)[0].numpy()
        likely = translator.lexicon.candidates.numpy()[source].ravel()
        allowed = {*translator.lexicon.always, *likely, tokenizer().eos_id}
        allowed = sorted(allowed - {0, 1, 2})  # padding, unknown and start
        ids, log_prob = by_hand(lambda ids, source=source: model([source, ids])[0, -1], 12, allowed)
        expected = tokenizer().decode(np.array([ids])).numpy()[0].decode()
        assert hypothesis.text == expected
        penalty = ((5 + len(ids)) / 6) ** translator.config.length_penalty
        assert hypothesis.score == pytest.approx(log_prob / penalty, rel=1e-4, abs=1e-4)


def model_1(pairs, rounds):
    """IBM's Model 1 as its paper has it, word by word: {source: {target: probability}}."""
    likely = collections.defaultdict(lambda: collections.defaultdict(lambda: 1.0))
    for _ in range(rounds):
        counts = collections.defaultdict(lambda: collections.defaultdict(float))
        for source, target in pairs:
            for t in target:
                total = sum(likely[s][t] for s in source)
                for s in source:
                    counts[s][t] += likely[s][t] / total
        for s, found in counts.items():
            likely[s] = {t: count / sum(found.values()) for t, count in found.items()}
    return likely


def test_what_is_learned_is_model_1():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, (40, 2))
    pairs = [(rng.integers(4, 12, m).tolist(), rng.integers(4, 15, n).tolist()) for m, n in lengths]
    sizes = {"source_vocab": 13, "target_vocab": 15, "n": 3, "always": 2}
    found = Lexicon.learn(pairs, **sizes, rounds=4, joint=True)
    table = found.candidates.numpy()
    assert table[12].tolist() == [0, 0, 0, 12] and table[:4, :3].max() == 0
    for source, likely in model_1(pairs, 4).items():
        *ids, own = table[source]
        best = sorted(likely.values(), reverse=True)[:3]
        assert own == source
        np.testing.assert_allclose([likely[i] for i in ids if i], best, rtol=1e-9)
    counts = collections.Counter(t for _, target in pairs for t in target)
    assert [counts[i] for i in found.always] == [n for _, n in counts.most_common(2)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with a lexicon that the command has learned."""
    folder = write_run(tmp_path_factory.mktemp("listed") / "run", num_beams=2, length_penalty=0.6)
    pairs = folder.parent / "pairs.tsv"
    lines = [f"{a}\t{b}\n" for a, b in zip(LINES[:3], LINES[3:], strict=True)]
    pairs.write_text("".join(lines), encoding="utf-8")
    options = ["--data", str(pairs), "--candidates", "4", "--always", "5", "--most", "3"]
    assert learn_lexicon.main([str(folder), *options]) == 0
    return folder


def test_translators_and_exports_use_the_lexicon_of_a_run(run):
    translator = Translator.from_preset(run, max_source_length=24, max_length=10)
    learned = Lexicon.load(run / "lexicon.npz")
    assert learned.sizes == (VOCAB, VOCAB) and len(learned.always) == 5
    np.testing.assert_array_equal(translator.lexicon.candidates, learned.candidates)
    translator.signatures = {"translate": translator.signatures["translate"]}
    path = translator.export(run / "models", check=False)
    with SavedSession(path) as session:
        text = np.array([line.encode() for line in LINES], object)
        found = session.run("translate", {"text": text})["translation"]
    assert [t.decode() for t in found] == translator.translate(LINES)


def test_what_does_not_fit_is_an_error(run, tmp_path, capsys):
    small = Lexicon(np.zeros((7, 2)), [3], 9)
    with pytest.raises(ValueError, match=r"\(7, 9\) ids in the lexicon, \(320, 320\) in the model"):
        listed(tiny_model(), small)
    with pytest.raises(ValueError, match=r"candidates \[source_vocab, n\].*\(7,\) and \(1,\)"):
        Lexicon(np.zeros(7), [3], 9)
    with pytest.raises(ValueError, match=r"ids from 0 to 8\. Received: ids from 0 to 9"):
        Lexicon(np.full((7, 2), 9), [3], 9)
    assert learn_lexicon.main([str(run), "--data", str(tmp_path / "none.tsv")]) == 1
    assert "none.tsv" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        learn_lexicon.main([str(run), "--data", "pairs.tsv", "--candidates", "0"])
    assert "must be a whole number of 1 or more. Received: '0'" in capsys.readouterr().err
    whole = (run / "lexicon.npz").read_bytes()
    RunFolder(run).clear()  # as --overwrite does: another run has other subwords
    assert not (run / "lexicon.npz").exists()
    for damaged in (b"PK\x03\x04", whole[:-30], whole[:50] + b"\xff" * 60 + whole[110:]):
        (run / "lexicon.npz").write_bytes(damaged)
        with pytest.raises(RunError, match=r"lexicon\.npz is not a lexicon"):
            RunFolder(run).read_lexicon()
