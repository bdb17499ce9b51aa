"""Translates files of any size, line by line, with a trained run or a published model.

    python training/translate.py runs/translator < in.txt > out.txt
    python training/translate.py runs/translator --input in.txt.gz --output out.txt.gz

Lines are written in the order of the input. In lines with tabs, one column is translated and the
others are kept. With --output, repeat an interrupted command to resume. Texts are plain text.

--documents is for texts of many sentences, which it translates one by one:

    python training/translate.py runs/translator --documents file --input in/ --output out/

Each text is a line, or a paragraph between blank lines, whose lines are joined, or a whole file of
a folder. White space around sentences is kept.
"""

if __name__ == "__main__":
    from training.command.scripts import end_at_ctrl_c

    end_at_ctrl_c()

import contextlib
import functools
import itertools
import operator
import os
import re
import sys

from training.translating.options import parse_arguments, part_of

FILES = 64  # files that are, and of which as many threads as there are translate some


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(__doc__, arguments)
    # Imported here, so that --help and wrong arguments are answered at once.
    from training.command.process import command, in_two_steps

    prepare = files_to_translate if options.documents == "file" else lines_to_translate
    return command("translate.py", in_two_steps, prepare, options)


def lines_to_translate(options):
    """Checks all that is needed for the lines or paragraphs of a file, or of standard input.

    Returns the function that translates and writes them.
    """
    from training.translating import streams

    path = options.output
    if options.shard and not options.overwrite and streams.is_complete(path):
        return lambda: print(f"{path} is complete", file=sys.stderr)
    source = streams.described(options.input)
    output = streams.Output(path, options.overwrite) if path else streams.Stream(sys.stdout.buffer)
    if path:
        output.record.depends_on(options=basis_of(options), input=source)
    from training.translating.callers import Callers  # now: it imports TensorFlow

    callers = Callers(options)
    if path:
        output.record.depends_on(model=callers.record)
    return functools.partial(translate_lines, options, callers, output)


def basis_of(options):
    """The options that an output depends on; of a file, its content counts, and not its name."""
    free = ("preset", "weights", "terms", "input", "output", "overwrite", "threads")
    return {name: value for name, value in vars(options).items() if name not in free}


def translate_lines(options, callers, output):
    """Translates lines or paragraphs; an output that was begun goes on where it is."""
    from training.translating import streams, windows

    with streams.opened_input(options.input, options.shard) as lines:
        texts = streams.paragraphs(lines) if options.documents == "paragraph" else lines
        for _ in itertools.islice(texts, output.lines):  # already translated
            pass
        progress = streams.Progress(lines, output.lines)
        text = functools.partial(text_of, column=options.column)
        first = output.lines // windows.WINDOW
        answered = windows.translated(texts, callers, text, options.batch_size, first)
        with output.begin():
            for window, answers in answered:
                numbered = enumerate(zip(window, answers, strict=True), output.lines + 1)
                data = b"".join(formatted(*pair, number, options) for number, pair in numbered)
                try:
                    output.write(data, len(window))
                except BrokenPipeError:  # `| head` has read enough
                    return
                progress.show(output.lines)
        output.finish()
        progress.end()


def files_to_translate(options):
    """Checks all that is needed for the files of a folder, or for one.

    Returns the function that translates those which are to be, and writes them.
    """
    from training.command.disk import check_writable
    from training.translating.streams import Record

    among = options.input.rglob("*") if options.input.is_dir() else [options.input]
    files = sorted(file for file in among if file.is_file())
    if options.shard:
        index, count = options.shard
        files = files[index - 1 :: count]
    targets = [options.output / file.relative_to(options.input) for file in files]
    pairs = [
        (file, target)
        for file, target in zip(files, targets, strict=True)
        if options.overwrite or not target.exists()
    ]
    print(f"{len(pairs):,} of {len(files):,} files to translate", file=sys.stderr)
    for _, target in pairs:
        check_writable(target)
    output = part_of(options.output, *options.shard) if options.shard else options.output
    record = Record(output, options.overwrite)
    if not pairs:
        return record.remove
    record.depends_on(options=basis_of(options))
    from training.translating.callers import Callers  # now: it imports TensorFlow

    callers = Callers(options)
    record.depends_on(model=callers.record)
    return functools.partial(translate_files, options, callers, record, pairs)


def translate_files(options, callers, record, pairs):
    """Translates files to others; each appears complete. One that fails is named and left out."""
    from training.command.disk import RunError, write_atomically
    from training.corpus.packed import lines, packer
    from training.translating import windows

    left_out = 0

    def leave_out(file, reason):
        nonlocal left_out
        left_out += 1
        print(f"{file} is left out: {reason}", file=sys.stderr)

    def contents():
        for file, target in pairs:
            try:
                with file.open("rb") as raw:
                    yield b"".join(lines(raw, file)), file, target
            except (OSError, RunError) as error:
                leave_out(file, error)

    size = -(-FILES // options.threads)
    record.write()
    content_of = operator.itemgetter(0)
    for window, answers in windows.translated(contents(), callers, content_of, size, window=FILES):
        for (*_, target), [translation] in zip(window, answers, strict=True):
            write_atomically(target, packer(target)(translation.text.encode()))
    if left_out:  # the record stays: repeat the command for those that are missing
        raise RunError(f"{left_out:,} of {len(pairs):,} files are left out")
    record.remove()


def text_of(line, column):
    """The text to translate in a line, all of it without a column; empty if the line lacks it."""
    if column is None:
        return line
    columns = line.split(b"\t")
    return columns[column - 1] if column <= len(columns) else b""


def formatted(line, hypotheses, number, options):
    """The output for a line: its columns with the translation, or its n best translations."""
    one_line = (lambda text: text.replace("\n", " ")) if options.documents else flat
    texts = [(one_line(best.text).encode(), best.score) for best in hypotheses]
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


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(status)  # without waiting for batches that nobody wants any more
