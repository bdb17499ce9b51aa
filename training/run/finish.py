"""After the training: final evaluation, pictures, report and export of a run."""

import resource
import time

import sacrebleu
import tensorflow as tf

from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.export import export_text_model
from keras_tfmr.export.check import ExportError
from keras_tfmr.plots import plot_attention, plot_curves
from keras_tfmr.text.translator import Translator
from training.report.evaluation import BATCH, corpus_scores, shared
from training.report.report import report
from training.run.files import RunError, explained, save_weights, write_atomically, write_json

SAMPLES = 3  # translations printed from the export


def finish(run, data):
    """Finishes the folder of a trained run.

    All workers translate; the chief writes the files.

    Args:
        run: The `loop.Run`, trained.
        data: The `prepare.Data`.

    Raises:
        RunError: If a file cannot be written, or the exported model does not pass its check.
    """
    settings, folder, workers = run.settings, run.folder, run.workers
    minutes = run.clock.seconds() / 60
    if workers.chief:
        save_weights(run.trainer.take_averages(), folder.last)
    workers.gather("the best weights are written")
    model = run.trainer.averaged
    model.load_weights(folder.best)
    beams = settings.beams  # translate_nbest returns all of them
    decoding = DecodingConfig(beams, beams, length_penalty=settings.length_penalty)
    translator = Translator(model, *data.tokenizers, decoding)
    if workers.chief:
        print(f"Translating {len(data.validation)} validation pairs with beam {beams}.")
    results = {"minutes": round(minutes, 2), "steps": run.state.step}
    results["skipped_updates"] = run.state.skipped
    sets = {"validation": data.validation} | ({"test": data.test} if data.test else {})
    for name, pairs in sets.items():
        hypotheses = translations(translator, pairs, workers)
        if workers.chief:
            results |= measured(name, pairs, hypotheses)
            if name == "validation":
                write_translations(folder.translations, pairs, hypotheses)
    if not workers.chief:
        return
    results["peak_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sources = [source for source, _ in data.validation]
    draw(run, translator, sources)
    if settings.export:
        path = export(run.claim, translator, results, sources)
        samples = sources[:SAMPLES]
        for source, text in zip(samples, exported_translations(path, samples), strict=True):
            print(f"    {source}  ->  {text}")
    results["minutes_in_all"] = round(run.clock.seconds() / 60, 2)
    write_atomically(folder.report, report(folder, run.state.rows, results, data))
    write_json(folder.results, results)
    print(f"Finished after {results['minutes_in_all']} minutes: {folder.report}")


def translations(translator, pairs, workers):
    """`(text, score)` of the best hypothesis of each source."""
    sources = [source for source, _ in pairs]
    # Batches of similar lengths, so that none waits for one long sentence.
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    parts = [order[i : i + BATCH] for i in range(0, len(order), BATCH)]

    def best(part):
        found = translator.translate_nbest([sources[i] for i in part], batch_size=BATCH)
        return [(one[0].text, float(one[0].score)) for one in found]

    results = [None] * len(sources)
    for part, hypotheses in zip(parts, shared(best, parts, workers), strict=True):
        for i, hypothesis in zip(part, hypotheses, strict=True):
            results[i] = hypothesis
    return results


def measured(name, pairs, hypotheses):
    """BLEU and chrF of a set, printed, for results.json."""
    texts, references = [text for text, _ in hypotheses], [reference for _, reference in pairs]
    bleu, chrf = corpus_scores(texts, references)
    print(f"{name}: BLEU {bleu:.2f}, chrF {chrf:.2f} on {len(texts)} pairs")
    return {f"{name}_bleu": round(bleu, 2), f"{name}_chrf": round(chrf, 2)}


def write_translations(path, pairs, hypotheses):
    """translations.tsv: source, reference, hypothesis, its score, and its chrF.

    Args:
        path: The file.
        pairs: `(source, reference)`.
        hypotheses: `(text, length-normalised log-probability)`.
    """
    lines = ["source\treference\thypothesis\tscore\tchrf"]
    for (source, reference), (text, score) in zip(pairs, hypotheses, strict=True):
        chrf = sacrebleu.sentence_chrf(text, [reference]).score
        cells = (" ".join(cell.split()) for cell in (source, reference, text))
        lines.append("\t".join((*cells, f"{score:.4f}", f"{chrf:.1f}")))
    write_atomically(path, "\n".join(lines) + "\n")


def draw(run, translator, sources):
    """curves.png, and attention.png: the heads of the last decoder layer on one sentence."""
    source = picture_sentence(sources)
    explanation = translator.explain([source])[0]
    attention = plot_attention(
        explanation.attention_heads[-1],
        explanation.source_tokens,
        explanation.target_tokens,
        title=source,
    )
    curves = plot_curves(run.state.rows, title=run.folder.path.name)
    with explained(run.folder.path):
        attention.savefig(run.folder.attention, dpi=110)
        curves.savefig(run.folder.curves, dpi=110)


def picture_sentence(texts):
    """The text whose length is closest to nine words, for a readable picture."""
    return min(texts, key=lambda text: (abs(len(text.split()) - 9), text))


def export(claim, text_model, results, texts):
    """Writes saved_model/1; returns its path."""
    print("Exporting and checking the SavedModel.")
    claim.clear_exports()  # left by a process that was killed after its export
    begun, folder = time.monotonic(), claim.folder
    try:
        path = export_text_model(
            text_model,
            folder.saved_model,
            metadata={**folder.metadata(), "results": results},
            warmup_texts=texts[:16],
        )
    except ExportError as error:
        raise RunError(str(error)) from error
    print(f"{path}, in {time.monotonic() - begun:.0f} s")
    return path


def exported_translations(path, sources):
    """Translations by the exported model, loaded from its files."""
    loaded = tf.saved_model.load(str(path))
    outputs = loaded.signatures["serving_default"](text=tf.constant(sources))
    return [text.decode() for text in outputs["translation"].numpy()]
