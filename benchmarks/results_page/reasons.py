# SPDX-License-Identifier: Apache-2.0
"""Why targets are missed."""
import json

from result import BadResult
from targets import BY_ID

REASONS = "reasons.json"


def read_reasons(folder):
    """Written by hand, a text for each target's id.
    @raise BadResult for what is no such file, and for a reason that names no target"""
    path = folder / REASONS
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadResult(f"{REASONS}: expected JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadResult(f"{REASONS}: expected an object with a text for each target's id")
    for name, text in found.items():
        if name not in BY_ID:
            raise BadResult(f"{REASONS}: '{name}' is no target: expected one of {', '.join(BY_ID)}")
        if not isinstance(text, str) or not text.strip():
            raise BadResult(f"{REASONS}: '{name}' has no reason: expected a text")
    return found
