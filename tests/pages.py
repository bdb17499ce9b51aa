"""The programs and commands that pages show."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def blocks(page, language):
    """The fenced code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M)


PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/guide/*.md"))]
PROGRAMS = {page: blocks(page, "python") for page in PAGES if blocks(page, "python")}
