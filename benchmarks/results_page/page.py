# SPDX-License-Identifier: Apache-2.0
"""The page and its pictures, from the files of a folder."""
import checkpoints_section
import collectives_section
import kernels_section
import peers_section
import policies_section
import reasons
from result import BadResult, measured_lines, read
from verdicts import index

PAGE = "docs/benchmark_results.md"
PICTURES = "docs/pictures/results"
RESULTS = "benchmarks/results"
SECTIONS = {"collectives": collectives_section, "kernels": kernels_section, "policies": policies_section,
            "peers": peers_section, "checkpoints": checkpoints_section}
INTRODUCTION = """# Results of the benchmarks

Written by `benchmarks/run table` from the files in benchmarks/results; how they are measured is in
[benchmarks](benchmarks.md). Change neither this page nor its pictures by hand. Of each benchmark the first file by name
is drawn.
"""


def asked(result, question):
    """question(result), or what is wrong with the file.
    @raise BadResult that names the file, where members are missing or are something else"""
    try:
        return question(result)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise BadResult(f"{result.name}: expected what benchmarks/run {result.kind} --json writes, as "
                        f"docs/benchmarks.md says: {error!r}") from None


def evidence_of(result):
    return [] if result.is_quick else list(SECTIONS[result.kind].evidence(result))


def section(results, everything):
    """A question's lines, and drawings by the name of their file."""
    made = SECTIONS[results[0].kind]
    for result in results:  # one by one, so that what is wrong is known by its file
        asked(result, lambda each: made.section([each], everything))
    lines, pictures = made.section(results, everything)
    shown = [f"![{title}]({PICTURES.removeprefix('docs/')}/{name}.svg)\n" for name, title, _ in pictures]
    drawings = {f"{PICTURES}/{name}.svg": drawing for name, _, drawing in pictures}
    return [f"## {made.QUESTION}", "", *shown, *lines], drawings


def generate(root):
    """The page's text, and the drawings by the path of their picture from the root.
    @raise BadResult"""
    folder = root / RESULTS
    results = [read(path) for path in sorted(folder.glob("*.json")) if path.name != reasons.REASONS]
    evidence = [(result, asked(result, evidence_of)) for result in results]
    lines, drawings = [INTRODUCTION, *index(evidence, reasons.read_reasons(folder))], {}
    if results:
        lines += ["## Where, when and how", ""]
        for result in results:
            asked(result, lambda each: list(measured_lines([each])))
        lines += measured_lines(results)
    for kind in SECTIONS:
        chosen = [result for result in results if result.kind == kind]
        if chosen:
            text, pictures = section(chosen, results)
            lines += text
            drawings.update(pictures)
    if not results:
        lines.append("There are no results yet.\n")
    return "\n".join(lines).rstrip("\n") + "\n", drawings
