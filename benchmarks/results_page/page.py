# SPDX-License-Identifier: Apache-2.0
"""The page and its pictures, from the files of a folder."""
import reasons
from bad_result import BadResult
from collectives_evidence import collectives_evidence
from collectives_section import collectives_section
from kernels_section import kernels_evidence, kernels_section
from peers_evidence import peers_evidence
from peers_section import peers_section
from policies_section import policies_evidence, policies_section
from result import read
from section_head import section_head
from verdicts import index

PAGE = "docs/benchmark_results.md"
PICTURES = "docs/pictures/results"
RESULTS = "benchmarks/results"
SECTIONS = {"collectives": collectives_section, "kernels": kernels_section, "policies": policies_section,
            "peers": peers_section}
EVIDENCE = {"collectives": collectives_evidence, "kernels": kernels_evidence, "policies": policies_evidence,
            "peers": peers_evidence}
INTRODUCTION = """# Results of the benchmarks

Written by `benchmarks/run table` from the files in benchmarks/results; how they are measured is in
[benchmarks](benchmarks.md). Change neither this page nor its pictures by hand.
"""


def section(result, others):
    """The page's lines for a result, and its pictures by name."""
    lines, files = section_head(result), {}
    for heading, text, pictures in SECTIONS[result.kind](result, others):
        if heading is not None:
            lines += [f"### {heading}", ""]
        for name, title, picture in pictures:
            lines += [f"![{title}]({PICTURES.removeprefix('docs/')}/{name})", ""]
            files[f"{PICTURES}/{name}"] = picture
        if text:
            lines += [*text, ""] if text[-1] else text
    return lines, files


def of_result(result, others):
    """Evidence, lines and pictures.
    @raise BadResult that names the file, where members are missing or are something else"""
    try:
        evidence = [] if result.is_quick else list(EVIDENCE[result.kind](result))
        return evidence, *section(result, others)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise BadResult(f"{result.name}: expected what benchmarks/run {result.kind} --json writes, as "
                        f"docs/benchmarks.md says: {error!r}") from None


def generate(root):
    """All files, by their path from the root.
    @raise BadResult"""
    folder = root / RESULTS
    results = [read(path) for path in sorted(folder.glob("*.json")) if path.name != reasons.FILE]
    made = [of_result(result, results) for result in results]
    evidence = [(result, found) for result, (found, _, _) in zip(results, made)]
    lines = [INTRODUCTION, *index(evidence, reasons.read(folder))]
    files = {}
    for _, text, pictures in made:
        lines += text
        files.update(pictures)
    if not results:
        lines.append("There are no results yet.\n")
    files[PAGE] = "\n".join(lines).rstrip("\n") + "\n"
    return files
