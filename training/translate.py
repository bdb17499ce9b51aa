"""Translates files of any size, line by line, with a trained run or a published model.

    python training/translate.py runs/translator < in.txt > out.txt
    python training/translate.py runs/translator --input in.txt.gz --output out.txt.gz

Lines are written in the order of the input. In lines with tabs, one column is translated and the
others are kept. With --output, repeat an interrupted command to resume. Texts are plain text.

--documents is for texts of many sentences, which it translates one by one:

    python training/translate.py runs/translator --documents file --input in/ --output out/

Each text is a line, or a paragraph between blank lines, whose lines are joined, or a whole file of
a folder. White space around sentences is kept. With html or markdown, the files are pages of a
site, of which only the text is translated.
"""

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import os
import re
import sys
from pathlib import Path

WINDOW = 4096  # lines that are sorted together by their token counts
FILES = 64  # files that are, and of which as many threads as there are translate some
AHEAD = 2  # windows in progress at the same time
# Minimum fraction of the tokens of the longest text in a batch that the next text needs to join
# it, once the batch is a quarter full: a shorter text would cost too much padding.
SIMILAR = 0.6
# The kinds of documents that are whole files, and how their names end.
FILE_NAMES = {"file": (), "html": (".html", ".htm", ".xhtml"), "markdown": (".md", ".markdown")}


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    from keras_tfmr import _command_line
    from keras_tfmr.compat import usable_cores

    parser = _command_line.parser(__doc__)
    add = parser.add_argument
    count = {"type": _command_line.at_least(1), "metavar": "N"}
    amount = {"type": _command_line.at_least(0.0), "metavar": "X"}
    of_files = [f"--documents {kind}" for kind in FILE_NAMES]
    one_line = ["--documents paragraph", *of_files]
    preset = "folder of a run, published model, archive of one, or hf://OWNER/NAME"
    add("preset", metavar="PRESET", help=preset)
    forms = "file of text, also .gz, .bz2, .xz or .zst"
    add("--input", metavar="FILE", type=Path, help=f"{forms} (default: standard input)")
    add("--output", metavar="FILE", type=Path, help=f"{forms} (default: standard output)")
    again = "start again if --output exists"
    add("--overwrite", action="store_true", only_with=["--output"], help=again)
    documents = "translate sentence by sentence and keep the white space; a text is a line, a "
    documents += "paragraph between blank lines, a file, or a page of HTML or Markdown; --input is "
    documents += "a folder of files, or one (default: line)"
    kinds = ("line", "paragraph", *FILE_NAMES)
    add("--documents", nargs="?", const="line", choices=kinds, help=documents)
    part = (
        "translate part I of N only, and write OUTPUT.I-of-N; auto/N: the part of this task of a "
        "SLURM array (0 to N-1) or of an Indexed Job"
    )
    add("--shard", metavar="I/N", type=shard, help=part)
    column = "column to translate in lines with tabs (default: 1; with --documents, the whole line)"
    add("--column", **count, not_with=one_line, help=column)
    nbest = "write the N best for each line: line number ||| translation ||| score"
    add("--nbest", **count, not_with=["--sample", "--documents"], help=nbest)
    pairs = "write SOURCE<TAB>TRANSLATION lines, for training"
    add("--pairs", action="store_true", not_with=["--nbest", *one_line], help=pairs)
    scores = "append a column: the log-probability divided by the length penalty"
    add("--scores", action="store_true", not_with=["--nbest", "--documents"], help=scores)
    terms = "file of lines TERM<TAB>TRANSLATION: terms with given translations"
    others = ["--nbest", "--sample", "--documents"]
    add("--terms", metavar="FILE", type=Path, not_with=others, help=terms)
    sample = "draw one translation of each text instead of searching for the best"
    add("--sample", action="store_true", not_with=["--documents"], help=sample)
    drawn = {"only_with": ["--sample"]}
    add("--temperature", **amount, **drawn, default=1.0, help="temperature of --sample")
    add("--top_k", **count, **drawn, help="with --sample, draw from the N most probable tokens")
    add("--seed", type=int, **drawn, default=1, metavar="N", help="seed of --sample")
    width = "beam width, 1 for greedy (default: the preset's)"
    add("--num_beams", **count, not_with=["--sample"], help=width)
    penalty = "exponent of the length penalty (default: the preset's)"
    add("--length_penalty", **amount, help=penalty)
    longest = "maximum tokens of a translation (default: the preset's, else 128)"
    add("--max_length", **count, help=longest)
    read = "maximum tokens read from a line (default: the preset's, else 128)"
    add("--max_source_length", **count, help=read)
    spans = "what a translation has as it is: names such as url and code, patterns (RE2), or none "
    spans += "(default: the preset's)"
    add("--protect", nargs="+", metavar="NAME", help=spans)
    language = "target language of lines without a tag, if the model has several"
    add("--language", metavar="CODE", help=language)
    add("--weights", metavar="FILE", type=Path, help="weights to use (default: the preset's)")
    precision = "precision of weights and layers"
    add("--precision", choices=("float32", "bfloat16", "int8"), default="float32", help=precision)
    together = "lines translated together"
    add("--batch_size", **count, default=128, not_with=of_files, help=together)
    threads = "batches translated at the same time (default: one per core)"
    add("--threads", **count, default=usable_cores(), help=threads)
    options = parser.parse_args(arguments)
    try:
        check(options)
        if options.shard and options.documents not in FILE_NAMES:
            options.output = part_of(options.output, *options.shard)
        check_apart(options.input, options.output)
    except ValueError as error:
        parser.error(str(error))
    if not options.documents:
        options.column = options.column or 1
    return options


