# SPDX-License-Identifier: Apache-2.0
"""The script of docs/from_0_1.md makes of the page's first program its second one, and of that nothing else; it prints
what it leaves: check_from_0_1.py ROOT."""
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
page = (root / "docs/from_0_1.md").read_text(encoding="utf-8")
before = page.split("```text\n")[1].split("```")[0]
after = page.split("```cpp program\n")[1].split("```")[0]
left = "static_assert(std::is_same_v<E, sk::mpi::Engine>);"
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "trainer.cpp"
    for text, expected in ((before, after), (after, after), (left, left)):
        path.write_text(text, encoding="utf-8")
        said = subprocess.run([root / "scripts/from_0_1", path], check=True, capture_output=True, text=True).stdout
        assert path.read_text(encoding="utf-8") == expected, path.read_text(encoding="utf-8")
        assert said == (f"{path}:1: {left}\n" if text == left else ""), said
