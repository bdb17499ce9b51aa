#!/usr/bin/env bash
# Builds the documentation into docs/_build; any warning is an error.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-../.venv/bin/python}
"$python" -m sphinx -q -W --keep-going -b html . _build
echo "docs/_build/index.html"
