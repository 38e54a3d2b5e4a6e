"""The schema of the command line, read from its page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,), "string": (str,), "boolean": (bool,), "array": (list,), "object": (dict,),
    "number": (int, float), "null": (type(None),),
}  # fmt: skip


def documented(heading: str) -> dict[str, set[str]]:
    """Keys and types of the table below a phrase of the page."""
    words = (ROOT / "docs" / "cli.md").read_text().split(heading, 1)[1]
    table = re.search(r"\| key \|.*?\n\n", words + "\n\n", re.DOTALL)
    assert table is not None
    rows = re.findall(r"^\| `(\w+)` \| ([a-z ]+) \|", table[0], re.MULTILINE)
    return {key: set(kinds.split(" or ")) for key, kinds in rows}


def conforms(found: dict[str, Any], *headings: str) -> None:
    """Fail unless an object has exactly the keys of these tables, with values of their types."""
    schema = {k: v for h in headings for k, v in documented(h).items()}
    assert set(found) == set(schema)
    for key, kinds in schema.items():
        assert isinstance(found[key], tuple(t for k in kinds for t in TYPES[k])), key


def strict(text: str) -> dict[str, Any]:
    """JSON without NaN and infinities."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)
