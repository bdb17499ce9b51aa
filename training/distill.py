"""Trains a small, fast translator on the translations of a big one.

    python training/distill.py runs/translator --data pairs.tsv --preset 6-1 --run runs/student

The teacher translates the sources with its beam search. A student with few decoder layers learns
from these translations and decodes greedily: sequence-level distillation (Kim and Rush 2016, arXiv
1606.07947) into a deep encoder and a shallow decoder (Kasai et al. 2021, arXiv 2006.10369). A
student of the teacher's width begins with the teacher's layers. After an interruption, run the same
command again to resume.
"""

import csv
import dataclasses
import functools
import hashlib
import multiprocessing
import os
import shutil
import sys
import time
from pathlib import Path

from keras_tfmr import _command_line
from training.run.settings import POSITIVE, TrainingConfig, option, parse

if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

COMPARED = 1000  # pairs that teacher and student translate for the report


@dataclasses.dataclass(frozen=True)
class StudentConfig(TrainingConfig):
    """How a student is trained: a `TrainingConfig` with other defaults; its data are sources."""

    data: tuple = option(
        (),
        "lines to translate and learn from, or the first column of lines with tabs; files may be "
        ".gz, and patterns such as 'part-*.tsv' name several",
        nargs="+", metavar="FILE",
    )  # fmt: skip
    validation: tuple = option(
        (), "pairs to evaluate on (default: the teacher's)", nargs="+", metavar="FILE"
    )
    run: str = option("runs/student", "run folder", resumes=True, metavar="DIR")
    preset: str = option("6-1", "size and training recipe of the student", metavar="NAME")
    filters: tuple = option(
        ("length_ratio",), "filters that drop translations", nargs="*", metavar="NAME"
    )
    beams: int = option(
        1, "beam width of the final evaluation and of the export", range=POSITIVE, resumes=True,
        type=int, metavar="N",
    )  # fmt: skip

    # A student is a Transformer with its teacher's subwords. Its data are files of sources, which
    # one host translates.
    hidden = (
        "source", "target", "tag", "model", "cluster", "worker_timeout", "start_from", "vocab_size",
        "joint_vocab", "extend_vocab",
    )  # fmt: skip

    def __post_init__(self):
        if not self.data:
            raise ValueError("--data must name files for the teacher to translate. Received: none")
        super().__post_init__()


def parse_arguments(arguments=None):
    """The teacher's folder, and the `StudentConfig`."""
    parser = _command_line.parser(__doc__)
    parser.add_argument(
        "teacher", metavar="TEACHER_RUN", type=Path, help="folder of a finished training run"
    )
    settings, others = parse(parser, arguments, StudentConfig)
    return others["teacher"], settings


def main(arguments=None):
    """The command; returns its exit status."""
    teacher, settings = parse_arguments(arguments)
    # Imported here, so that --help and wrong arguments are answered at once.
    from training.corpus.files import CorpusError
    from training.run.files import RunError
    from training.run.folder import RunFolder

    student = RunFolder(settings.run)
    try:
        settings = with_translations(RunFolder(teacher), student, settings)
        report = student.path / "distillation.json"
        if not is_finished(student, settings):
            report.unlink(missing_ok=True)  # of an earlier student
            started = time.monotonic()
            from training.run.command import run
            from training.run.student import Student

            task = functools.partial(Student, teacher=teacher)
            status = run("distill.py", settings, started, task)
            if status:
                return status
        if not report.exists():
            alone(compare, teacher, student.path)
        print(report.with_suffix(".md").read_text())
    except (CorpusError, RunError, OSError) as error:
        print(f"distill.py: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run the same command to resume.", file=sys.stderr)
        return 130
    return 0


def with_translations(teacher, student, settings):
    """Makes the missing translations; returns the settings with all of them as data.

    They are in `distilled/` in the student's folder, one file for each file of sources.

    Args:
        teacher: The `RunFolder` that translates.
        student: The `RunFolder` to train in.
        settings: The student's `TrainingConfig`, whose data are the sources.

    Raises:
        RunError: If the folder has translations of other sources or by another teacher, or a file
            cannot be read.
    """
    from training.corpus.files import find
    from training.run.claim import Claim

    sources = [path for pattern in settings.data for path in find(pattern)]
    asked = described(teacher, sources)
    folder = student.path / "distilled"
    with Claim(student):
        begin(folder, asked, overwrite=settings.overwrite)
        found = [folder / f"{number}.tsv" for number in range(1, len(sources) + 1)]
        missing = [
            (source, target)
            for source, target in zip(sources, found, strict=True)
            if not target.exists() or target.with_name(f"{target.name}.progress").exists()
        ]
        if missing:
            alone(translate, teacher.path, missing)
        validation = settings.validation
        if not validation:
            validation = (folder / "validation.tsv",)
            write_pairs(validation[0], validation_pairs(teacher))
    of_teacher = teacher.read_config()["model"]["config"]
    return dataclasses.replace(
        settings,
        data=tuple(map(str, found)),
        validation=tuple(map(str, validation)),
        joint_vocab=of_teacher["joint_vocab"],
        vocab_size=of_teacher["target_vocab"],
    )


