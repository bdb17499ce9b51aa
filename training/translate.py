"""Translates files of any size, line by line, with a trained run.

    python training/translate.py runs/translator < in.txt > out.txt
    python training/translate.py runs/translator --input in.txt.gz --output out.txt.gz

Lines are written in the order of the input. In lines with tabs, one column is translated and the
others are kept. With --output, repeat an interrupted command to resume. Texts are plain text.
"""

import collections
import concurrent.futures
import contextlib
import gzip
import itertools
import json
import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

WINDOW = 4096  # lines that are sorted together by their token counts
AHEAD = 2  # windows in progress at the same time
# The least share of the tokens of the longest text in a batch that the next text must have to join
# it, once the batch is a quarter full: a shorter text would cost too much padding.
SIMILAR = 0.6


class TranslateError(Exception):
    """An error to show to the user, in one line."""


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    from keras_tfmr import _command_line

    parser = _command_line.parser(__doc__)
    add = parser.add_argument
    add("run", metavar="RUN_FOLDER", type=Path, help="folder that training/train_pt_en.py wrote")
    add("--input", metavar="FILE", type=Path, help="text or .gz file (default: standard input)")
    add("--output", metavar="FILE", type=Path, help="text or .gz file (default: standard output)")
    add("--overwrite", action="store_true", help="start again if --output exists")
    documents = "each line is a paragraph: translate its sentences, keep its white space"
    add("--documents", action="store_true", help=documents)
    part = (
        "translate part I of N only, and write OUTPUT.I-of-N; auto/N: the part of this task of a "
        "SLURM array (0 to N-1) or of an Indexed Job"
    )
    add("--shard", metavar="I/N", type=shard, help=part)
    add("--column", type=int, default=1, metavar="N", help="column to translate in lines with tabs")
    nbest = "write the N best for each line: line number ||| translation ||| score"
    add("--nbest", type=int, metavar="N", help=nbest)
    add("--pairs", action="store_true", help="write SOURCE<TAB>TRANSLATION lines, for training")
    scores = "append a column: the log-probability divided by the length penalty"
    add("--scores", action="store_true", help=scores)
    add("--sample", action="store_true", help="draw translations instead of searching for the best")
    add("--temperature", type=float, default=1.0, metavar="X", help="temperature of --sample")
    add(
        "--top_k", type=int, metavar="N", help="with --sample, draw from the N most probable tokens"
    )
    add("--seed", type=int, default=1, metavar="N", help="seed of --sample")
    add("--num_beams", type=int, metavar="N", help="beam width, 1 for greedy (default: the run's)")
    penalty = "exponent of the length penalty (default: the run's)"
    add("--length_penalty", type=float, metavar="X", help=penalty)
    longest = "maximum tokens of a translation (default: the run's, else 128)"
    add("--max_length", type=int, metavar="N", help=longest)
    read = "maximum tokens read from a line"
    add("--max_source_length", type=int, metavar="N", default=128, help=read)
    add("--weights", metavar="FILE", type=Path, help="weights to use (default: the run's best)")
    precision = "precision of weights and layers"
    add("--precision", choices=("float32", "bfloat16", "int8"), default="float32", help=precision)
    add("--batch_size", type=int, default=128, metavar="N", help="lines translated together")
    threads = "batches translated at the same time (default: one per core)"
    add("--threads", type=int, metavar="N", help=threads)
    options = parser.parse_args(arguments)
    for name in ("column", "nbest", "batch_size", "threads", "top_k", "num_beams", "max_length"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} must be positive. Received: {value}")
    if options.sample and (options.nbest or (options.num_beams or 1) > 1):
        parser.error(
            "--sample draws one translation of each line: leave out --nbest and --num_beams. "
            f"Received: --nbest {options.nbest}, --num_beams {options.num_beams}"
        )
    if options.documents and (options.sample or options.nbest or options.scores):
        parser.error("--documents has no --sample, --nbest and --scores")
    if options.shard:
        packed = options.input and options.input.suffix.lower() == ".gz"
        if not (options.input and options.output) or packed or options.nbest:
            parser.error("--shard needs --input, not packed, and --output, and has no --nbest")
        index, count = options.shard
        part = f".{index:0{len(str(count))}}-of-{count}"  # so that names sort in order
        options.output = options.output.with_name(
            options.output.stem + part + options.output.suffix
        )
    if options.pairs and options.nbest:
        parser.error(
            "--pairs writes one translation of each line: leave out --nbest. "
            f"Received: --nbest {options.nbest}"
        )
    if options.nbest and options.num_beams and options.nbest > options.num_beams:
        parser.error(
            "--nbest must not be greater than --num_beams. Received: "
            f"--nbest {options.nbest}, --num_beams {options.num_beams}"
        )
    options.threads = options.threads or len(os.sched_getaffinity(0))
    return options


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


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    # Imported here, so that --help and wrong arguments are answered at once.
    from training.files import RunError
    from training.process import without_noise

    with without_noise():
        try:
            translate(options)
        except (TranslateError, RunError, OSError) as error:
            print(f"translate.py: error: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    return 0


def translate(options):
    """Translates what the options name."""
    if options.shard and is_complete(options):
        print(f"{options.output} is complete", file=sys.stderr)
        return
    with opened_input(options.input, options.shard) as lines, contextlib.ExitStack() as stack:
        output = Output(options) if options.output else Stream(sys.stdout.buffer)
        stack.callback(output.close)
        for _ in itertools.islice(lines, output.lines):  # already translated
            pass
        callers, count = make_callers(options)
        progress = Progress(lines, output.lines)
        for window, found in translated(lines, callers, count, options, output.lines // WINDOW):
            first = output.lines + 1
            output.write(
                b"".join(
                    formatted(line, hypotheses, number, options)
                    for number, (line, hypotheses) in enumerate(
                        zip(window, found, strict=True), first
                    )
                ),
                len(window),
            )
            progress.show(output.lines)
        output.finish()
        progress.end()


def translated(lines, callers, count, options, first=0):
    """Yields windows of lines and the hypotheses of each line, in order.

    Args:
        lines: An iterator of bytes.
        callers: A list of callables `(texts, seed) -> list of lists of hypotheses`, each for one
            thread.
        count: A callable from texts to the number of tokens of each.
        options: The command line.
        first: Number of the first window, which seeds are made of.
    """
    free = collections.deque(callers)
    with concurrent.futures.ThreadPoolExecutor(len(callers)) as pool:

        def call(texts, seed):
            caller = free.popleft()  # as many as threads
            try:
                return caller(texts, seed)
            finally:
                free.append(caller)

        waiting = collections.deque()
        for number in itertools.count(first):
            window = list(itertools.islice(lines, WINDOW))
            if window:
                texts = [text_of(line, options.column) for line in window]
                batches = batches_of(count(texts), options.batch_size)
                waiting.append((window, submit(pool, call, texts, batches, options.seed, number)))
            while waiting and (not window or len(waiting) > AHEAD):
                window_before, started = waiting.popleft()
                found = [None] * len(window_before)
                for rows, future in started:
                    for row, hypotheses in zip(rows, future.result(), strict=True):
                        found[row] = hypotheses
                yield window_before, found
            if not window:
                return


def submit(pool, call, texts, batches, seed, number):
    """Starts the batches of window `number`: [(rows, future)]."""
    return [
        (rows, pool.submit(call, [texts[row] for row in rows], (seed, number, place)))
        for place, rows in enumerate(batches)
    ]


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
    """The text to translate in a line; empty if the line lacks the column."""
    columns = line.split(b"\t")
    return columns[column - 1] if column <= len(columns) else b""


def formatted(line, hypotheses, number, options):
    """The output for a line: its columns with the translation, or its n best translations."""
    texts = [
        ((text if options.documents else " ".join(text.split())).encode(), score)
        for text, score, _ in hypotheses
    ]
    if options.nbest:
        rows = texts[: options.nbest]
        return b"".join(b"%d ||| %s ||| %.4f\n" % (number, text, score) for text, score in rows)
    text, score = texts[0] if texts else (b"", 0.0)
    columns = line.split(b"\t")
    if options.pairs:
        columns = [text_of(line, options.column), text]
    elif options.column <= len(columns):
        columns[options.column - 1] = text
    if options.scores:
        columns.append(b"%.4f" % score)
    return b"\t".join(columns) + b"\n"


def make_callers(options):
    """For each thread, a function that translates a batch; and one that counts tokens."""
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):  # TensorFlow has already started its threads
        # One core per caller: several batches at once gain more than threads within an operation.
        tf.config.threading.set_intra_op_parallelism_threads(1)
    translator = load(options)
    if options.documents:

        def documents(texts, seed):
            return [[(text, 0.0, cut)] for text, _, cut, _ in translator.translate_document(texts)]

        callers = [documents] * options.threads
    elif options.sample:
        callers = [sampling_caller(translator, options) for _ in range(options.threads)]
    else:
        nbest = translator.translate_nbest
        callers = [lambda texts, seed: nbest(texts, len(texts))] * options.threads
    return callers, translator.token_counts


def load(options):
    """The `Translator` of the run."""
    from training.run import RunFolder

    folder = RunFolder(options.run)
    n = options.nbest or 1
    beams = options.num_beams or folder.read_config()["arguments"].get("num_beams", 4)
    decoding = {"num_return_sequences": n, "num_beams": 1 if options.sample else max(beams, n)}
    for name in ("length_penalty", "max_length"):
        if getattr(options, name) is not None:
            decoding[name] = getattr(options, name)
    translator = folder.translator(options.weights, options.max_source_length, **decoding)
    return translator.for_decoding(options.precision, folder.sources(64) or ())


def sampling_caller(translator, options):
    """A function that samples translations of a batch; the same seed gives the same ones."""
    import keras

    from keras_tfmr.decoding import sample
    from keras_tfmr.text.translator import Translator

    noise = keras.random.SeedGenerator(0)

    class Sampling(type(translator.config)):
        """Samples instead of searching."""

        def decode(self, step, state, *, num_certain=None, **how):  # it is for searches only
            fields = ("max_length", "min_length", "length_penalty", "length_penalty_offset")
            return sample(
                step, state, seed=noise, temperature=options.temperature, top_k=options.top_k,
                **{name: getattr(self, name) for name in fields}, **how,
            )  # fmt: skip

    arguments = translator.arguments() | {"config": Sampling(**translator.config.to_dict())}
    drawing = Translator(translator.model, **arguments)

    def call(texts, seed):
        state = int.from_bytes(str(seed).encode(), "little") % (2**32 - 5)  # a prime
        noise.state.assign([state, 0])
        return drawing.translate_nbest(texts, len(texts))

    return call


class Lines:
    """The lines of a binary stream, without line ends; knows how much of it has been read."""

    def __init__(self, raw, packed, begin=0, end=None):
        self._raw, self._begin, self._end = raw, begin, end
        self._lines = gzip.GzipFile(fileobj=raw) if packed else raw
        try:
            self.size = os.fstat(raw.fileno()).st_size if raw.seekable() else 0
        except OSError:  # a stream that is not a file
            self.size = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self._end is not None and self._raw.tell() >= self._end:
            raise StopIteration
        try:
            return next(iter(self._lines)).rstrip(b"\r\n")
        except (EOFError, gzip.BadGzipFile) as error:
            raise TranslateError(f"The input is not a complete gzip file: {error}") from error

    def share(self):
        """The share of the input that has been read, or None if its size is unknown."""
        end = self.size if self._end is None else self._end
        return (self._raw.tell() - self._begin) / (end - self._begin) if end > self._begin else None


@contextlib.contextmanager
def opened_input(path, shard=None):
    """The `Lines` of a file, or of a part of it, or of standard input."""
    if path is None:
        yield Lines(sys.stdin.buffer, packed=False)
        return
    with path.open("rb") as file:
        if shard:
            index, count = shard
            size = path.stat().st_size
            begin, end = ((size * i) // count for i in (index - 1, index))
            if begin:  # a line belongs to the part in which it begins
                file.seek(begin - 1)
                file.readline()
            yield Lines(file, False, begin, end)
            return
        yield Lines(file, packed=path.suffix.lower() == ".gz")


class Stream:
    """Standard output."""

    def __init__(self, file):
        self._file, self.lines = file, 0

    def write(self, data, lines):
        """Writes the translations of `lines` lines."""
        self._file.write(data)
        self._file.flush()
        self.lines += lines

    def finish(self):
        """Does nothing: everything has been written."""

    close = finish


def is_complete(options):
    """Whether an earlier process wrote the whole output."""
    path = options.output
    begun = path.with_name(path.name + ".progress").exists()
    return path.exists() and not begun and not options.overwrite


class Output:
    """An output file that a later process can resume; `lines` is the number of lines in it.

    Until the file is complete, `NAME.progress` beside it records the command, and how many lines
    and bytes are safely on the disk.
    """

    def __init__(self, options):
        self.path = options.output
        self._packed = self.path.suffix.lower() == ".gz"
        self._progress = self.path.with_name(self.path.name + ".progress")
        # The options that the output depends on.
        free = ("output", "overwrite", "threads")
        self._command = {k: str(v) for k, v in vars(options).items() if k not in free}
        if options.input:
            status = options.input.stat()
            self._command["input bytes"] = status.st_size
        self.lines, certain = self._begun(options.overwrite)
        self._save(certain)  # first, because an output without it counts as complete
        self._file = self.path.open("r+b" if certain else "wb")
        self._file.truncate(certain)
        self._file.seek(certain)

    def _begun(self, overwrite):
        if overwrite or not self.path.exists():
            return 0, 0
        if not self._progress.exists():
            raise TranslateError(
                f"{self.path} exists: choose another --output, or give --overwrite"
            )
        try:
            before = json.loads(self._progress.read_text())
            certain = before["lines"], before["bytes"]
        except (ValueError, KeyError, TypeError) as error:
            raise TranslateError(
                f"{self._progress} is damaged: give --overwrite to start again"
            ) from error
        if before["command"] != self._command:
            raise TranslateError(
                f"{self.path} was begun by another command: repeat that command, choose another "
                "--output, or give --overwrite"
            )
        return certain

    def write(self, data, lines):
        """Writes the translations of `lines` lines to the disk, then records that."""
        self._file.write(gzip.compress(data, mtime=0) if self._packed else data)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.lines += lines
        self._save(self._file.tell())

    def _save(self, certain):
        state = {"lines": self.lines, "bytes": certain, "command": self._command}
        temporary = self._progress.with_name(f".{self._progress.name}")
        temporary.write_text(json.dumps(state))
        temporary.replace(self._progress)

    def finish(self):
        """Marks the file as complete."""
        self._progress.unlink()

    def close(self):
        self._file.close()


class Progress:
    """A line on standard error: sentences a second, time left."""

    def __init__(self, lines, before):
        self._lines, self._before = lines, before
        self._begun, self._share = time.monotonic(), lines.share()

    def show(self, done):
        """Tells how far it is."""
        seconds = max(time.monotonic() - self._begun, 1e-9)
        told = f"{done:,} lines, {(done - self._before) / seconds:,.1f} a second"
        share = self._lines.share()
        if share is not None and share > (self._share or 0):
            left = seconds * (1 - share) / (share - (self._share or 0))
            told += f", {share:.0%} read, {left / 60:.1f} minutes left"
        if sys.stderr.isatty():
            print(f"\r\033[K{told}", end="", file=sys.stderr, flush=True)
        self._told = told

    _told = "0 lines"

    def end(self):
        """Tells what was done."""
        print(("\r\033[K" if sys.stderr.isatty() else "") + self._told, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
