#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes gpt2.safetensors and gpt2.json: a small GPT2LMHeadModel of transformers with random weights, as its own
save_pretrained writes it, and its loss on the batch of a first step of training.

Needs what benchmarks/peers/requirements.txt lists; run without arguments from any directory:
    bash benchmarks/peers/setup.sh torch build/peers/venv
    build/peers/venv/bin/python tests/golden/make_gpt2_golden.py
"""

import json
import pathlib
import shutil
import tempfile

import torch
import transformers

from gpt_model import VOCABULARY
from make_gpt_training_golden import make_text, starts

CONFIG = {"sequence": 8, "layers": 2, "width": 8, "heads": 2, "batch": 6, "seed": 11, "text_bytes": 500}


def make_model(config, tied=True):
    """Every parameter is random, biases and norms too, and large enough for the loss to show each of them."""
    torch.manual_seed(config["seed"])
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=config["sequence"], n_embd=config["width"], n_layer=config["layers"],
        n_head=config["heads"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        tie_word_embeddings=tied))
    with torch.no_grad():
        for name, value in model.named_parameters():
            base = 1.0 if ".ln_" in name and name.endswith("weight") else 0.0
            value.copy_(base + 0.3 * torch.randn(value.shape))
    return model.eval()


def batch_of(config, text, step):
    sequence = config["sequence"]
    begins = starts(config, step, len(text) - sequence)
    tokens = torch.tensor([text[begin:begin + sequence] for begin in begins])
    targets = torch.tensor([text[begin + 1:begin + 1 + sequence] for begin in begins])
    return tokens, targets


def loss_of(model, config, text, step):
    """The mean loss on the step's batch, as fp32 has it."""
    tokens, targets = batch_of(config, text, step)
    with torch.no_grad():
        logits = model(tokens).logits
        return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1)).item()


def main():
    folder = pathlib.Path(__file__).resolve().parent
    model = make_model(CONFIG)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        shutil.copy(pathlib.Path(saved) / "model.safetensors", folder / "gpt2.safetensors")
    content = {"torch": torch.__version__, "transformers": transformers.__version__, "config": CONFIG,
               "loss": loss_of(model, CONFIG, make_text(CONFIG["text_bytes"]), 0)}
    (folder / "gpt2.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
    for name in ("gpt2.safetensors", "gpt2.json"):
        print(f"{name}: {(folder / name).stat().st_size} bytes")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
