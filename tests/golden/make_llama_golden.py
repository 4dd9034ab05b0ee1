#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes llama.safetensors: a small LlamaForCausalLM of transformers with random weights, as its own save_pretrained
writes it.

Needs what benchmarks/peers/requirements.txt lists; run without arguments from any directory:
    bash benchmarks/peers/setup.sh torch build/peers/venv
    build/peers/venv/bin/python tests/golden/make_llama_golden.py
With a folder, as a save of the library's has, says whether transformers opens its model.safetensors with the same
logits, which is what its end status says:
    build/peers/venv/bin/python tests/golden/make_llama_golden.py run/step-00000001
"""

import pathlib
import shutil
import sys
import tempfile

import torch
import transformers

SIZES = {"vocab_size": 19, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "max_position_embeddings": 16, "tie_word_embeddings": False}


def make_model():
    torch.manual_seed(13)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(0.3 * torch.randn(value.shape))
    return model.eval()


def same_logits(model, folder):
    tokens = torch.arange(16).reshape(2, 8)
    with tempfile.TemporaryDirectory() as opened, torch.no_grad():
        shutil.copy(pathlib.Path(folder) / "model.safetensors", opened)
        model.config.save_pretrained(opened)
        other = transformers.LlamaForCausalLM.from_pretrained(opened, dtype=torch.float32).eval()
        return torch.equal(model(tokens).logits, other(tokens).logits)


def main():
    model = make_model()
    if len(sys.argv) > 1:
        same = same_logits(model, sys.argv[1])
        print("the same logits" if same else "other logits")
        sys.exit(0 if same else 1)
    file = pathlib.Path(__file__).resolve().parent / "llama.safetensors"
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        shutil.copy(pathlib.Path(saved) / "model.safetensors", file)
    print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
