# SPDX-License-Identifier: Apache-2.0
"""The index at the head of the page: each target with the best value that is known, met or missed."""
import collections

from figures import four_digits
from result import BadResult
from row import is_met, target_text
from targets import TARGETS
from text import file_link, table

HEADS = ("target", "what", "aim", ">best value", "verdict", "measured by", "reason")


def of_files(evidence):
    """Target id -> {result: the worst piece of evidence}: in one file all rows have to meet a target."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for result, pieces in evidence:
        for piece in pieces:
            found[piece.target][result].append(piece)
    return {target.id: {result: min(pieces, key=lambda piece: target.rank(piece.value))
                        for result, pieces in found[target.id].items()} for target in TARGETS}


def best_of(target, by_result):
    return max(by_result.items(), key=lambda entry: target.rank(entry[1].value))


def require_reasons(files, reasons):
    """@raise BadResult that names all targets that are missed and have none, a line each"""
    lines = []
    for target in TARGETS:
        if not files[target.id] or target.id in reasons:
            continue
        result, best = best_of(target, files[target.id])
        if not is_met(target.bound, best.value):
            lines.append(f"{result.name}: target '{target.id}' is missed: {four_digits(best.value)}, expected "
                         f"{target_text(target.bound)}, or a reason in reasons.json")
    if lines:
        raise BadResult("\n".join(lines))


def verdict(target, by_result, reasons):
    """The cells of a target's row."""
    if not by_result:
        return ("-", "not measured", target.by, reasons.get(target.id, target.without))
    reason = reasons.get(target.id, "-")
    result, best = best_of(target, by_result)
    where = f"{file_link(result.name)}: {best.what}" + (" **(busy machine)**" if result.is_busy else "")
    met = is_met(target.bound, best.value)
    missed = sum(not is_met(target.bound, piece.value) for piece in by_result.values())
    words = "met" if met else "**missed**"
    if met and missed:
        words += f" (missed by {missed} of {len(by_result)} results)"
    return (four_digits(best.value), words, where, reason if missed else "-")


def index(evidence, reasons):
    """evidence: pairs of a result and what it says, of those that count.
    @raise BadResult when a target is missed and no reason is given"""
    files = of_files(evidence)
    require_reasons(files, reasons)
    rows = []
    for target in TARGETS:
        value, words, where, reason = verdict(target, files[target.id], reasons)
        rows.append((f"`{target.id}`", target.what, target_text(target.bound), value, words, where, reason))
    return ["## Targets", "", *table(HEADS, rows),
            "A value is the worst of the rows of one result of which the target speaks, and of several results the "
            "best. Quick runs do not count. That a steady step allocates nothing is for tests to say; and that "
            "tests/run takes at most 8 minutes on two processors, .ci/run at most 35, for whoever runs them.", ""]
