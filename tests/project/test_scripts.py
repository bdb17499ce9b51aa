"""Every script's `--help` is there at once, they all speak one dialect, and no option is given
without effect; the page of the benchmarks is short and true to its files, and every one runs."""

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from training.command import scripts

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
PAGES = [
    *(ROOT / name for name in ("README.md", "benchmarks/README.md", "docs/claims.md")),
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
]
MEASURING = sorted(path.name for path in BENCHMARKS.glob("*.py") if path.name != "harness.py")
SCRIPTS = [
    str(path.relative_to(ROOT))
    for folder in ("training", "serving")
    for path in sorted((ROOT / folder).glob("*.py"))
    if re.search("(?s)(command_line|parse_arguments).*__main__", path.read_text())
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_names_every_option_with_underscores_and_says_what_it_is(script):
    words = [sys.executable, script, "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "--help" in done.stdout, done.stderr
    for option in re.findall(r"^  (-.*(?:\n {10,}.*)*)", done.stdout, re.MULTILINE):
        names, _, text = re.sub(r"\s{2,}", "\n", option).partition("\n")
        assert text, f"{names} has no help"
        for name in re.findall(r"--([\w-]+)", names):
            assert re.fullmatch("[a-z0-9]+(_[a-z0-9]+)*", name)


# Runs a script that gets a signal as soon as it imports a module, or any after its first lines.
INTERRUPTED = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(name, path=None, target=None):
        watched = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        if watched and module in ("", name):
            os.kill(os.getpid(), signal.SIGINT)

module, *sys.argv = sys.argv[1:]
sys.meta_path.insert(0, Interrupting)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("script", "module"),
    [
        *((name, "") for name in SCRIPTS),
        *(("training/train_pt_en.py", name) for name in ("numpy", "keras")),
    ],
)
def test_ctrl_c_is_no_traceback_from_the_first_import_on(script, module, tmp_path):
    words = ["--output", str(tmp_path / "run"), "--seed=2"] if module else ["--help"]
    command = [sys.executable, "-c", INTERRUPTED, module, script, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (130, "") and not (tmp_path / "run").exists()


def parser_of(script, monkeypatch):
    """The parser that a script makes, in this process, which is asked to parse nothing."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr("sys.argv", [script])
    name = script.removesuffix(".py").removeprefix("benchmarks/").replace("/", ".")
    main = importlib.import_module(name).main
    with monkeypatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr(scripts._Parser, "parse_known_args", lambda own, *_: sys.exit(own))
        main()
    for action in ended.value.code._actions:
        action.required = False
    return ended.value.code


def words_of(option, value=""):
    """An option of a parser as words, with values that it accepts."""
    of_its_kind = {"I/N": "1/2", "CODE": "pt"}.get(option.metavar, "1")
    value = value or str(next(iter(option.choices or [of_its_kind])))
    count = option.nargs if isinstance(option.nargs, int) else 1
    return [option.option_strings[0], *[value] * count]


@pytest.mark.parametrize("script", [*SCRIPTS, *(f"benchmarks/{name}" for name in MEASURING)])
def test_no_option_is_given_without_effect(script, monkeypatch, capsys):
    """Lists add up, all others are given once, and never beside what takes their effect."""
    parser = parser_of(script, monkeypatch)

    def refused(*words):
        with pytest.raises(SystemExit):
            parser.parse_known_args(list(words))
        return capsys.readouterr().err

    def named(text):
        name, _, value = text.partition(" ")
        return words_of(parser._option_string_actions[name], value)

    for option in parser._actions:
        if not option.option_strings or option.dest == "help":
            continue
        words = words_of(option)
        if option.nargs in ("+", "*"):
            with_it = [word for text in option.only_with[:1] for word in named(text)]
            found, _ = parser.parse_known_args([*words, *with_it, *words])
            assert [str(value) for value in getattr(found, option.dest)] == 2 * words[1:]
        else:
            assert f"{'/'.join(option.option_strings)}: given twice" in refused(*words, *words)
        if option.only_with:
            assert f"{words[0]} has no effect without" in refused(*words)
        for other in option.not_with:
            assert f"{words[0]} cannot be given with {other}" in refused(*words, *named(other))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name + page.stem)
def test_the_commands_of_a_page_have_options_that_go_together(page, monkeypatch):
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for script, rest in re.findall(r"python ((?:training|serving|benchmarks)/\w+\.py)(.*)", text):
        words = shlex.split(re.split(r"[<>|&;`)](?![^']*')", rest)[0], comments=True)
        _, unknown = parser_of(script, monkeypatch).parse_known_args(words)
        assert not unknown, f"{script} {rest}"


def test_every_script_has_its_row_in_a_short_page_and_every_row_its_script():
    page = (BENCHMARKS / "README.md").read_text()
    assert sorted(set(re.findall(r"benchmarks/(\w+\.py)", page))) == MEASURING


@pytest.mark.slow
@pytest.mark.needs("torch", "transformers")  # or what compares with them is left out
@pytest.mark.parametrize("name", MEASURING)
def test_the_quick_run_of(name):
    command = [sys.executable, BENCHMARKS / name, "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "\n| --- " in done.stdout and "keras_tfmr" in done.stdout + name
