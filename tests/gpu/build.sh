# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Builds the GPU test programs with nvcc and g++ alone; sourced by compile and run, which set:
#   out        folder of objects and logs              architectures   "80 90"
#   programs   folder of programs                      host_flags, device_flags, link_flags (an array), jobs
#   only_library  true where the tests are left out
#   merges     whether kernels that include much the same are compiled as one: less work in all, and longer on many cores
# Notes what became of it in $out/results: "passed|failed|skipped KIND NAME SECONDS [REASON]".

root=$(cd "$here/../.." && pwd)
cxx=${CXX:-g++}
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
source "$root/scripts/nccl.sh"
find_nccl

cuda_version() { "$nvcc" --version | sed -n 's/.* V\([0-9.]*\)$/\1/p'; }

# Programs that need NCCL make an nccl::World.
uses_nccl() { grep -q '^#include <shardkit/backend/nccl/world.hpp>' "$1"; }
has_kernels() { grep -q '^#include .*\.cuh\?[>"]' "$1" || grep -q '^#include <thrust/' "$1"; }

# object NAME SOURCE: compiles; sources without device code by the host's compiler.
object() {
    local name=$1 source=$2
    local -a flags=(-std=c++20 -I"$root/include" -I"$root/tests" -isystem "$root/subprojects/doctest")
    if uses_nccl "$source"; then flags+=("${nccl_flags[@]}"); fi
    # The host's code keeps products and sums apart, so that its bits are those of a device without fusing.
    if has_kernels "$source"; then
        # One pass over the source, for the oldest, and the machine code of each.
        local -a each
        # shellcheck disable=SC2086
        mapfile -t each < <(printf '%s\n' $architectures | sort -nu)
        local codes
        codes=$(printf 'sm_%s,' "${each[@]}")
        # Kernels are compared bit by bit; a source may ask for something else in a line "// flags: ...".
        local fused
        fused=$(sed -n 's,^// flags: ,,p' "$source")
        # shellcheck disable=SC2086
        "$nvcc" -ccbin "$cxx" "${flags[@]}" -gencode "arch=compute_${each[0]},code=[${codes%,}]" \
            --expt-relaxed-constexpr ${fused:--fmad=false} \
            -Werror all-warnings -Xcompiler -Wall,-Wextra,-ffp-contract=off $host_flags $device_flags \
            -c "$source" -o "$out/$name.o"
    else
        # shellcheck disable=SC2086
        "$cxx" "${flags[@]}" -isystem "$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include" -Wall -Wextra -Wpedantic \
            -Wshadow -Wconversion -Wsign-conversion -Werror -ffp-contract=off $host_flags \
            -x c++ -c "$source" -o "$out/$name.o"
    fi
}

# unit_of SOURCE: nvcc reads what a source includes once for the host and for each architecture, which takes longer than
# the rest, so that sources of kernels that include much the same may be one unit.
unit_of() {
    local name
    name=$(basename "${1%.*}")
    case $merges:$name in
        true:*_adamw | true:*_lion | true:*_sgd) echo instantiate_updates ;;
        *_kernels_for | *_norm | false:*) echo "$name" ;;
        *) echo instantiate_others ;;
    esac
}
# unit NAME: compiles its sources; where several fail, each alone, to say which.
unit() {
    local unit=$1 source result=passed begin=$EPOCHREALTIME
    local -a sources=()
    for source in "$here"/instantiate*.cu; do
        if [ "$(unit_of "$source")" = "$unit" ]; then sources+=("$source"); fi
    done
    if [ ${#sources[@]} -eq 1 ]; then
        timed compile "$unit" object "$unit" "${sources[0]}"
        return
    fi
    for source in "${sources[@]}"; do
        printf '#include "%s"\n' "$source"
        sed -n 's/^#define \([A-Za-z_0-9]*\).*/#undef \1/p' "$source"
    done >"$out/$unit.cu"
    if object "$unit" "$out/$unit.cu" >"$out/compile.$unit.log" 2>&1; then
        for source in "${sources[@]}"; do note passed compile "$(basename "${source%.*}")" "$(seconds_since "$begin")"; done
        return
    fi
    for source in "${sources[@]}"; do
        timed compile "$(basename "${source%.*}")" object "$(basename "${source%.*}")" "$source" || result=failed
    done
    [ $result = failed ] || note failed compile "$unit" "$(seconds_since "$begin")" 'each source compiles, but not all as one'
}

# program NAME SOURCE: links.
program() {
    local name=$1 source=$2
    local -a libraries=()
    local -a kernels=("$out/libkernels.a")
    # Nothing names what launches a kernel of a rank: its objects are linked as they are, and not taken from an archive.
    if uses_nccl "$source"; then kernels=("$out"/instantiate*.o "$out/trainer_kernels.o") libraries=("${nccl_libraries[@]}"); fi
    if grep -q '^#include <cublas_v2.h>' "$source"; then libraries+=(-lcublas); fi
    "$nvcc" -ccbin "$cxx" --no-device-link "${link_flags[@]}" "$out/$name.o" "$out/main.o" "${kernels[@]}" \
        "${libraries[@]}" -o "$programs/$name"
}

# timed KIND NAME COMMAND...: runs it, keeps its output as a log, and notes the result, with what it says in lines
# "skipped: REASON", "failed: REASON" or "measured: FIGURES".
timed() {
    local kind=$1 name=$2 log=$out/$1.$2.log begin=$EPOCHREALTIME status=0 result=passed reason
    shift 2
    "$@" >"$log" 2>&1 || status=$?
    if [ $status -eq 77 ]; then result=skipped; elif [ $status -ne 0 ]; then result=failed; fi
    reason=$(sed -n "s/^$result: //p; s/^measured: //p" "$log" | awk '!seen[$0]++ { printf "%s%s", semicolon, $0; semicolon = "; " }')
    note "$result" "$kind" "$name" "$(seconds_since "$begin")" ${reason:+"$reason"}
    [ $result != failed ] || tail -n 30 "$log"
    return $status
}
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }
# Jobs note beside each other. noted is what becomes of the results after each: compile counts them at its end.
noted() { :; }
note() {
    {
        flock 9
        echo "$*" >>"$out/results"
        noted
    } 9>"$out/results.lock"
    echo "$*"
}
# The results, of a program that ran several times only the last one.
latest() {
    awk '{ at[$2 " " $3] = NR; line[NR] = $0 } END { for (i = 1; i <= NR; i++) { split(line[i], f); if (at[f[2] " " f[3]] == i) print line[i] } }' "$out/results"
}

# Waits until one more job may start.
free_place() { while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done; }

build() {
    local source name
    if ! command -v "$nvcc" >/dev/null; then
        echo "no nvcc: expected the CUDA toolkit 13 in PATH, or NVCC=its compiler" >&2
        exit 1
    fi
    : >"$out/results"
    # Links follow, for what was compiled.
    for name in $(for source in "$here"/instantiate*.cu; do unit_of "$source"; done | sort -u); do
        free_place
        unit "$name" &
    done
    if ${only_library:-false}; then wait && return; fi
    for source in "$here"/trainer_kernels.cu "$here"/*_test.cu "$here"/main.cpp; do
        name=$(basename "${source%.*}")
        if uses_nccl "$source" && [ -z "$nccl_home" ]; then
            note skipped compile "$name" 0 "$(nccl_taken)"
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

count() { latest | awk -v result="$1" '$1 == result { n++ } END { print n + 0 }'; }
