# SPDX-License-Identifier: Apache-2.0
"""Tests check.py itself: each way in which a reject test can be wrong must be found."""
import os
import subprocess
import sys
import tempfile

GOOD = """// expected-error: sizes must agree
template <int A, int B>
struct Pair {
    static_assert(A == B, "sizes must agree");
};
template <int A>
void use() { Pair<A, 1> pair; (void)pair; }
#ifdef REJECT
int main() { use<2>(); }
#else
int main() { use<1>(); }
#endif
"""

CASES = [
    ("rejected for the stated reason", GOOD, 0),
    ("no expected-error line", GOOD.replace("// expected-error", "// comment"), 1),
    ("another error than the expected one", GOOD.replace("error: sizes", "error: shapes"), 1),
    ("compiles with REJECT", GOOD.replace("use<2>", "use<1>"), 1),
    ("does not compile without REJECT", GOOD.replace("use<1>", "use<2>"), 1),
    ("expected text only in an echoed source line",
     "// expected-error: wanted\n#ifdef REJECT\nint wanted = absent;\n#endif\nint main() {}\n", 1),
    ("for another compiler", "// compiler: none\n" + GOOD, 77),
]


def main():
    check, rest = sys.argv[1], sys.argv[2:]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text, expected in CASES:
            path = os.path.join(folder, "case.cpp")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            split = rest.index("--")
            done = subprocess.run([sys.executable, "-B", check, *rest[:split], path, *rest[split:]],
                                  capture_output=True, text=True, check=False)
            if done.returncode != expected:
                wrong += 1
                print(f"{name}: exit status {done.returncode}, expected {expected}\n{done.stdout}{done.stderr}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
