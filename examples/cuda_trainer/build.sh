#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles and links both trainers, and train_gpt with all of its engines, with nvcc; needs no GPU.
#   examples/cuda_trainer/build.sh [--out FOLDER] [--arch "80 90"] [--jobs N] [--only-gpus]
# train_gpt has the engines of hosts where pkg-config names an OpenBLAS, mpi too where it names an MPI; --only-gpus leaves
# them out, for a program that runs on machines without these.
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
hosts=true
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) exec "$(dirname "${BASH_SOURCE[0]}")/../../scripts/help" "${BASH_SOURCE[0]}" ;;
        --out) out=$2 && shift 2 ;;
        --arch) architectures=$2 && shift 2 ;;
        --jobs) at_once=$2 && shift 2 ;;
        --only-gpus) hosts=false && shift ;;
        *) echo "usage: examples/cuda_trainer/build.sh [--out FOLDER] [--arch \"80 90\"] [--jobs N] [--only-gpus]" >&2 && exit 2 ;;
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
    "$nvcc" "${flags[@]}" "${@/#/$out/}" -o "$out/$program" -lcublasLt -lcublas "${nccl_libraries[@]}" "${host_libraries[@]}"
}
flags+=(-DTRAIN_GPT_REPOSITORY="\"$root\"")
gpt=$root/examples/train_gpt
of_gpt=("$gpt"/main.cpp "$gpt"/device/{nccl,gpt_kernels,gpt_kernels_bf16}.cu
    "$gpt"/program/{choose_schedule,command_line,encoding,plan_summary,program,report,start,text}.cpp
    "$here"/../common/{flags,gnuplot,openblas,output_file,stop_signals}.cpp)
host_libraries=()
# with MODULE SOURCE...: these, where there is that module.
with() {
    $hosts && pkg-config --exists "$1" 2>/dev/null || return 1
    local found
    read -ra found <<<"$(pkg-config --cflags-only-I "$1" | sed 's/-I/-isystem /g')"
    flags+=("${found[@]}")
    read -ra found <<<"$(pkg-config --libs-only-L --libs-only-l "$1")"
    host_libraries+=("${found[@]}")
    of_gpt+=("${@:2}")
}
if with openblas "$gpt"/{allocation_counter,model/pass_instances}.cpp "$gpt"/program/{run_on_engine,train,train_bf16,train_fp32}.cpp; then
    if with ompi-cxx "$here/../common/processes_mpi.cpp"; then
        flags+=(-DTRAIN_GPT_MPI)
    else
        of_gpt+=("$here/../common/processes_without_mpi.cpp")
    fi
else
    of_gpt+=("$gpt/program/hosts_missing.cpp" "$here/../common/processes_without_mpi.cpp")
fi
running=0
sources=("$here"/{before,after,network,kernels}.cu "${of_gpt[@]}")
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
of_gpt=("${of_gpt[@]##*/}")
link train_gpt kernels.o "${of_gpt[@]/%.*/.o}"