def described(teacher, sources):
    """What the translations depend on."""
    arguments = teacher.read_config()["arguments"]
    return {
        "teacher": str(teacher.path),
        "weights": hashlib.sha256(teacher.best.read_bytes()).hexdigest(),
        "decoding": {name: arguments[name] for name in ("beams", "length_penalty")},
        "sources": [[str(path), path.stat().st_size] for path in sources],
    }


def begin(folder, asked, *, overwrite):
    """Makes the folder of translations, or resumes in it if they depend on the same.

    Raises:
        RunError: If they depend on something else and may not be overwritten.
    """
    from training.run.claim import differences, in_words
    from training.run.files import RunError, read_json, write_json

    file = folder / "distilled.json"
    others = differences(read_json(file), asked) if file.exists() else {}
    if others and not overwrite:
        raise RunError(
            f"{folder} holds translations of something else ({in_words(others)}): "
            "repeat its command, choose another --run, or give --overwrite"
        )
    if others:
        shutil.rmtree(folder)
    write_json(file, asked)


def translate(teacher, files):
    """Runs training/translate.py; in its own process, because it sets TensorFlow's threads."""
    from training import translate

    for source, target in files:
        print(f"Translating {source} with {teacher}.", flush=True)
        words = [teacher, "--input", source, "--output", target, "--pairs"]
        status = translate.main([str(word) for word in words])
        if status:
            sys.exit(status)


def validation_pairs(folder):
    """`(source, reference)` of all pairs that a finished run was evaluated on.

    Raises:
        RunError: If the run is not finished.
    """
    from training.run.files import RunError

    try:
        with folder.translations.open(encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines, dialect="excel-tab", quoting=csv.QUOTE_NONE)
            return [(row["source"], row["reference"]) for row in rows]
    except OSError as error:
        raise RunError(
            f"{folder.path} is not a finished run, so it has no validation pairs: {error}"
        ) from error


def write_pairs(path, pairs):
    """Lines of SOURCE<TAB>TARGET."""
    from training.run.files import write_atomically

    write_atomically(path, "".join(f"{source}\t{target}\n" for source, target in pairs))


def is_finished(student, settings):
    """Whether the folder holds the finished run of these very settings."""
    from training.run.claim import differences

    if settings.overwrite or not student.results.exists():
        return False
    return not differences(student.read_config()["training"], settings.identity())


def alone(function, *arguments):
    """Runs a function in a new process, which ends with this one.

    Afterwards its memory is free, and its settings of TensorFlow's threads are gone.

    Raises:
        RunError: If it fails; it has printed the reason.
    """
    from training.run.files import RunError

    process = multiprocessing.get_context("spawn").Process(
        target=_begin, args=(function, *arguments), daemon=True
    )
    process.start()
    process.join()
    if process.exitcode == 130:
        raise KeyboardInterrupt
    if process.exitcode:
        raise RunError(f"{function.__name__} ended with status {process.exitcode}")


def _begin(function, *arguments):
    from training.corpus.workers import end_with_parent

    end_with_parent()
    function(*arguments)


def compare(teacher, student):
    """Writes distillation.md and .json, which compare the two models; in its own process."""
    from training.report.evaluation import spread
    from training.run.files import write_atomically, write_json
    from training.run.folder import RunFolder

    teacher, student = RunFolder(teacher), RunFolder(student)
    pairs = spread(validation_pairs(student), COMPARED)
    beams, asked = (folder.read_config()["arguments"]["beams"] for folder in (teacher, student))
    cells = (("teacher", teacher, beams), ("teacher", teacher, 1), ("student", student, asked))
    rows = [
        {"model": name, "beams": width, **measured(folder, width, pairs)}
        for name, folder, width in dict.fromkeys(cells)  # a greedy teacher has one row
    ]
    write_atomically(student.path / "distillation.md", table(rows, len(pairs)))
    write_json(student.path / "distillation.json", {"pairs": len(pairs), "rows": rows})


def measured(folder, beams, pairs):
    """The scores of a run's model, its speed when compiled, and its size."""
    from training.report.evaluation import corpus_scores

    sources, references = zip(*pairs, strict=True)
    translator = folder.translator(num_beams=beams, num_return_sequences=1)
    translator.translate(sources)  # compiles
    begun = time.perf_counter()
    texts = translator.translate(sources)
    seconds = time.perf_counter() - begun
    bleu, chrf = corpus_scores(texts, references)
    return {
        "bleu": round(bleu, 2),
        "chrf": round(chrf, 2),
        "sentences_per_second": round(len(texts) / seconds, 1),
        "parameters": int(translator.model.count_params()),
        "bytes": folder.best.stat().st_size,
    }


def table(rows, count):
    """The comparison for people."""
    lines = [
        f"{count} validation pairs, batches of 32 sentences.\n",
        "| | beams | BLEU | chrF | sentences/s | parameters | MB |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row['model']} | {row['beams']} | {row['bleu']:.2f} | {row['chrf']:.2f} | "
            f"{row['sentences_per_second']:,.1f} | {row['parameters']:,} | "
            f"{row['bytes'] / 1e6:.1f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
