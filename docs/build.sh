#!/usr/bin/env bash
# Builds the documentation into docs/_build; any warning is an error, and so is a script from elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" -m sphinx -q -W --keep-going -c docs -b html . docs/_build
if grep -rlE '<script[^>]*src="https?:' --include='*.html' docs/_build; then
    echo "these pages load scripts from elsewhere" >&2
    exit 1
fi
echo "docs/_build/index.html"
