#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/run in parts, on a machine that says it has a GPU, with programs that stand in for the tests: each part runs
# its own programs, results of earlier parts stay, and the JSON is whole at any time.
root=$1
wrong=0
complain() { echo "$1" && wrong=1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/out"
cat >"$folder/bin/nvidia-smi" <<'SMI'
#!/bin/sh
case "$*" in
    *query-gpu=name*) echo 'a GPU' ;;
    *driver_version*) echo 1.2 ;;
    *compute_cap*) echo 9.0 ;;
    *--list-gpus*) echo 'GPU 0' ;;
esac
SMI
printf '#!/bin/sh\necho "Cuda compilation tools, release 13.0, V13.0.1"\n' >"$folder/bin/nvcc"
chmod +x "$folder"/bin/*
program() { printf '#!/bin/sh\n%s\n' "$2" >"$folder/out/$1" && chmod +x "$folder/out/$1"; }
run() { PATH=$folder/bin:$PATH NVCC=$folder/bin/nvcc timeout 60 "$root/tests/gpu/run" --json "$folder/json" "$@" 2>&1; }
results() { python3 -B -c 'import json, sys; print(*sorted(r["result"] + ":" + r["name"] for r in json.load(open(sys.argv[1]))["results"]))' "$folder/json"; }
expect() { [ "$1" = "$2" ] || complain "$3: '$1', expected '$2'"; }

said=$(run --only kernels) && complain 'no --out: succeeds'
[[ $said == *'--only needs --out'* ]] || complain "no --out: $said"
said=$(run --only kernel --out "$folder/out") && complain 'an unknown part: succeeds'
[[ $said == *'--only kernel: expected some of build kernels ranks failure sanitize'* ]] || complain "an unknown part: $said"
said=$(run --only kernels --out "$folder/out") && complain 'nothing built: succeeds'
[[ $said == *'no programs, expected those of --only build'* ]] || complain "nothing built: $said"

program copy_test 'exit 0'
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
rm -r "$folder/out" "$folder/json" && mkdir "$folder/out"
program copy_test 'exit 0'
program norm_test "touch $folder/second; sleep 5"
run --only kernels --out "$folder/out" >/dev/null &
for _ in $(seq 200); do
    [ -e "$folder/second" ] && break
    sleep 0.1
done
kill $! && wait $! 2>/dev/null
expect "$(results)" 'passed:copy_test' 'cut off'
exit $wrong
