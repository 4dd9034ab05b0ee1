#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_encoding_golden.py [FILE [MERGES [SEED]]]: writes texts and their tokens by tiktoken and tokenizers, which
must agree.

Without FILE: encoding.json beside it and the merges that it is of, encoding_merges.txt, which tokenizers makes of the
repository's pages; and examples/train_gpt/program/unicode_classes.hpp. With FILE: also random texts and every character,
for the test gpt.encoding, which reads the file that SHARDKIT_ENCODING_GOLDEN names; MERGES may be GPT-2's. No part of
tests/run, as it needs packages of PyPI: see `encodings` in .ci/run.
"""

import itertools
import json
import pathlib
import random
import sys
import textwrap

import tiktoken
import tokenizers
import unicodedata2

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# As of GPT-2's own encoder.py, with the order of the alternatives that tiktoken has too.
WORDS = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
SPACES = {*range(9, 14), 0x20, 0x85, 0xa0, 0x1680, *range(0x2000, 0x200b), 0x2028, 0x2029, 0x202f, 0x205f, 0x3000}
END = "<|endoftext|>"
TEXTS = [
    "", "a", " ", "\n", "The quick brown fox.", "I'm sure they've said it'd be what we'll see, isn't it? You're 's 'sure 'TIS",
    "''ll ' s don''t 're've", "  two  spaces   and three", "ends in spaces   ", " \n \n\n  x\t\ty \r\n", " " * 1000,
    "a" * 300 + " " * 77 + "b", "0 1 12 123 1234567890 3.14159 1e-5 x86_64 v2", "²³¹ ½ Ⅷ ٣٤٥ १२३ 一二三",
    "ZeRO-3 shards parameters; DDP does not.", "void f(const std::vector<int>& x) { return x[0]->y; }",
    "naïve café, Ångström, straße, ĲSSEL", "cafe\u0301 n\u0303 a\u0308\u0323 \u0301alone", "Привет, мир! Ελληνικά; עברית العربية",
    "深度学习模型的参数分片。 日本語のテキスト、カタカナ！ 한국어 문장", "ไทย हिन्दी தமிழ்", "👋🏽 🏳️‍🌈 👩‍👩‍👧 emoji😀😀 x🙂y",
    "\u00a0nbsp\u3000ideographic\u2003em\u200bzero\u2028line\x85next\u1680ogham", "\x00\x01\x1c\x1f\x7f\u00ad\ufeff control",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 \U0001e900 \U0002a6d6\U00031350 \U0010ffff\ue000", END, f"one{END}two {END}{END} \n{END}", "<|endoftext|<|endoftext",
]


def kind(character):
    return "space" if ord(character) in SPACES else unicodedata2.category(character)[0]


def runs(wanted):
    """How many characters are not of a kind, how many then are, and so on."""
    found, inside, begin = [], False, 0
    for code in range(0x110000):
        if (kind(chr(code)) == wanted) != inside:
            found.append(code - begin)
            inside, begin = not inside, code
    return found


def unicode_classes():
    text = ("// SPDX-License-Identifier: Apache-2.0\n#pragma once\n\n#include <cstdint>\n\nnamespace train_gpt {\n\n"
            f"// Unicode {unicodedata2.unidata_version}, by tests/golden/make_encoding_golden.py: so many characters are none, then so many are, and so on.\n"
            "// clang-format off\n")
    for name, wanted in (("letters", "L"), ("numbers", "N"), ("spaces", "space")):
        numbers = textwrap.fill(", ".join(map(str, runs(wanted))), 145).replace(", ", ",")
        text += f"inline constexpr std::uint32_t unicode_{name}[] = {{\n{numbers}}};\n"
    return text + "// clang-format on\n\n}  // namespace train_gpt\n"


def by_bytes():
    """Bytes by the characters that stand for them in a file of merges, in the order of their tokens."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


def encodings(merges):
    pairs = [tuple(line.split(" ")) for line in merges.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#version")]
    vocabulary = {name: i for i, name in enumerate([*by_bytes(), *(a + b for a, b in pairs), END])}
    byte = by_bytes()
    ranks = {bytes(byte[c] for c in name): i for name, i in vocabulary.items() if name != END}
    first = tiktoken.Encoding("merges", pat_str=WORDS, mergeable_ranks=ranks, special_tokens={END: len(ranks)})
    second = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=pairs))
    second.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    second.add_special_tokens([END])
    return first, second


def with_kinds(lines):
    """Merges besides, of a letter, a number and a mark with what a character of more bytes begins with: in tokens of a
    text without them, the ends of most words cannot be seen."""
    bytes_behind = [name for name, byte in by_bytes().items() if byte >= 0xc2]
    return lines + [pair for first in "a1!" for pair in (f"{first} {name}" for name in bytes_behind) if pair not in lines]


def train():
    pages = sorted(str(page) for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / "include").rglob("*.hpp")])
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train(pages, tokenizers.trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return [f"{a} {b}" for a, b in json.loads(tokenizer.to_str())["model"]["merges"]]


def behind_each_kind(characters):
    return ["".join(kind + character for kind, character in itertools.product("a1!", characters[begin:begin + 1024]))
            for begin in range(0, len(characters), 1024)]


def random_text(generator):
    alphabets = ["abcdefgh ", " \n\t", "'stremvld ", "0123456789 ", "äöüßéàñ ", "日本語中文 ", "\u0301\u0308\u200d a", "😀👋🏽🏳 "]
    def character():
        choice = generator.random()
        if choice < 0.8:
            return generator.choice(generator.choice(alphabets))
        code = generator.randrange(0x110000 if choice < 0.9 else 0x3000)
        return " " if 0xd800 <= code < 0xe000 else chr(code)
    return "".join(character() for _ in range(generator.randrange(1, 200)))


def main():
    generator = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    # Most numbers are no character yet, or nobody's: of those, a few.
    characters = [chr(code) for code in range(0x110000) if not 0xd800 <= code < 0xe000 and
                  (code % 97 == 0 or unicodedata2.category(chr(code)) not in ("Cn", "Co"))]
    if len(sys.argv) > 1:
        to = pathlib.Path(sys.argv[1])
        merges = to.with_suffix(".txt")
        given = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / "encoding_merges.txt"
        lines = [line for line in given.read_text(encoding="utf-8").split("\n") if line and not line.startswith("#version")]
        page = (ROOT / "README.md").read_text(encoding="utf-8")
        texts = TEXTS + [page] + [random_text(generator) for _ in range(3000)] + behind_each_kind(characters)
    else:
        to, merges, lines = HERE / "encoding.json", HERE / "encoding_merges.txt", train()
        texts = TEXTS + behind_each_kind(generator.sample(characters, 300))
        (ROOT / "examples/train_gpt/program/unicode_classes.hpp").write_text(unicode_classes(), encoding="utf-8")
    merges.write_text("#version: 0.2\n" + "".join(line + "\n" for line in with_kinds(lines)), encoding="utf-8")
    first, second = encodings(merges)
    pairs = []
    for text in texts:
        ids = first.encode(text, allowed_special={END})
        if ids != second.encode(text).ids:
            sys.exit(f"tiktoken and tokenizers differ for {text!r}")
        pairs.append({"text": text, "ids": ids})
    text = ",\n".join(json.dumps(pair) for pair in pairs)
    to.write_text(f'{{"merges": "{merges.name}", "pairs": [\n{text}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
