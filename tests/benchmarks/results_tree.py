# SPDX-License-Identifier: Apache-2.0
"""A folder like the repository's, with results of its own: for the checks of `benchmarks/run table`."""
import copy
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

PICTURE = "{http://www.w3.org/2000/svg}"


class Tree:
    """`main`: the program that writes the page."""

    def __init__(self, folder, main):
        self.root, self.main = pathlib.Path(folder), main
        self.results = self.root / "benchmarks/results"
        self.results.mkdir(parents=True)
        self.pictures = self.root / "docs/pictures/results"

    def put(self, **found):
        """Results by the name of their file, and no others; texts as they are."""
        for path in self.results.iterdir():
            path.unlink()
        for name, content in found.items():
            text = content if isinstance(content, str) else json.dumps(content)
            (self.results / f"{name}.json").write_text(text, encoding="utf-8")

    def table(self, *flags):
        return subprocess.run([sys.executable, "-B", self.main, "--root", self.root, *flags],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)

    def page(self):
        return (self.root / "docs/benchmark_results.md").read_text(encoding="utf-8")

    def target(self, name):
        """The cells of a target's row after its aim: value, verdict, source, reason."""
        line = next(line for line in self.page().splitlines() if line.startswith(f"| `{name}` |"))
        return [cell.strip() for cell in line.strip("|").split(" | ")][3:]

    def linked(self):
        """Names of the pictures that the page shows."""
        return set(re.findall(r"\]\(pictures/results/([^)]+)\)", self.page()))

    def drawn(self):
        return {path.name for path in self.pictures.glob("*.svg")}

    def texts(self, name):
        """What a picture says."""
        found = xml.etree.ElementTree.parse(self.pictures / name)
        return ["".join(element.itertext()).strip() for element in found.iter(f"{PICTURE}text")]


def changed(result, **members):
    """A copy with other members."""
    found = copy.deepcopy(result)
    found.update(members)
    return found
