#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles and links both trainers, and train_gpt's for GPUs, with nvcc; needs no GPU.
#   examples/cuda_trainer/build.sh [--out FOLDER] [--arch "80 90"] [--jobs N]
# Without --arch: for the GPUs of this machine, or for sm_80 and sm_90 where there are none.
# Environment: NVCC; CXX, the host's compiler; NCCL_HOME, the folder above include/nccl.h, to take that NCCL and not the
# newest of the toolkit's, the system's and PyTorch's; NVCC_FLAGS, further flags.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$root/scripts/nccl.sh"
out=$root/build/cuda_trainer
architectures=
at_once=$(nproc)
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) exec "$(dirname "${BASH_SOURCE[0]}")/../../scripts/help" "${BASH_SOURCE[0]}" ;;
        --out) out=$2 && shift 2 ;;
        --arch) architectures=$2 && shift 2 ;;
        --jobs) at_once=$2 && shift 2 ;;
        *) echo "usage: examples/cuda_trainer/build.sh [--out FOLDER] [--arch \"80 90\"] [--jobs N]" >&2 && exit 2 ;;
    esac
done
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
if ! command -v "$nvcc" >/dev/null; then
    echo "build.sh: no nvcc; expected the CUDA toolkit 13 in PATH, or NVCC=its compiler" >&2 && exit 1
fi
if [ -z "$architectures" ]; then
    architectures=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u || true)
fi

flags=(-std=c++20 -O2 --expt-relaxed-constexpr -Werror all-warnings -Xcompiler "-Wall,-Wextra" -I"$root/include")
for architecture in ${architectures:-80 90}; do
    flags+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
done
if [ -n "${CXX:-}" ]; then flags+=(-ccbin "$CXX"); fi
find_nccl
if [ -z "$nccl_home" ]; then echo "build.sh: $(nccl_taken)" >&2 && exit 1; fi
echo "with $(nccl_taken)"
mkdir -p "$out"
# compile OBJECT SOURCE
compile() {
    # shellcheck disable=SC2086
    "$nvcc" "${flags[@]}" ${NVCC_FLAGS:-} "${nccl_flags[@]}" -c "$2" -o "$out/$1.o"
}
# link PROGRAM OBJECT...
link() {
    local program=$1
    shift
    "$nvcc" "${flags[@]}" "${@/#/$out/}" -o "$out/$program" -lcublasLt -lcublas "${nccl_libraries[@]}"
}
flags+=(-DTRAIN_GPT_REPOSITORY="\"$root\"")
gpt=$root/examples/train_gpt
running=0
sources=("$here"/{before,after,network,kernels}.cu "$gpt"/device/{gpt,gpt_kernels,gpt_kernels_bf16}.cu
    "$gpt"/program/{choose_schedule,command_line,encoding,plan_summary,start,text}.cpp "$here"/../common/{flags,output_file}.cpp)
for source in "${sources[@]}"; do
    if [ "$running" -ge "$at_once" ]; then
        wait -n
        running=$((running - 1))
    fi
    compile "$(basename "${source%.*}")" "$source" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n
    running=$((running - 1))
done
link before before.o network.o flags.o
link after after.o network.o kernels.o flags.o
link gpt gpt.o gpt_kernels.o gpt_kernels_bf16.o kernels.o choose_schedule.o command_line.o encoding.o flags.o \
    output_file.o plan_summary.o start.o text.o
