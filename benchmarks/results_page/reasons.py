# SPDX-License-Identifier: Apache-2.0
"""Why targets are missed: written by hand, a text for each target's id."""
import json

from bad_result import BadResult
from targets import BY_ID

FILE = "reasons.json"


def read(folder):
    """@raise BadResult for what is no such file, and for a reason that names no target"""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadResult(f"{FILE}: expected JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadResult(f"{FILE}: expected an object with a text for each target's id")
    for name, text in found.items():
        if name not in BY_ID:
            raise BadResult(f"{FILE}: '{name}' is no target: expected one of {', '.join(BY_ID)}")
        if not isinstance(text, str) or not text.strip():
            raise BadResult(f"{FILE}: '{name}' has no reason: expected a text")
    return found
