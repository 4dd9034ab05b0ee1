# SPDX-License-Identifier: Apache-2.0
"""benchmarks/run gpt [--gpus N] [--model 124M|350M|1.5B] [--batch N] [--steps N] [--dtype bf16|fp32] [--json FILE]
[--program FILE] [flags of the trainer]

Times steps of `train_gpt --engine nccl`, plain and as launches of a CUDA graph, and prints for each: tokens in a second,
their share of the GPU's peak, on several GPUs the share of a step that communication makes longer, and the memory of a
rank beside its plan. Below it are the commands of what others have for the same tokens. Needs a GPU.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEQUENCE = 1024
VOCABULARY = 50_257
SHAPES = {"124M": (12, 768), "350M": (24, 1024), "1.5B": (48, 1600)}  # blocks and width, of heads of 64
# Products of dense bf16 matrices with fp32 sums, in 10^12 operations a second, as NVIDIA's data sheets have them.
PEAKS = {"H200": 989.4, "H100 PCIe": 756, "H100": 989.4, "A100": 312, "GH200": 989.4, "B200": 2250}


def operations_of_token(model):
    """Of forward and backward pass: 6 for each element of a matrix, and 12 for each position of a sequence and each element
    of the width, though half of the positions are not seen."""
    layers, width = SHAPES[model]
    return 6 * (12 * layers * width**2 + VOCABULARY * width) + 12 * layers * width * SEQUENCE


def heads_of(model):
    return SHAPES[model][1] // 64


def peak_of(name, dtype):
    """In operations a second; none where it is not known."""
    if dtype != "bf16":
        return None
    return next((peak * 1e12 for chip, peak in PEAKS.items() if chip in name), None)


def run(program, gpus, flags):
    """What the trainer writes with --json.
    @raise SystemExit when the trainer fails"""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        command = [str(program), "--engine", "nccl", *flags, "--json", str(report)]
        if gpus > 1:
            command = [str(ROOT / "scripts/start_ranks"), str(gpus), *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"benchmarks/run gpt: error: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return json.loads(report.read_text(encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser(prog="benchmarks/run gpt", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--model", choices=SHAPES, default="124M")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a step, over all GPUs")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--json", type=pathlib.Path, help="write the same as one object")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/cuda_trainer/train_gpt",
                        help="a trainer that was built before; else examples/cuda_trainer/build.sh builds it")
    parser.add_argument("--chip", help=argparse.SUPPRESS)
    given, others = parser.parse_known_args()
    if given.gpus < 1 or given.batch % given.gpus != 0 or given.steps < 3:
        parser.error(f"--gpus {given.gpus} --batch {given.batch} --steps {given.steps}: expected at least a GPU and 3 steps, "
                     "and a batch that is a multiple of the GPUs")
    chip = given.chip or subprocess.run(["nvidia-smi", "--id=0", "--query-gpu=name", "--format=csv,noheader"],
                                        capture_output=True, text=True, check=True).stdout.strip()
    shape = ("--sequence", "--width", "--layers", "--heads", "--vocabulary", "--head", "--experts")
    peak = None if any(flag.split("=")[0] in shape for flag in others) else peak_of(chip, given.dtype)
    print(f"GPT-2 {given.model}, {given.dtype}, {given.batch} x {SEQUENCE} tokens a step, on {given.gpus} x {chip}", flush=True)
    if not any(flag.startswith(("--text", "--tokens")) for flag in others):
        others += ["--text", str(ROOT / "docs/architecture.md")]  # the trainer's own default is where it was built
    rows = []
    for graph in ("off", "on"):
        # Two reports behind the first: the steps between the last two are timed.
        flags = ["--model", given.model, "--dtype", given.dtype, "--steps", str(given.steps), "--every",
                 str((given.steps - 1) // 2), "--graph", graph, *others]
        report = run(given.program, given.gpus, [*flags, "--batch", str(given.batch)])
        rate = report["tokens_per_second"]
        row = {"graph": graph, "tokens_per_second": rate, "peak_bytes": report["peak_bytes_per_rank"],
               "planned_bytes": report["planned_bytes_per_rank"], "traffic": report["collectives_by_axes"]}
        words = [f"{rate:,.0f} tokens/s"]
        if peak:
            row["share_of_peak"] = rate * operations_of_token(given.model) / (peak * given.gpus)
            words.append(f"{row['share_of_peak']:.1%} of the peak")
        if given.gpus > 1:
            alone = run(given.program, 1, [*flags, "--batch", str(given.batch // given.gpus)])["tokens_per_second"]
            row["exposed_communication"] = max(0.0, 1 - rate / given.gpus / alone)
            words.append(f"{row['exposed_communication']:.1%} of a step is communication that is waited for")
        rows.append(row)
        print(f"graph {graph}: " + ", ".join(words), f"memory of a rank: {row['peak_bytes']:,} bytes at most, "
              f"{row['planned_bytes']:,} planned", sep="\n  ", flush=True)
    if given.json:
        given.json.write_text(json.dumps({
            "gpu": chip, "gpus": given.gpus, "model": given.model, "dtype": given.dtype, "batch": given.batch,
            "sequence": SEQUENCE, "steps": given.steps, "flags": others, "commit": os.environ.get("SHARDKIT_COMMIT"),
            "rows": rows}, indent=1) + "\n", encoding="utf-8")
    each = given.batch // given.gpus
    print("beside:\n  PyTorch's FSDP2:\n    torchrun --nproc-per-node "
          f"{given.gpus} benchmarks/gpt/fsdp2.py --model {given.model} --batch {given.batch} --steps {given.steps} "
          f"--dtype {given.dtype}\n  llmq, of Qwen2.5 0.5 B, which is its smallest model:\n    ./build/train "
          "--model=Qwen/Qwen2.5-0.5B --from-scratch --train-file=train.bin --eval-file=eval.bin --model-dtype=bf16 "
          f"--opt-m-dtype=fp32 --opt-v-dtype=fp32 --grad-accumulation=1 --batch-size={each} --seq-len={SEQUENCE} "
          f"--steps={given.steps} --gpus={given.gpus}")


if __name__ == "__main__":
    main()
