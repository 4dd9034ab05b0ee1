# SPDX-License-Identifier: Apache-2.0
"""check_transformers.py PROGRAM: models travel between transformers and train_gpt and back, with the same loss.

No part of tests/run, as it needs PyTorch and transformers (see benchmarks/peers/requirements.txt):
    bash benchmarks/peers/setup.sh torch build/peers/venv
    build/peers/venv/bin/python tests/train_gpt/check_transformers.py build/tests/examples/train_gpt/train_gpt
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
from make_gpt2_golden import batch_of, loss_of, make_model  # noqa: E402
from make_gpt_training_golden import make_text  # noqa: E402

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
CONFIG = {"sequence": 16, "layers": 3, "width": 32, "heads": 4, "batch": 12, "seed": 5, "text_bytes": 500}
TEXT = make_text(CONFIG["text_bytes"])
STEPS = 4
RUNS = [("1x1x1", "no_shard"), ("2x1x1", "full_shard"), ("1x2x1", "no_shard"), ("1x1x2", "shard_grad_op"),
        ("3x1x1", "shard_optimizer"), ("2x2x1", "hybrid_shard:2"), ("2x2x2", "full_shard")]
wrong = []


def expect(condition, what):
    print(("ok: " if condition else "WRONG: ") + what)
    if not condition:
        wrong.append(what)


def train(folder, *flags):
    names = ("sequence", "layers", "width", "heads", "batch", "seed")
    shape = [word for name in names for word in (f"--{name}", str(CONFIG[name]))]
    done = subprocess.run([PROGRAM, *shape, "--text", "text", "--json", "run.json", *map(str, flags)], cwd=folder,
                          capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def as_gpt2(ours):
    """Tensors under train_gpt's own names as GPT-2 has them; written from the description of both layouts."""
    heads = CONFIG["heads"]
    theirs = {"transformer.wte.weight": ours["embedding.wte"], "transformer.wpe.weight": ours["embedding.wpe"],
              "transformer.ln_f.weight": ours["head.norm_weight"], "transformer.ln_f.bias": ours["head.norm_bias"]}
    if "logits.weight" in ours:
        theirs["lm_head.weight"] = ours["logits.weight"]
    for layer in range(CONFIG["layers"]):
        def block(name, layer=layer):
            return ours[f"blocks.{layer}.{name}"]
        def thirds(value):
            return torch.cat([part.flatten(0, 1) for part in value.unflatten(0, (heads, 3, -1)).unbind(1)])
        pairs = {"ln_1.weight": block("norm1_weight"), "ln_1.bias": block("norm1_bias"),
                 "ln_2.weight": block("norm2_weight"), "ln_2.bias": block("norm2_bias"),
                 "attn.c_attn.weight": thirds(block("qkv_weight")).T, "attn.c_attn.bias": thirds(block("qkv_bias")),
                 "attn.c_proj.weight": block("projection_weight").T, "attn.c_proj.bias": block("projection_bias"),
                 "mlp.c_fc.weight": block("up_weight").T, "mlp.c_fc.bias": block("up_bias"),
                 "mlp.c_proj.weight": block("down_weight").T, "mlp.c_proj.bias": block("down_bias")}
        theirs.update({f"transformer.h.{layer}.{name}": value for name, value in pairs.items()})
    return theirs


def check_run(folder, model, flags, what):
    """From transformers to train_gpt, some steps, and back."""
    theirs = folder / "theirs"
    report = train(folder, *flags, "--init", theirs / "model.safetensors", "--names", "gpt2", "--steps", STEPS, "--save",
                   "gpt2")
    expected = loss_of(model, CONFIG, TEXT, 0)
    expect(abs(report["losses"][0] - expected) < 1e-5, f"{what}: its loss {report['losses'][0]:.7f}, transformers' {expected:.7f}")
    saved = folder / f"gpt2/step-{STEPS:08}"
    model.config.save_pretrained(saved)  # the shape, which no tensor file tells transformers
    back = transformers.GPT2LMHeadModel.from_pretrained(saved).eval()
    own = train(folder, *flags, "--init", theirs / "model.safetensors", "--names", "gpt2", "--steps", STEPS, "--save", "tmp")
    expect(own["losses"] == report["losses"], f"{what}: the same run again has the same losses")
    train(folder, *flags, "--resume", "tmp", "--steps", STEPS + 1, "--save", "next")
    after = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    expected = loss_of(back, CONFIG, TEXT, STEPS)
    expect(abs(after["losses"][0] - expected) < 1e-5 and after["first_step"] == STEPS,
           f"{what}: the next step's loss {after['losses'][0]:.7f}, transformers' from what was saved {expected:.7f}")
    return saved, back


def check_tensors(folder, saved, back, flags, what):
    """Both kinds of names hold the same bits, and the opened model computes what those compute."""
    # One state under both names: the gpt2 file as first values of a run that changes nothing.
    train(folder, *flags, "--init", saved / "model.safetensors", "--names", "gpt2", "--steps", 1, "--lr", 0, "--save", "same")
    train(folder, *flags, "--resume", "same", "--steps", 2, "--lr", 0, "--save", "ours")
    theirs = safetensors.torch.load_file(saved / "model.safetensors")
    expected = as_gpt2(safetensors.torch.load_file(folder / "ours/step-00000002/model.safetensors"))
    expect(theirs.keys() == expected.keys() and all(torch.equal(theirs[key], expected[key]) for key in theirs),
           f"{what}: the same bits under both kinds of names")
    state = back.state_dict()
    expect(all(torch.equal(state[key], theirs[key]) for key in theirs), f"{what}: transformers has every tensor as saved")
    fresh = make_model(CONFIG, back.config.tie_word_embeddings)
    missing, unexpected = fresh.load_state_dict(expected, strict=False)
    expect(not unexpected and all(key == "lm_head.weight" for key in missing), f"{what}: names are transformers' own")
    tokens, _ = batch_of(CONFIG, TEXT, 9)
    with torch.no_grad():
        expect(torch.equal(fresh(tokens).logits, back(tokens).logits), f"{what}: equal logits")


def check(mesh, policy, head):
    with tempfile.TemporaryDirectory(prefix="shardkit-gpt2-") as name:
        folder = pathlib.Path(name)
        (folder / "text").write_bytes(bytes(TEXT))
        model = make_model(CONFIG, head == "tied")
        model.save_pretrained(folder / "theirs")
        flags = ["--mesh", mesh, "--policy", policy, "--head", head]
        what = f"{mesh} {policy} {head}"
        saved, back = check_run(folder, model, flags, what)
        check_tensors(folder, saved, back, flags, what)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for mesh, policy in RUNS:
        check(mesh, policy, "tied")
    check("2x2x1", "full_shard", "untied")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
