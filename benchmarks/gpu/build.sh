#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles and links the benchmarks with their GPU parts, by nvcc and g++ alone; needs no GPU.
#   benchmarks/gpu/build.sh [--out FOLDER] [--arch "80 90"] [--jobs N]
# Without --arch: for the GPUs of this machine. Does nothing when the programs are newer than all sources.
# Environment: NVCC; CXX, the host's compiler; NCCL_HOME, the folder above include/nccl.h, to take that NCCL and not the
# newest of the toolkit's, the system's and PyTorch's; CPLUS_INCLUDE_PATH, folders with CLI/CLI.hpp and
# nlohmann/json.hpp, where the compiler finds none and nothing can be installed; CXXFLAGS, in place of -O3
# -march=native; NVCC_FLAGS, further flags.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup.sh"
. "$root/scripts/nccl.sh"
out=$root/build/benchmarks_gpu
architectures=
jobs=$(nproc)
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) exec "$(dirname "${BASH_SOURCE[0]}")/../../scripts/help" "${BASH_SOURCE[0]}" ;;
        --out) out=$2 && shift 2 ;;
        --arch) architectures=$2 && shift 2 ;;
        --jobs) jobs=$2 && shift 2 ;;
        *) say "usage: benchmarks/gpu/build.sh [--out FOLDER] [--arch \"80 90\"] [--jobs N]" && exit 2 ;;
    esac
done
fail() { say "benchmarks/gpu/build.sh: error: $*" && exit 1; }

cxx=${CXX:-g++}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
command -v "$nvcc" >/dev/null || fail "no nvcc: expected the CUDA toolkit 13 in PATH, or NVCC=its compiler"
find_nccl
[ -n "$nccl_home" ] || fail "$(nccl_taken)"
need "$needs_gpu_benchmarks"
if [ -z "$architectures" ]; then
    architectures=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u | xargs)
    [ -n "$architectures" ] || fail "nvidia-smi names no GPU: expected one, or --arch"
fi

# As Meson compiles the benchmarks.
optimization=${CXXFLAGS:--O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math}
codes=()
for architecture in $architectures; do
    codes+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
done
version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" "$root/meson.build")
wanted="$cxx $nvcc $(nccl_taken) $optimization ${NVCC_FLAGS:-} $architectures $version"
mkdir -p "$out"
if [ -x "$out/collectives" ] && [ -x "$out/kernels" ] && [ "$(cat "$out/.configured" 2>/dev/null)" = "$wanted" ] &&
    [ -z "$(find "$root"/{include,benchmarks,examples/common} -newer "$out/kernels" -type f -print -quit)" ]; then
    exit 0
fi
say "with $(nccl_taken)"

common="examples/common/flags examples/common/gnuplot examples/common/output_file
    examples/common/processes_without_mpi benchmarks/common/gpu
    benchmarks/common/result_files benchmarks/common/sweep"
collectives="command_line main mpi_missing report rows run_in_process run_on_nccl"
kernels="command_line main report run_on_gpu run_on_host"

of_folder() { printf "benchmarks/$1/%s " $2; }
object() { printf '%s/%s.o' "$out" "${1//\//.}"; }
objects() { for source in $1; do object "$source" && echo; done; }
compile_one() {
    # shellcheck disable=SC2086
    case $1 in
        benchmarks/gpu/kernels)
            "$nvcc" -std=c++20 -ccbin "$cxx" "${codes[@]}" --expt-relaxed-constexpr ${NVCC_FLAGS:-} \
                -I"$root/include" -O3 -c "$root/$1.cu" -o "$(object "$1")" ;;
        *)
            "$cxx" -std=c++20 $optimization -I"$root/include" "${nccl_flags[@]}" \
                -isystem "$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include" \
                -DBENCHMARKS_CHARTS="\"$root/benchmarks/charts/main.py\"" \
                -DBENCHMARKS_FLAGS="\"$optimization; nvcc -O3 sm_${architectures// / sm_}\"" \
                -c "$root/$1.cpp" -o "$(object "$1")" ;;
    esac
}
link() { # program, objects
    # shellcheck disable=SC2086
    "$nvcc" -ccbin "$cxx" --no-device-link $2 "${nccl_libraries[@]}" -o "$out/$1"
}

rm -f "$out"/*.o "$out/.configured" "$out/collectives" "$out/kernels"
failed=0
# The longest first.
for source in benchmarks/gpu/kernels $(of_folder collectives "$collectives") $(of_folder kernels "$kernels") $common; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || failed=1; done
    compile_one "$source" &
done
while [ "$(jobs -rp | wc -l)" -gt 0 ]; do wait -n || failed=1; done
[ $failed -eq 0 ] || fail "the compiler refused a source; see above"
for program in collectives kernels; do
    link "$program" "$(objects "$(of_folder "$program" "${!program}") $common benchmarks/gpu/kernels")"
done
printf '%s' "$wanted" >"$out/.configured"
