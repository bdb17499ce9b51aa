"""Learns which target subwords are likely for each source subword, so that a run decodes faster.

    python training/learn_lexicon.py runs/translator --data pairs.tsv

Writes lexicon.npz into the run folder. From then on, training/translate.py and serving/export.py
search for translations among the likely subwords of each text only. Delete the file to return to
the whole vocabulary.
"""

if __name__ == "__main__":
    from training.command.scripts import end_at_ctrl_c

    end_at_ctrl_c()

import itertools
import sys
from pathlib import Path


def parse_arguments(arguments=None):
    """The command line as a namespace."""
    from training.command import scripts

    parser = scripts.parser(__doc__)
    add = parser.add_argument
    add("run", metavar="RUN_FOLDER", type=Path, help="finished run of a translator")
    pairs = "source<TAB>target lines to learn from: the training pairs, or others like them"
    add("--data", metavar="FILE", type=Path, required=True, help=pairs)
    count = {"type": scripts.at_least(1), "metavar": "N"}
    most = "pairs to learn from, the first of the file; a few hundred thousand suffice"
    add("--most", **count, default=200_000, help=most)
    longest = "characters of a side; longer pairs are left out"
    add("--max_characters", **count, default=1000, help=longest)
    candidates = "likeliest target subwords to keep for each source subword"
    add("--candidates", **count, default=50, help=candidates)
    always = "most frequent target subwords to allow in every translation"
    add("--always", **count, default=200, help=always)
    return parser.parse_args(arguments)


def main(arguments=None):
    """The command; returns its exit status."""
    options = parse_arguments(arguments)
    # Imported here, so that --help and wrong arguments are answered at once.
    from training.command.process import command, in_two_steps

    return command("learn_lexicon.py", in_two_steps, prepare, options)


def prepare(options):
    """Checks the run and reads the pairs; returns the function that learns and writes."""
    from training.command.disk import RunError, check_writable
    from training.corpus.filter import Rules
    from training.corpus.held_out import read_pairs
    from training.corpus.sources import Corpus
    from training.run.run_folder import RunFolder

    folder = RunFolder(options.run)
    config, tokenizers = folder.read_config()["model"], folder.tokenizers()
    if config["kind"] != "transformer" or tokenizers is None:
        raise RunError(
            f"A lexicon needs a Transformer that translates. Received: {folder.path}, a run of "
            f"{config['kind']}"
        )
    check_writable(folder.lexicon)
    rules = Rules(options.max_characters)
    read = read_pairs([Corpus(str(options.data))], rules=rules, most=options.most)
    return lambda: learn(options, folder, config, tokenizers, read.pairs)


def learn(options, folder, config, tokenizers, pairs):
    """Learns the lexicon of a run from pairs, and writes it into its folder."""
    from keras_tfmr.text.lexicon import Lexicon
    from training.command.disk import write_atomically

    columns = zip(*pairs, strict=True)
    sides = [encoded(side, lines) for side, lines in zip(tokenizers, columns, strict=True)]
    lexicon = Lexicon.learn(
        list(zip(*sides, strict=True)),
        source_vocab=config["config"]["source_vocab"],
        target_vocab=config["config"]["target_vocab"],
        n=options.candidates,
        always=options.always,
        joint=config["config"]["joint_vocab"],
    )
    write_atomically(folder.lexicon, lexicon.save)
    rows, columns = lexicon.candidates.shape
    print(f"{columns} candidates for each of {rows} source subwords: {folder.lexicon}")


def encoded(tokenizer, lines):
    """The ids of each line."""
    values, offsets = tokenizer.encode_lines(lines)
    return [values[a:b] for a, b in itertools.pairwise(offsets)]


if __name__ == "__main__":
    sys.exit(main())
