#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/run in parts, on a machine that says it has a GPU, with programs that stand in for the tests: each part runs
# its own programs, results of earlier parts stay, and the JSON is whole at any time.
root=$1
wrong=0
complain() { echo "$1" && wrong=1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/bin" "$folder/out/programs"
cat >"$folder/bin/nvidia-smi" <<'SMI'
#!/bin/sh
case "$*" in
    *query-gpu=name*) echo 'a GPU' ;;
    *driver_version*) echo 1.2 ;;
    *compute_cap*) echo 9.0 ;;
    *--list-gpus*) echo 'GPU 0' ;;
esac
SMI
# A compiler: objects are empty, and a program says how it was called, and learns.
cat >"$folder/bin/nvcc" <<'NVCC'
#!/bin/sh
case "$*" in *--version*) echo 'Cuda compilation tools, release 13.0, V13.0.1' && exit ;; esac
compiles=false
for word in "$@"; do
    [ "$word" != -c ] || compiles=true
    [ "$before" != -o ] || made=$word
    before=$word
done
if $compiles; then : >"$made" && exit; fi
printf '#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLS"\necho "loss: 2 first, 1 last"\n' >"$made"
chmod +x "$made"
NVCC
cp "$folder/bin/nvcc" "$folder/bin/cxx"
chmod +x "$folder"/bin/*
program() { printf '#!/bin/sh\n%s\n' "$2" >"$folder/out/programs/$1" && chmod +x "$folder/out/programs/$1"; }
built() { printf 'cuda 13.0.1\nnccl 2.30.7\narchitectures %s\ncommit abc\n' "$1" >"$folder/out/programs/built"; }
export NVCC=$folder/bin/nvcc
run() { PATH=$folder/bin:$PATH timeout 60 "$root/tests/gpu/run" --json "$folder/json" "$@" 2>&1; }
results() { python3 -B -c 'import json, sys; print(*sorted(r["result"] + ":" + r["name"] for r in json.load(open(sys.argv[1]))["results"]))' "$folder/json"; }
expect() { [ "$1" = "$2" ] || complain "$3: '$1', expected '$2'"; }

said=$(run --only kernels) && complain 'no --out: succeeds'
[[ $said == *'--only needs --out'* ]] || complain "no --out: $said"
said=$(run --only kernel --out "$folder/out") && complain 'an unknown part: succeeds'
[[ $said == *'--only kernel: expected some of build kernels ranks failure sanitize mps'* ]] || complain "an unknown part: $said"
said=$(run --only kernels --out "$folder/out") && complain 'nothing built: succeeds'
[[ $said == *'no programs, expected those of --only build'* ]] || complain "nothing built: $said"

program copy_test 'exit 0'
built 80
said=$(run --only kernels --out "$folder/out") && complain 'programs for another GPU: succeeds'
[[ $said == *'programs for sm_80, the GPU is sm_90: expected --only build --arch 90' ]] || complain "programs for another GPU: $said"
built 90
program norm_test 'echo "failed: a \"norm\""; exit 1'
program nccl_failure_test 'exit 0'
said=$(run --only kernels --out "$folder/out") && complain 'a test fails: succeeds'
expect "$(results)" 'failed:norm_test passed:copy_test' 'kernels'
[[ $said == *'1 passed, 1 failed, 0 skipped' ]] || complain "kernels: $said"
program norm_test 'exit 0'
run --only failure --out "$folder/out" >/dev/null && complain 'the failure of an earlier part is forgotten'
expect "$(results)" 'failed:norm_test passed:copy_test passed:nccl_failure_test' 'failure'
run --only kernels,failure --out "$folder/out" >/dev/null || complain 'all pass: fails'
expect "$(results)" 'passed:copy_test passed:nccl_failure_test passed:norm_test' 'once more'

# Cut off in the second of two.
rm -r "$folder/out" "$folder/json" && mkdir -p "$folder/out/programs"
built 90
program copy_test 'exit 0'
program norm_test "touch $folder/second; sleep 5"
run --only kernels --out "$folder/out" >/dev/null &
for _ in $(seq 200); do
    [ -e "$folder/second" ] && break
    sleep 0.1
done
kill $! && wait $! 2>/dev/null
expect "$(results)" 'passed:copy_test' 'cut off'
expect "$(tar -tzf "$folder/json.logs.tar.gz")" 'run.copy_test.log' 'logs'

# The very commands of the checklist, on a machine without a GPU and on one that has only the checkout and what travels.
commands() { sed -n "/^\`\`\`sh $1$/,/^\`\`\`$/p" "$root/docs/gpu_checklist.md" | sed '1d;$d'; }
checkout() { mkdir "$folder/$1" && ln -s "$root"/{benchmarks,docs,examples,include,meson.build,scripts,subprojects,tests} "$folder/$1"; }
mkdir -p "$folder"/{without,headers/CLI,headers/nlohmann,nccl/include,nccl/lib,back}
touch "$folder"/headers/{CLI/CLI,nlohmann/json}.hpp "$folder/nccl/lib/libnccl.so.2"
printf '#define NCCL_%s\n' 'MAJOR 2' 'MINOR 30' 'PATCH 7' >"$folder/nccl/include/nccl.h"
export CPLUS_INCLUDE_PATH=$folder/headers NCCL_HOME=$folder/nccl CXX=$folder/bin/cxx CALLS=$folder/calls OUT=$folder/back
checkout here
(cd "$folder/here" && eval "$(commands build)") >"$folder/said" 2>&1 || complain "the checklist's build: $(tail -n 5 "$folder/said")"
[ "$(tail -n 1 "$folder/said" | sed 's/^[1-9][0-9]* passed, 0 failed, 0 skipped$/all/')" = all ] || complain "the checklist's build: $(tail -n 5 "$folder/said")"
[ ! -e "$CALLS" ] || complain "building runs $(head -n 1 "$CALLS")"
checkout there
mkdir -p "$folder/there/build/gpu" && cp -r "$folder/here/build/gpu/programs" "$folder/there/build/gpu"
for tool in compute-sanitizer nvidia-cuda-mps-control; do
    printf '#!/bin/bash\necho "%s $*" >>"$CALLS"\n[ -t 0 ] || [ "$1" = -d ] || [ -x "${!#}" ] || cat >/dev/null\n' "$tool" >"$folder/bin/$tool"
    chmod +x "$folder/bin/$tool"
done
(cd "$folder/there" && PATH=$folder/bin:$PATH && set -e && eval "$(commands run)") >"$folder/said" 2>&1 ||
    complain "the checklist's run: $(tail -n 5 "$folder/said")"
for source in "$root"/tests/gpu/*_test.cu; do
    name=$(basename "$source" .cu)
    grep -q "^$name " "$CALLS" || complain "the checklist does not run $name"
    grep -q '^#include <shardkit/backend/nccl/world.hpp>' "$source" || grep -q "^compute-sanitizer .*memcheck.*/$name\$" "$CALLS" ||
        complain "the checklist does not sanitize $name"
done
for call in 'after .*--graph on' 'kernels .*--device gpu' 'collectives .*-b 256 ' 'collectives .*-b 1G '; do
    grep -q "^$call" "$CALLS" || complain "the checklist does not call $call"
done
expect "$(grep -n '^nvidia-cuda-mps-control' "$CALLS" | sed -n '1s/:.*//p')" \
    "$(($(grep -vn '^nvidia-cuda-mps-control\|^nccl_ranks_test' "$CALLS" | tail -n 1 | sed 's/:.*//') + 1))" 'what runs before MPS'
expect "$(cd "$OUT" && echo *)" 'gpu.json gpu.logs.tar.gz row7.txt row9.txt' 'what comes back'
expect "$(python3 -B -c 'import json, sys; r = json.load(open(sys.argv[1])); print(r["failed"], r["skipped"], r["cuda"], r["nccl"], r["chip"])' "$OUT/gpu.json")" \
    '0 0 13.0.1 2.30.7 a GPU' 'the JSON that comes back'
exit $wrong
