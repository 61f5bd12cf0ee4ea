"""RESULTS.md holds a section of each benchmark that is run for the record: "# Results of NAME.py" and what NAME.py printed."""

import re


def put(path, title, lines):
    """Makes `lines` what stands under `title`, the file's other sections as they were; a new section goes behind them."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = [part for part in re.split(r"^(?=# Results of )", old, flags=re.MULTILINE) if part.strip()]
    made = "\n".join([title, *lines]) + "\n"
    at = next((i for i, part in enumerate(sections) if part.splitlines()[0] == title), len(sections))
    sections[at : at + 1] = [made]
    path.write_text("\n".join(part.rstrip("\n") + "\n" for part in sections), encoding="utf-8")
