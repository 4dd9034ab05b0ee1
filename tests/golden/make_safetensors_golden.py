#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes model.safetensors with the format's own library: tensors of every element type that is read as numbers, of
others, an empty one and a scalar.

Needs PyPI's safetensors (0.8.0 wrote the file here); run without arguments from any directory. tests/unit/checkpoint
has the values a second time, from the formulas below.
"""

import ctypes
import pathlib
import struct

from safetensors import TensorSpec, serialize_file


def bf16(value):
    """Of values that 16 bits hold exactly."""
    return struct.pack("<f", value)[2:]


def packed(letter, values):
    return b"".join(bf16(v) if letter == "bf16" else struct.pack("<" + letter, v) for v in values)


def main():
    steps = range(12)
    kept = []

    def tensor(dtype, shape, data):
        kept.append(ctypes.create_string_buffer(data, max(len(data), 1)))
        return TensorSpec(dtype=dtype, shape=shape, data_ptr=ctypes.addressof(kept[-1]), data_len=len(data))

    tensors = {
        "blocks.0.weight": tensor("float32", [3, 4], packed("f", [i * 0.25 - 1 for i in steps])),
        "blocks.0.wide": tensor("float64", [2, 3, 2], packed("d", [1 / (i + 3) for i in steps])),
        "half": tensor("float16", [12], packed("e", [i * 0.5 - 3 for i in steps])),
        "brain \u03b2\"\\": tensor("bfloat16", [4, 3], packed("bf16", [i * 2.0 - 7 for i in steps])),
        "steps": tensor("uint64", [2], packed("Q", [7, 1 << 63])),
        "mask": tensor("bool", [3], b"\1\0\1"),
        "empty": tensor("float32", [0, 5], b""),
        "scalar": tensor("float32", [], packed("f", [-0.0])),
    }
    path = pathlib.Path(__file__).parent / "model.safetensors"
    serialize_file(tensors, str(path), {"format": "pt", "note": "\u00fc, \"quoted\"\n"})


if __name__ == "__main__":
    main()