def check(options):
    """Raises a ValueError if options contradict each other."""
    beams, nbest, documents = options.num_beams, options.nbest, options.documents
    if nbest and beams and nbest > beams:
        raise ValueError(
            "--nbest must not be greater than --num_beams. "
            f"Received: --nbest {nbest}, --num_beams {beams}"
        )
    if documents in FILE_NAMES:
        check_folders(documents, options.input, options.output)
    elif options.shard:
        from training.corpus.packed import is_packed

        if not (options.input and options.output) or is_packed(options.input) or nbest:
            raise ValueError("--shard needs --input, not packed, and --output, and has no --nbest")
        if documents == "paragraph":
            raise ValueError("--shard has no --documents paragraph: one may span two parts")


def check_folders(documents, source, target):
    """Raises a ValueError unless these are two files, or folders apart from each other."""
    given = source and target and source.exists()
    if not given or (target.exists() and source.is_dir() != target.is_dir()):
        message = "needs two folders or two files, --input and --output"
        raise ValueError(f"--documents {documents} {message}")
    source, target = source.resolve(), target.resolve()
    if source.is_relative_to(target) or target.is_relative_to(source):
        raise ValueError(f"--input and --output must be apart. Received: {source}, {target}")


def check_apart(source, target):
    """Raises a ValueError if writing a file would destroy the input; links count."""
    for path in (target, target.with_name(f"{target.name}.progress")) if target else ():
        with contextlib.suppress(OSError):  # there is none
            if os.path.samestat(path.stat(), source.stat() if source else os.fstat(0)):
                raise ValueError(f"--output must not be the input. Received: {target}")


def shard(value):
    """`I/N` as two ints; `auto/N` with the index that SLURM or Kubernetes gives, from 0."""
    index, _, count = value.partition("/")
    if index == "auto":
        names = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")
        index = next((int(os.environ[name]) + 1 for name in names if name in os.environ), 0)
    index, count = int(index), int(count)
    if not 1 <= index <= count:
        raise ValueError(f"there is no part {index} of {count}")
    return index, count


def part_of(output, index, count):
    """The name of a part of an output; names sort in order."""
    return output.with_name(f"{output.stem}.{index:0{len(str(count))}}-of-{count}{output.suffix}")


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    # Imported here, so that --help and wrong arguments are answered at once.
    from training.run.process import command

    translate = translate_files if options.documents in FILE_NAMES else translate_lines
    return command("translate.py", translate, options)


