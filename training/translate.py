"""Translates a file, line by line, with a trained run or a published model.

    python training/translate.py runs/translator < in.txt > out.txt
    python training/translate.py runs/translator --input in.txt --output out.txt

For each line of the input, it writes one line, in the same order. With --documents, a line may hold
many sentences, which it translates one by one. To go on with an interrupted file, repeat the
command with --resume.
"""

if __name__ == "__main__":
    from training.command.scripts import begin_quietly

    begin_quietly()

import codecs
import concurrent.futures
import contextlib
import functools
import itertools
import os
import re
import sys
import time
from contextlib import nullcontext
from itertools import chain
from pathlib import Path

from keras_tfmr._files import check_writable
from keras_tfmr.compat import import_tensorflow, usable_cores
from keras_tfmr.text.strings import read_terms
from training.command import preset_options, scripts
from training.command.disk import RunError

PACKED = (".bz2", ".gz", ".xz", ".zip", ".zst")
BATCHES = 8  # batches for each core: their texts are read, sorted by length and written together


def main(arguments=None):
    """The command; returns its exit status."""
    return scripts.command("translate.py", translate_file, parse_arguments(arguments))


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    parser = scripts.parser(__doc__)
    # fmt: off
    parser.add_argument("preset", metavar="PRESET",
        help="folder of a run, published model, or hf://OWNER/NAME")
    parser.add_argument("--input", metavar="FILE", type=Path,
        help="file of lines (default: standard input)")
    parser.add_argument("--output", metavar="FILE", type=Path,
        help="file to write (default: standard output)")
    parser.add_argument("--resume", action="store_true",
        help="go on after the lines that --output has")
    parser.add_argument("--overwrite", action="store_true", help="start again if --output exists")
    parser.add_argument("--documents", action="store_true",
        help="translate each sentence of a line, and keep the white space between them")
    parser.add_argument("--scores", action="store_true",
        help="append a tab and the score: the log-probability divided by the length penalty")
    parser.add_argument("--terms", metavar="FILE", type=Path,
        help="file of lines TERM<TAB>TRANSLATION: terms with given translations")
    parser.add_argument("--precision", choices=("float32", "bfloat16", "int8"), default="float32",
        help="precision of weights and layers")
    parser.add_argument("--batch_size", metavar="N", type=scripts.number_from(1), default=128,
        help="lines translated together")
    # fmt: on
    preset_options.add_to(parser)
    options = parser.parse_args(arguments)
    if options.documents and (options.scores or options.terms):
        parser.error("--scores and --terms cannot be given with --documents")
    if (options.resume or options.overwrite) and not options.output:
        parser.error("--resume and --overwrite have no effect without --output")
    if options.resume and options.overwrite:
        parser.error("--resume cannot be given with --overwrite")
    if options.input and options.input.suffix in PACKED:
        parser.error(f"--input must be text: unpack {options.input} first")
    return options


def translate_file(options):
    """Translates the lines that have no translation yet."""
    with options.input.open("rb") if options.input else nullcontext(sys.stdin.buffer) as source:
        check_output(options, source)
        begun, size = written(options.output) if options.resume else (0, 0)
        lines = lines_of(source)
        if sum(1 for _ in itertools.islice(lines, begun)) < begun:
            raise RunError(f"{options.output} has {begun:,} lines, more than the input")
        translate, token_counts = load(options)
        with opened(options.output, size) as output:
            write_translations(lines, output, translate, token_counts, options)


def check_output(options, source):
    """Raises a RunError if a file cannot be written, is there already, or is the input."""
    path = options.output
    if path is None:
        return
    check_writable(path)
    if path.exists():
        if os.path.samestat(path.stat(), os.fstat(source.fileno())):
            raise RunError(f"--output must not be the input. Received: {path}")
        if not (options.resume or options.overwrite):
            raise RunError(f"{path} exists: give --resume to go on with it, or --overwrite")


