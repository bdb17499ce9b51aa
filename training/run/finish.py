"""After the training: the full evaluation, pictures, report and export of a run."""

import json
import resource
import time

import sacrebleu
import tensorflow as tf

from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.export import export_translator
from keras_tfmr.export.check import ExportError
from keras_tfmr.plots import plot_attention, plot_curves
from keras_tfmr.text.translator import Translator
from training.report.evaluation import BATCH, corpus_scores
from training.report.report import report
from training.run.folder import RunError, explained, save_weights, write_atomically, write_json

SAMPLES = 3  # translations printed from the export


def finish(run, data):
    """Turns a trained run into a finished folder.

    Args:
        run: The `callbacks.Run`, trained.
        data: The `prepare.Data`.

    Raises:
        RunError: If a file cannot be written, or the exported model does not pass its check.
    """
    settings, folder = run.settings, run.folder
    trained_minutes = run.clock.seconds() / 60
    save_weights(run.trainer.take_averages(), folder.last)
    model = run.trainer.averaged
    model.load_weights(folder.best)
    beams = settings.beams  # all of them are exported, as hypotheses of translate_nbest
    decoding = DecodingConfig(beams=beams, n=beams, length_penalty=settings.length_penalty)
    translator = Translator(model, *data.tokenizers, decoding)

    print(f"Translating {len(data.validation)} validation pairs with beam {settings.beams}.")
    results = {"minutes": round(trained_minutes, 2), "steps": run.state.step}
    results |= measured("validation", translator, data.validation, folder)
    if data.test:
        results |= measured("test", translator, data.test)
    results["peak_memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

    draw(run, translator, data)
    if settings.export:
        export(folder, translator, results, data)
    results["minutes_in_all"] = round(run.clock.seconds() / 60, 2)
    write_atomically(folder.report, report(folder, run.state.rows, results, data))
    write_json(folder.results, results)
    print(f"Finished after {results['minutes_in_all']} minutes: {folder.report}")


def measured(name, translator, pairs, folder=None):
    """BLEU and chrF of a set, printed, for results.json; in a folder, translations.tsv too."""
    sources, references = zip(*pairs, strict=True)
    best = [hypotheses[0] for hypotheses in translator.nbest(sources, batch_size=BATCH)]
    texts = [hypothesis.text for hypothesis in best]
    if folder:
        scores = [hypothesis.score for hypothesis in best]
        rows = zip(sources, references, texts, scores, strict=True)
        write_translations(folder.translations, rows)
    bleu, chrf = corpus_scores(texts, references)
    print(f"{name}: BLEU {bleu:.2f}, chrF {chrf:.2f} on {len(texts)} pairs")
    return {f"{name}_bleu": round(bleu, 2), f"{name}_chrf": round(chrf, 2)}


def write_translations(path, rows):
    """translations.tsv: source, reference, hypothesis, its score, and its chrF.

    Args:
        path: The file.
        rows: `(source, reference, hypothesis, length-normalised log-probability)`.
    """
    lines = ["source\treference\thypothesis\tscore\tchrf"]
    for source, reference, text, score in rows:
        chrf = sacrebleu.sentence_chrf(text, [reference]).score
        cells = (" ".join(cell.split()) for cell in (source, reference, text))
        lines.append("\t".join((*cells, f"{score:.4f}", f"{chrf:.1f}")))
    write_atomically(path, "\n".join(lines) + "\n")


def draw(run, translator, data):
    """curves.png, and attention.png: the heads of the last decoder layer on one sentence."""
    source = picture_sentence(data.validation)
    explanation = translator.explain([source])[0]
    attention = plot_attention(
        explanation.attention[-1],
        explanation.source_tokens,
        explanation.target_tokens,
        title=source,
    )
    curves = plot_curves(run.state.rows, title=run.folder.path.name)
    with explained(run.folder.path):
        attention.savefig(run.folder.attention, dpi=110)
        curves.savefig(run.folder.curves, dpi=110)


def picture_sentence(pairs, words=9):
    """The source closest to a length that is worth looking at and still readable."""
    return min((source for source, _ in pairs), key=lambda s: (abs(len(s.split()) - words), s))


def export(folder, translator, results, data):
    """Writes saved_model/1 and prints translations that come from it alone."""
    print("Exporting and checking the SavedModel.")
    folder.clear_exports()  # of a process that was killed after its export
    begun = time.time()
    config = json.loads(folder.config.read_text())
    try:
        path = export_translator(
            translator,
            folder.saved_model,
            metadata={"config": config, "results": results},
            warmup_texts=[source for source, _ in data.validation[:16]],
        )
    except ExportError as error:
        raise RunError(str(error)) from error
    print(f"{path}, in {time.time() - begun:.0f} s; it translates:")
    sources = [source for source, _ in data.validation[:SAMPLES]]
    for source, text in zip(sources, exported_translations(path, sources), strict=True):
        print(f"    {source}  ->  {text}")


def exported_translations(path, sources):
    """What the exported model translates, loaded from its files."""
    loaded = tf.saved_model.load(str(path))
    outputs = loaded.signatures["serving_default"](text=tf.constant(sources))
    return [text.decode() for text in outputs["translation"].numpy()]
