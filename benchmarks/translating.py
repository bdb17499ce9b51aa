"""Times one engine on the sentences of a file, in a process that loads nothing else.

`timed` starts that process. An engine is our export in a session, with one caller per core and one
thread within an operation, or CTranslate2, with one translator of one thread per core. Sentences of
similar length share a request.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import measure

OURS = "keras_tfmr"
CTRANSLATE2 = {"float32": "CTranslate2 float32", "int8": "CTranslate2 int8"}


class Case(NamedTuple):
    """What is timed; `timed` and the process of the engine agree on it by JSON."""

    engine: str  # OURS, or a dtype of CTranslate2
    path: str  # of the version of our export, or of CTranslate2's folder
    beams: int
    rows: int = 32  # sentences of a request
    shortlist: bool = False  # whether CTranslate2 uses its vocabulary map; our exports know it


def timed(case, texts, seconds):
    """`speed` in a process of its own."""
    return measure.alone(__file__, json.dumps(case, default=str), texts, seconds)


def speed(case, texts, seconds):
    """Translates all texts once, then for some seconds.

    Args:
        case: A `Case`.
        texts: Path of a JSON file, a list of strings.
        seconds: Least seconds; every text is translated at least once in them.

    Returns:
        {"rate": sentences per second of all callers, "texts": translations}.
    """
    sources = json.loads(Path(texts).read_text())
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    batches = [order[i : i + case.rows] for i in range(0, len(order), case.rows)]
    translate = ours(case.path, ("serve",), 1) if case.engine == OURS else ctranslate2(case)
    found = [None] * len(sources)
    for rows in batches:  # warms up
        for row, text in zip(rows, translate([sources[i] for i in rows]), strict=True):
            found[row] = text
    cores, done, begun = len(os.sched_getaffinity(0)), [], time.perf_counter()

    def caller(number):
        first = True
        while first or time.perf_counter() - begun < seconds:
            for rows in batches[number::cores]:
                translate([sources[i] for i in rows])
                done.append(len(rows))
            first = False

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(cores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"rate": sum(done) / (time.perf_counter() - begun), "texts": found}


def ours(path, tags, threads):
    """A function from texts to texts: the export in a session, as a server runs it."""
    import numpy as np
    import tensorflow as tf

    from keras_tfmr.export.saved_session import SavedSession

    session = SavedSession(path, tags, tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=2
    ))  # fmt: skip

    def translate(texts):
        column = np.array([text.encode() for text in texts], object)
        return [text.decode() for text in session.run("translate", {"text": column})["translation"]]

    return translate


def ctranslate2(case):
    """The same function, with CTranslate2 and SentencePiece."""
    import ctranslate2
    import sentencepiece

    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=f"{case.path}/{side}.spm")
        for side in ("source", "target")
    )
    translator = ctranslate2.Translator(
        case.path, compute_type=case.engine, intra_threads=1,
        inter_threads=len(os.sched_getaffinity(0)),
    )  # fmt: skip

    def translate(texts):
        results = translator.translate_batch(
            source.encode(texts, out_type=str), beam_size=case.beams, length_penalty=0.6,
            disable_unk=True, suppress_sequences=[["<pad>"], ["<s>"]], min_decoding_length=0,
            max_decoding_length=128, use_vmap=case.shortlist,
        )  # fmt: skip
        return [target.decode(result.hypotheses[0]) for result in results]

    return translate


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    measure.answer(speed(Case(*json.loads(sys.argv[1])), sys.argv[2], float(sys.argv[3])))