def written(path):
    """The number of complete lines of an output, and of their bytes."""
    lines = size = 0
    if path.exists():
        with path.open("rb") as output:
            for line in output:
                if line.endswith(b"\n"):
                    lines, size = lines + 1, size + len(line)
    return lines, size


@contextlib.contextmanager
def opened(path, size):
    """The output, standard output if `path` is None; of a file, `size` bytes are kept."""
    if path is None:
        with contextlib.suppress(BrokenPipeError):  # `| head` has read enough
            yield sys.stdout.buffer
        return
    try:
        with path.open("r+b" if size else "wb") as output:
            output.truncate(size)  # half a line, which a killed process leaves
            output.seek(size)
            yield output
    except OSError as error:  # that of a full disk does not name the file
        raise RunError(f"Cannot write {path}: {error.strerror}") from error


def lines_of(file):
    """The lines of a binary file, without line ends and byte order mark."""
    for number, line in enumerate(file):
        yield (line if number else line.removeprefix(codecs.BOM_UTF8)).rstrip(b"\r\n")


def load(options):
    """Two functions of a list of texts: their translations, and their numbers of tokens."""
    import_tensorflow()
    import tensorflow as tf

    from keras_tfmr import Translator
    from keras_tfmr.export.calibration import texts_for
    from keras_tfmr.text_models.shortlist import shortlist_for

    with contextlib.suppress(RuntimeError):  # TensorFlow has already started its threads
        # One core for each batch: several at once gain more than threads within an operation.
        tf.config.threading.set_intra_op_parallelism_threads(1)
    given = preset_options.given(options)
    try:
        terms = read_terms(options.terms) if options.terms else {}
        translator = Translator.from_preset(options.preset, options.weights or True, **given)
        examples = texts_for(translator, None)[:64]
        shortlist = options.shortlist
        if shortlist is not None:
            shortlist = shortlist_for(translator, options.preset, shortlist)
        translator = translator.for_decoding(options.precision, examples)
        if shortlist is not None:
            translator = translator.with_shortlist(shortlist)
        if options.documents:
            translate = translator.translate_document
        elif options.terms:
            translate = functools.partial(
                translator.translate_with_terms, terms=terms, batch_size=options.batch_size
            )
        else:
            translate = functools.partial(translator.translate, batch_size=options.batch_size)
        translate([b""])  # which tells what the model lacks: slots for terms, a language
    except (OSError, ValueError, RuntimeError) as error:
        raise RunError(str(error)) from error
    return translate, translator.token_counts


def write_translations(lines, output, translate, token_counts, options):
    """Writes a line for each line."""
    cores, done, began = usable_cores(), 0, time.monotonic()
    pool = concurrent.futures.ThreadPoolExecutor(cores)
    try:
        while texts := [*itertools.islice(lines, BATCHES * cores * options.batch_size)]:
            batches = similar(token_counts(texts), options.batch_size)
            answers = pool.map(lambda rows: translate([texts[row] for row in rows]), batches)
            found = dict(zip(chain(*batches), chain.from_iterable(answers), strict=True))
            output.writelines(formatted(found[row], options.scores) for row in range(len(texts)))
            output.flush()
            done += len(texts)
            if sys.stderr.isatty():
                print(f"\r{done:,} lines", end="", file=sys.stderr, flush=True)
    finally:  # after an error, nothing waits for batches under way
        pool.shutdown(wait=False, cancel_futures=True)
    seconds = time.monotonic() - began
    print(f"\r{done:,} lines, {done / seconds:,.1f} a second", file=sys.stderr)


def similar(counts, size):
    """Batches of up to `size` texts of similar length: lists of their numbers, longest first."""
    order = sorted(range(len(counts)), key=counts.__getitem__, reverse=True)
    return [order[i : i + size] for i in range(0, len(order), size)]


def formatted(answer, scores):
    """The line of a `Translation` or `Document`: a translation may spell line ends by bytes."""
    text = re.sub(r"[\r\n]+", " ", answer.text)
    return (f"{text}\t{answer.score:.4f}\n" if scores else f"{text}\n").encode()


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(status)  # without waiting for batches that nobody wants any more
