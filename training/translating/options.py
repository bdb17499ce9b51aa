"""The command line of `training/translate.py`."""

import contextlib
import os
from pathlib import Path

from keras_tfmr.compat import usable_cores
from training.command import scripts

WHOLE_FILES = ["--documents file"]
NO_COLUMNS = ["--documents paragraph", *WHOLE_FILES]
COUNT = {"type": scripts.at_least(1), "metavar": "N"}


def parse_arguments(documentation, arguments=None):
    """The command line as a namespace; `documentation` is the docstring of the script."""
    parser = scripts.parser(documentation)
    for add_options in (add_files, add_lines, add_answers, add_search, add_model):
        add_options(parser.add_argument)
    options = parser.parse_args(arguments)
    try:
        check(options)
        if options.shard and options.documents != "file":
            options.output = part_of(options.output, *options.shard)
        check_apart(options.input, options.output)
    except ValueError as error:
        parser.error(str(error))
    if not options.documents:
        options.column = options.column or 1
    return options


def add_files(add):
    """What is read and written."""
    preset = "folder of a run, published model, archive of one, or hf://OWNER/NAME"
    add("preset", metavar="PRESET", help=preset)
    forms = "file of text, also .gz, .bz2, .xz or .zst"
    add("--input", metavar="FILE", type=Path, help=f"{forms} (default: standard input)")
    add("--output", metavar="FILE", type=Path, help=f"{forms} (default: standard output)")
    again = "start again if --output exists"
    add("--overwrite", action="store_true", only_with=["--output"], help=again)
    documents = (
        "translate sentence by sentence and keep the white space; a text is a line, a paragraph "
        "between blank lines, or a file of the folder --input (default: line)"
    )
    kinds = ("line", "paragraph", "file")
    add("--documents", nargs="?", const="line", choices=kinds, help=documents)
    part = (
        "translate part I of N only, and write OUTPUT.I-of-N; auto/N: the part of this task of a "
        "SLURM array (0 to N-1) or of an Indexed Job"
    )
    add("--shard", metavar="I/N", type=shard, help=part)


def add_lines(add):
    """What a line of the input and of the output holds."""
    column = "column to translate in lines with tabs (default: 1; with --documents, the whole line)"
    add("--column", **COUNT, not_with=NO_COLUMNS, help=column)
    nbest = "write the N best for each line: line number ||| translation ||| score"
    add("--nbest", **COUNT, not_with=["--sample", "--documents"], help=nbest)
    pairs = "write SOURCE<TAB>TRANSLATION lines, for training"
    add("--pairs", action="store_true", not_with=["--nbest", *NO_COLUMNS], help=pairs)
    scores = "append a column: the log-probability divided by the length penalty"
    add("--scores", action="store_true", not_with=["--nbest", "--documents"], help=scores)


def add_answers(add):
    """What is asked for instead of the best translation."""
    terms = "file of lines TERM<TAB>TRANSLATION: terms with given translations"
    others = ["--nbest", "--sample", "--documents"]
    add("--terms", metavar="FILE", type=Path, not_with=others, help=terms)
    sample = "draw one translation of each text instead of searching for the best"
    add("--sample", action="store_true", not_with=["--documents"], help=sample)
    drawn = {"only_with": ["--sample"]}
    positive = {"type": scripts.above(0.0), "metavar": "X"}
    add("--temperature", **positive, **drawn, default=1.0, help="temperature of --sample")
    add("--top_k", **COUNT, **drawn, help="with --sample, draw from the N most probable tokens")
    add("--seed", type=int, **drawn, default=1, metavar="N", help="seed of --sample")


def add_search(add):
    """Options of the search instead of the preset's."""
    width = "beam width, 1 for greedy (default: the preset's)"
    add("--num_beams", **COUNT, not_with=["--sample"], help=width)
    amount = {"type": scripts.at_least(0.0), "metavar": "X"}
    penalty = "exponent of the length penalty (default: the preset's)"
    add("--length_penalty", **amount, help=penalty)
    longest = "maximum tokens of a translation (default: the preset's, else 128)"
    add("--max_length", **COUNT, help=longest)
    read = "maximum tokens read from a line (default: the preset's, else 128)"
    add("--max_source_length", **COUNT, help=read)


def add_model(add):
    """The model, and how it runs."""
    spans = (
        "spans to leave untranslated: names such as url and code, RE2 patterns, or none "
        "(default: the preset's)"
    )
    add("--protect", nargs="+", metavar="NAME", help=spans)
    language = "target language of lines without a tag, if the model has several"
    add("--language", metavar="CODE", help=language)
    add("--weights", metavar="FILE", type=Path, help="weights to use (default: the preset's)")
    precision = "precision of weights and layers"
    add("--precision", choices=("float32", "bfloat16", "int8"), default="float32", help=precision)
    together = "lines translated together"
    add("--batch_size", **COUNT, default=128, not_with=WHOLE_FILES, help=together)
    threads = "batches translated at the same time (default: one per core)"
    add("--threads", **COUNT, default=usable_cores(), help=threads)


def check(options):
    """Raises a ValueError if options contradict each other."""
    beams, nbest, documents = options.num_beams, options.nbest, options.documents
    if nbest and beams and nbest > beams:
        raise ValueError(
            "--nbest must not be greater than --num_beams. "
            f"Received: --nbest {nbest}, --num_beams {beams}"
        )
    if documents == "file":
        check_folders(options.input, options.output)
    elif options.shard:
        from training.corpus.packed import is_packed

        if not (options.input and options.output) or is_packed(options.input) or nbest:
            raise ValueError("--shard needs --input, not packed, and --output, and has no --nbest")
        if documents == "paragraph":
            raise ValueError("--shard has no --documents paragraph: one may span two parts")


def check_folders(source, target):
    """Raises a ValueError unless these are two files, or folders apart from each other."""
    is_given = source and target and source.exists()
    if not is_given or (target.exists() and source.is_dir() != target.is_dir()):
        message = "needs two folders or two files, --input and --output"
        raise ValueError(f"--documents file {message}")
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
