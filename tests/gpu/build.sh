# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Builds the GPU test programs with nvcc and g++ alone; sourced by compile and run, which set:
#   out    folder of objects, logs and programs        architectures   "80 90"
#   host_flags, device_flags, jobs
# After `build`: results (lines "passed|failed|skipped NAME SECONDS"), programs (names of those that were linked).

root=$(cd "$here/../.." && pwd)
cxx=${CXX:-g++}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
source "$root/scripts/nccl.sh"

# doctest: DOCTEST_INCLUDE, the folder above doctest/doctest.h; else what the compiler finds, or Meson's download.
doctest_include() {
    local folder
    for folder in "${DOCTEST_INCLUDE:-}" /usr/include /usr/local/include "$root"/subprojects/doctest-*/; do
        if [ -n "$folder" ] && [ -e "$folder/doctest/doctest.h" ]; then echo "$folder" && return; fi
    done
}

nccl_version() {
    local header
    header="$(nccl_home)/include/nccl.h"
    [ -e "$header" ] || { echo none && return; }
    awk '/define NCCL_(MAJOR|MINOR|PATCH) /{printf "%s%s", dot, $3; dot = "."}' "$header"
}

cuda_version() { "$nvcc" --version | sed -n 's/.* V\([0-9.]*\)$/\1/p'; }

# Programs that need NCCL make an nccl::World.
uses_nccl() { grep -q '^#include <shardkit/backend/nccl/world.hpp>' "$1"; }
has_kernels() { grep -q '^#include .*\.cuh[>"]' "$1" || grep -q '^#include <thrust/' "$1"; }

# object NAME SOURCE: compiles; sources without device code by the host's compiler.
object() {
    local name=$1 source=$2 doctest nccl
    local -a flags=(-std=c++20 -I"$root/include" -I"$root/tests")
    doctest=$(doctest_include)
    [ "$doctest" = /usr/include ] || [ -z "$doctest" ] || flags+=(-isystem "$doctest")
    if uses_nccl "$source"; then
        nccl=$(nccl_home)
        [ "$nccl" = /usr ] || flags+=(-isystem "$nccl/include")
    fi
    # The host's code keeps products and sums apart, so that its bits are those of a device without fusing.
    if has_kernels "$source"; then
        local -a codes=()
        for architecture in $architectures; do
            codes+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
        done
        # Kernels are compared bit by bit; a source may ask for something else in a line "// flags: ...".
        local fused
        fused=$(sed -n 's,^// flags: ,,p' "$source")
        # shellcheck disable=SC2086
        "$nvcc" -ccbin "$cxx" "${flags[@]}" "${codes[@]}" --expt-relaxed-constexpr ${fused:--fmad=false} --no-compress \
            -Werror all-warnings -Xcompiler -Wall,-Wextra,-ffp-contract=off $host_flags $device_flags \
            -c "$source" -o "$out/$name.o"
    else
        # shellcheck disable=SC2086
        "$cxx" "${flags[@]}" -isystem "$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include" -Wall -Wextra -Wpedantic \
            -Wshadow -Wconversion -Wsign-conversion -Werror -ffp-contract=off $host_flags \
            -x c++ -c "$source" -o "$out/$name.o"
    fi
}

# program NAME SOURCE: links.
program() {
    local name=$1 source=$2
    local -a libraries=()
    if uses_nccl "$source"; then mapfile -t libraries < <(nccl_libraries); fi
    "$nvcc" -ccbin "$cxx" --no-device-link "$out/$name.o" "$out/main.o" "$out/libkernels.a" "${libraries[@]}" \
        -o "$out/$name"
}

# timed KIND NAME COMMAND...: runs it, keeps its output as a log, and notes the result.
timed() {
    local kind=$1 name=$2 begin=$EPOCHREALTIME status=0 result=passed
    shift 2
    "$@" >"$out/$kind.$name.log" 2>&1 || status=$?
    if [ $status -eq 77 ]; then result=skipped; elif [ $status -ne 0 ]; then result=failed; fi
    printf '%s %s %s %s\n' "$result" "$kind" "$name" \
        "$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')" | tee -a "$out/results"
    [ $result != failed ] || tail -n 30 "$out/$kind.$name.log"
    return $status
}

# Waits until one more job may start.
free_place() { while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done; }

build() {
    local source name
    : >"$out/results"
    # The longest first. Links follow, for what was compiled.
    for source in "$here"/instantiate_[as]*.cu "$here"/instantiate.cu "$here"/instantiate_[!as]*.cu \
        "$here"/trainer_kernels.cu "$here"/*_test.cu "$here"/main.cpp; do
        name=$(basename "${source%.*}")
        if uses_nccl "$source" && [ -z "$(nccl_home)" ]; then
            echo "skipped compile $name 0" | tee -a "$out/results"
            continue
        fi
        free_place
        timed compile "$name" object "$name" "$source" &
    done
    wait
    if ! ar rcs "$out/libkernels.a" "$out"/instantiate*.o "$out/trainer_kernels.o"; then return 1; fi
    for source in "$here"/*_test.cu; do
        name=$(basename "${source%.*}")
        [ -e "$out/$name.o" ] || continue
        free_place
        timed link "$name" program "$name" "$source" &
    done
    wait
}

count() { awk -v result="$1" '$1 == result { n++ } END { print n + 0 }' "$out/results"; }