def translate_lines(options):
    """Translates the lines or paragraphs of a file or of standard input."""
    from training.run.streams import Output, Progress, Stream, is_complete, opened_input, paragraphs

    path = options.output
    if options.shard and not options.overwrite and is_complete(path):
        print(f"{path} is complete", file=sys.stderr)
        return
    with opened_input(options.input, options.shard) as lines:
        output = Output(options) if path else Stream(sys.stdout.buffer)
        texts = paragraphs(lines) if options.documents == "paragraph" else lines
        for _ in itertools.islice(texts, output.lines):  # already translated
            pass
        callers, count = make_callers(options)
        progress = Progress(lines, output.lines)
        for window, found in translated(texts, callers, count, options, output.lines // WINDOW):
            numbered = enumerate(zip(window, found, strict=True), output.lines + 1)
            data = b"".join(formatted(*pair, number, options) for number, pair in numbered)
            try:
                output.write(data, len(window))
            except BrokenPipeError:  # `| head` has read enough
                return
            progress.show(output.lines)
        output.finish()
        progress.end()


def translate_files(options):
    """Translates files; those that have been translated are left as they are."""
    from training.corpus.packed import lines, packer
    from training.run.files import write_atomically

    is_folder = options.input.is_dir()
    names = FILE_NAMES[options.documents] if is_folder else ()
    files = sorted(
        file
        for file in (options.input.rglob("*") if is_folder else [options.input])
        if file.is_file() and (not names or {*map(str.lower, file.suffixes)} & {*names})
    )
    if options.shard:
        index, count = options.shard
        files = files[index - 1 :: count]
    targets = [options.output / file.relative_to(options.input) for file in files]
    both = [*zip(files, targets, strict=True)]
    waiting = [pair for pair in both if options.overwrite or not pair[1].exists()]
    print(f"{len(waiting):,} of {len(files):,} files to translate", file=sys.stderr)
    if not waiting:
        return
    callers, count = make_callers(options)
    options.batch_size = -(-FILES // options.threads)

    def content_of(file):
        with file.open("rb") as raw:
            return b"".join(lines(raw, file))

    contents = (content_of(file) for file, _ in waiting)
    rest = iter(waiting)
    for _, found in translated(contents, callers, count, options, size=FILES):
        for hypotheses, (_, target) in zip(found, rest, strict=False):
            [text] = hypotheses
            content = text if isinstance(text, bytes) else text.encode()
            write_atomically(target, packer(target)(content))


def translated(lines, callers, count, options, first=0, size=None):
    """Yields windows of lines and the hypotheses of each line, in order.

    Args:
        lines: An iterator of bytes.
        callers: A list of callables `(texts, seed) -> list of lists of hypotheses`, each for one
            thread.
        count: A callable from texts to the number of tokens of each.
        options: The command line.
        first: Number of the first window, which seeds are made of.
        size: Lines in a window; `WINDOW` by default.
    """
    free, pool = collections.deque(callers), concurrent.futures.ThreadPoolExecutor(len(callers))

    def call(texts, seed):
        caller = free.popleft()  # as many as threads
        try:
            return caller(texts, seed)
        finally:
            free.append(caller)

    def begun(number, window):
        texts = [text_of(line, options.column) for line in window]
        return [
            (rows, pool.submit(call, [texts[row] for row in rows], (options.seed, number, i)))
            for i, rows in enumerate(batches_of(count(texts), options.batch_size))
        ]

    waiting = collections.deque()
    try:
        for number in itertools.count(first):
            if window := list(itertools.islice(lines, size or WINDOW)):
                waiting.append((window, begun(number, window)))
            while waiting and (not window or len(waiting) > AHEAD):
                window_before, started = waiting.popleft()
                found = [None] * len(window_before)
                for rows, future in started:
                    for row, hypotheses in zip(rows, future.result(), strict=True):
                        found[row] = hypotheses
                yield window_before, found
            if not window:
                return
    finally:  # after an error, Ctrl-C or a closed pipe, nothing waits for what is under way
        pool.shutdown(wait=False, cancel_futures=True)


def batches_of(counts, size):
    """Batches of up to `size` texts with similar token counts: lists of rows, longest first."""
    batches = []
    for row in sorted(range(len(counts)), key=counts.__getitem__, reverse=True):
        batch = batches[-1] if batches else []
        shorter = batch and counts[row] < SIMILAR * counts[batch[0]]
        if not batch or len(batch) == size or (shorter and 4 * len(batch) >= size):
            batches.append(batch := [])
        batch.append(row)
    return batches


def text_of(line, column):
    """The text to translate in a line, all of it without a column; empty if the line lacks it."""
    if column is None:
        return line
    columns = line.split(b"\t")
    return columns[column - 1] if column <= len(columns) else b""


def formatted(line, hypotheses, number, options):
    """The output for a line: its columns with the translation, or its n best translations."""
    one_line = (lambda text: text.replace("\n", " ")) if options.documents else flat
    texts = [(one_line(one.text).encode(), one.score) for one in hypotheses]
    if options.nbest:
        rows = texts[: options.nbest]
        return b"".join(b"%d ||| %s ||| %.4f\n" % (number, text, score) for text, score in rows)
    text, score = texts[0] if texts else (b"", 0.0)
    columns = line.split(b"\t")
    if options.pairs:
        columns = [text_of(line, options.column).replace(b"\t", b" "), text]
    elif options.column is None:
        columns = [text]
    elif options.column <= len(columns):
        columns[options.column - 1] = text
    if options.scores:
        columns.append(b"%.4f" % score)
    return b"\t".join(columns) + b"\n"


def flat(text):
    """A text without tabs and line ends; protected spans keep their spaces."""
    return re.sub(r"\s*[\t\r\n]\s*", " ", text).strip()


def make_callers(options):
    """For each thread, a function that translates a batch; and one that counts tokens."""
    import tensorflow as tf

    from keras_tfmr import _command_line
    from keras_tfmr.signatures.answers import Translation
    from training.run.files import RunError

    with contextlib.suppress(RuntimeError):  # TensorFlow has already started its threads
        # One core per caller: several batches at once gain more than threads within an operation.
        tf.config.threading.set_intra_op_parallelism_threads(1)
    try:
        terms = options.terms and _command_line.terms(options.terms)
    except ValueError as error:
        raise RunError(str(error)) from error
    translator = load(options)
    if options.documents in ("html", "markdown"):
        translate_pages = getattr(translator, f"translate_{options.documents}")
        try:
            translate_pages([])
        except ImportError as error:
            raise RunError(str(error)) from error
        callers = [lambda pages, seed: [[page] for page in translate_pages(pages)]]
        callers *= options.threads
    elif options.documents:

        def documents(texts, seed):
            found = translator.translate_document(texts)
            return [[Translation(one.text, 0.0, one.truncated)] for one in found]

        callers = [documents] * options.threads
    elif options.sample:
        callers = [sampling_caller(translator, options) for _ in range(options.threads)]
    elif options.terms is not None:
        call = functools.partial(translator.translate_with_terms, terms=terms)
        try:
            call([])
        except ValueError as error:
            raise RunError(str(error)) from error
        callers = [lambda texts, seed: [[one] for one in call(texts, batch_size=len(texts))]]
        callers *= options.threads
    else:
        nbest = translator.translate_nbest
        callers = [lambda texts, seed: nbest(texts, len(texts))] * options.threads
    return callers, translator.token_counts


def load(options):
    """The `Translator` of the preset."""
    from keras_tfmr import Translator, _command_line
    from keras_tfmr.export.calibration import texts_for
    from training.run.files import RunError

    n, given = options.nbest or 1, vars(options)
    search = ("num_beams", "length_penalty", "max_length")
    names = (*search, "max_source_length", "protect", "language")
    chosen = {name: given[name] for name in names if given[name] is not None}
    if "protect" in chosen:
        chosen["protect"] = _command_line.protected(options.protect)
    translator = Translator.from_preset(options.preset, options.weights or True, **chosen)
    source = translator.source_tokenizer
    if source.target_languages and source.target_language is None:
        known = ", ".join(source.target_languages)
        raise RunError(
            f"{options.preset} has several target languages: give --language, of {known}"
        )
    beams = 1 if options.sample else max(translator.config.num_beams, n)
    texts = texts_for(translator, None)[:64]
    config = translator.config.replace(num_beams=beams, num_return_sequences=n)
    try:
        return translator.replace(config=config).for_decoding(options.precision, texts)
    except RuntimeError as error:  # this TensorFlow has no int8
        raise RunError(str(error)) from error


def sampling_caller(translator, options):
    """A function that samples translations of a batch; the same seed gives the same ones."""
    import keras

    from keras_tfmr.decoding import sample

    noise = keras.random.SeedGenerator(0)

    class Sampling(type(translator.config)):
        """Samples instead of searching."""

        def decode(self, step, state, *, num_certain=None, **how):  # it is for searches only
            fields = ("max_length", "min_length", "length_penalty", "length_penalty_offset")
            return sample(
                step, state, seed=noise, temperature=options.temperature, top_k=options.top_k,
                **{name: getattr(self, name) for name in fields}, **how,
            )  # fmt: skip

    drawing = translator.replace(config=Sampling(**translator.config.to_dict()))

    def call(texts, seed):
        state = int.from_bytes(str(seed).encode(), "little") % (2**32 - 5)  # a prime
        noise.state.assign([state, 0])
        return drawing.translate_nbest(texts, len(texts))

    return call


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(status)  # without waiting for batches that nobody wants any more
