"""Data sets of TensorFlow Datasets and of Hugging Face, which download and keep them."""

import dataclasses
import functools

from training.command.disk import RunError
from training.corpus.read import chosen, form


@dataclasses.dataclass(frozen=True)
class DataSet:
    """An opened data set.

    Fields:
        splits: {split: an iterable of rows, {column: cell}}.
        labels: {column: a function from the number of a label to its name}.
        columns: The columns that its authors recommend, in order, or ().
    """

    splits: dict
    labels: dict
    columns: tuple = ()


def data_set_rows(name, split, settings):
    """Yields the rows of a split of a data set, in the form of the task: see `read`."""
    data_set = opened(name)
    if split not in data_set.splits:
        found = ", ".join(data_set.splits)
        raise RunError(f"{name}: expected a split `{split}`. Received: {found}")
    numbered = enumerate((texts(row, data_set.labels) for row in data_set.splits[split]), 1)
    for number, cells in chosen(numbered, settings, name, data_set.columns):
        yield from form(cells, settings, f"{name}, {split}, row {number}")


def texts(row, labels):
    """A row with text for bytes, and the names of labels for their numbers."""
    row = {c: cell.decode() if isinstance(cell, bytes) else cell for c, cell in row.items()}
    return row | {column: name(int(row[column])) for column, name in labels.items()}


@functools.cache
def opened(name):
    """The `DataSet` of a name, which is downloaded if it is not here yet.

    Args:
        name: `tfds:NAME/CONFIG` or `hf:NAME:CONFIG`.

    Raises:
        RunError: If the library is not installed, or cannot find or download the data set.
    """
    kind, _, rest = name.partition(":")
    try:
        return of_tfds(rest) if kind == "tfds" else of_hugging_face(*rest.split(":"))
    except ImportError as error:
        package = "tensorflow-datasets" if kind == "tfds" else "datasets"
        raise RunError(f"{name} needs `pip install {package}`") from error
    except (OSError, ValueError) as error:
        raise RunError(f"{name}: {' '.join(str(error).split())[:300]}") from error


def of_tfds(name):
    """A data set of TensorFlow Datasets, such as `ted_hrlr_translate/pt_to_en`."""
    import tensorflow_datasets as tfds

    splits, info = tfds.load(name, with_info=True)
    labels = labels_of(info.features, tfds.features.ClassLabel)
    splits = {split: tfds.as_numpy(rows) for split, rows in splits.items()}
    return DataSet(splits, labels, info.supervised_keys or ())


def of_hugging_face(name, *config):
    """A data set of Hugging Face, such as `opus_books` and `en-pt`, or a folder of files."""
    import datasets

    splits = datasets.load_dataset(name, *config)
    return DataSet(splits, labels_of(next(iter(splits.values())).features, datasets.ClassLabel))


def labels_of(features, kind):
    """{column: its function from numbers to names} of the columns whose feature is of a class."""
    return {name: one.int2str for name, one in features.items() if isinstance(one, kind)}
