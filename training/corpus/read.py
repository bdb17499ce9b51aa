"""The rows of text files and tables, where a corpus is read. An error names the file and the line.

A row is `(source, target)`: two sentences, a text and its label, or nothing and a text.
"""

import codecs
import csv
import gzip
import itertools
import json
import re
import zlib
from pathlib import Path

from training.command.disk import RunError

LONGEST_LINE = 600  # characters; a longer line of plain text is cut between words
NOTHING = "-"  # the source side of plain text


def text_column(task):
    """The column of a task's rows that holds the text; the other has its labels, if any."""
    return int(task == "language")


def file_rows(paths, settings):
    """Yields the rows of a file, or of two files whose lines correspond.

    Args:
        paths: One path or two.
        settings: The run's task, languages and `max_characters`.
    """
    path, number = paths[0], 0
    for number, cells in file_cells(paths, settings):
        yield from form(cells, settings, f"{path}, line {number}")
    if not number:
        raise RunError(f"{path}: the file is empty")


def file_cells(paths, settings):
    """Yields the number and the cells of each line, in the format that the file's name says."""
    if len(paths) == 2:
        return aligned_lines(*paths)
    (path,) = paths
    endings = [ending.lower() for ending in Path(path).suffixes]
    if endings[-1:] == [".gz"]:
        endings.pop()
    read = READERS.get(endings[-1] if endings else "")
    if read:
        return chosen(read(path), settings, path)
    numbered = enumerate(lines(path), 1)
    if settings.task == "language":
        return ((number, [line]) for number, line in numbered)
    return ((number, line.split("\t")) for number, line in numbered)


def lines(path):
    """Yields the lines of a file, `.gz` or not, without byte order mark and line ends."""
    opened = gzip.open if Path(path).suffix.lower() == ".gz" else open
    with opened(path, "rb") as file:
        try:
            first = next(file, b"").removeprefix(codecs.BOM_UTF8)
            for number, line in enumerate(itertools.chain([first] if first else [], file), 1):
                yield decoded(line, f"{path}, line {number}").rstrip("\r\n")
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise RunError(f"{path}: not a whole gzip file ({error})") from error


def decoded(line, where):
    """The text of a line of bytes."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise RunError(
            f"{where}: not UTF-8 at byte {error.start} of the line (0x{line[error.start]:02x})"
        ) from error


def aligned_lines(source, target):
    """Yields the number and the two lines of each pair of two files."""
    both = itertools.zip_longest(lines(source), lines(target))
    for number, pair in enumerate(both, 1):
        if None in pair:
            ended, other = (source, target) if pair[0] is None else (target, source)
            raise RunError(
                f"{ended} ends after line {number - 1}, but {other} has a line {number}: the two "
                "files must have the same number of lines"
            )
        yield number, pair


def csv_rows(path):
    """Yields the line number and {column: cell} of each row; the first line names the columns."""
    reader = csv.DictReader((f"{line}\n" for line in lines(path)), strict=True)
    try:
        for row in reader:
            if None in row:
                raise csv.Error(f"expected {len(row) - 1} cells, as in the first line, found more")
            yield reader.line_num, row
    except csv.Error as error:
        raise RunError(f"{path}, line {reader.reader.line_num}: {error}") from error


def json_rows(path):
    """Yields the line number and {column: cell} of each line, which is a JSON object."""
    for number, line in enumerate(lines(path), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise RunError(f"{path}, line {number}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise RunError(
                f"{path}, line {number}: expected an object, as in "
                f'{{"pt": "Sim.", "en": "Yes."}}. Received: {line[:80]}'
            )
        yield number, row


def parquet_rows(path):
    """Yields the number and {column: cell} of each row of a Parquet file."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise RunError(f"{path} needs `pip install pyarrow`") from error
    try:
        batches = parquet.ParquetFile(path).iter_batches()
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from enumerate(rows, 1)
    except (OSError, ValueError) as error:  # pyarrow's own are such
        raise RunError(f"{path}: {error}") from error


READERS = {
    ".csv": csv_rows,
    ".json": json_rows,
    ".jsonl": json_rows,
    ".ndjson": json_rows,
    ".parquet": parquet_rows,
}


def chosen(rows, settings, name, recommended=()):
    """Yields (number, cells) of (number, {column: cell}): the columns that the task needs.

    They are the wanted or the recommended ones if they are there, else all if they are as many. A
    column `translation` that holds {language: text}, as Hugging Face writes it, is such a row.

    Args:
        name: The name of the file or the data set, for errors.
        recommended: Names of columns, in order.
    """
    if settings.task == "translation":
        wanted, hint = settings.languages, "two columns, or --languages pt en, which names them"
    elif settings.task == "classify":
        wanted, hint = ("text", "label"), "the columns text and label, or two"
    else:
        wanted, hint = ("text",), "the column text, or one alone"
    count = 1 if settings.task == "language" else 2
    columns = None
    for number, row in rows:
        nested = row.get("translation")
        row = nested if isinstance(nested, dict) else row
        if columns is None:
            for names in (wanted, recommended, list(row)):
                if len(names) == count and {*names} <= {*row}:
                    columns = names
                    break
        if columns is None or not {*columns} <= {*row}:
            raise RunError(f"{name}, line {number}: expected {hint}. Received: {', '.join(row)}")
        cells = [row[column] for column in columns]
        texts = cells[:1] if settings.task == "classify" else cells
        # A label may be a number.
        if not (all(isinstance(text, str) for text in texts) and isinstance(cells[-1], str | int)):
            raise RunError(f"{name}, line {number}: expected texts. Received: {str(cells)[:80]}")
        yield number, [str(cell) for cell in cells]


def form(cells, settings, where):
    """The rows of a task from the cells of a line: one, or several of a long text."""
    for cell in cells:
        if "\0" in cell:
            raise RunError(f"{where}: not text, it holds a NUL character: {cell[:80]!r}")
    if settings.task == "language":
        longest = settings.max_characters or LONGEST_LINE
        return [(NOTHING, piece) for piece in pieces(cells[0], longest)]
    if len(cells) != 2:
        found = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
        raise RunError(
            f"{where}: expected two columns with a tab between them, found {found}: "
            f"{cells[0][:80]!r}"
        )
    if settings.task == "classify" and len(cells[1].split()) != 1:
        raise RunError(
            f"{where}: expected a text and its label, without spaces. Received: {cells[1][:80]!r}"
        )
    return [tuple(cells)]


def pieces(line, longest):
    """A line in pieces of at most `longest` characters, cut between words if that is possible."""
    line = re.sub(r"\s+", " ", line).strip()
    begin, found = 0, []
    while len(line) > begin + longest:
        cut = line.rfind(" ", begin + 1, begin + longest)
        if cut < 0:
            cut = begin + longest
        found.append(line[begin:cut])
        begin = cut + 1 if line[cut] == " " else cut
    return [*found, line[begin:]]
