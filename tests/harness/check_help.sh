#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# -h and --help of each script print its head, which names every flag that it takes, and do nothing else.
root=$1
wrong=0
complain() { echo "$1" && wrong=1; }
# Those whose flags are a program's are left out: examples/run and examples/mesh_picture/run.
scripts=(.ci/run benchmarks/gpu/build.sh benchmarks/run docs/site/run examples/cuda_trainer/build.sh
    examples/cuda_trainer/run scripts/start_ranks tests/fuzz/run tests/gpu/compile tests/gpu/run tests/run)
for script in "${scripts[@]}"; do
    for flag in -h --help; do
        said=$(PATH=/usr/bin:/bin timeout 20 "$root/$script" $flag 2>&1) || complain "$script $flag: status $?"
        [[ $said == *"$script"* ]] || complain "$script $flag: does not say how it is called: $said"
        [ "$said" = "$("$root/scripts/help" "$root/$script")" ] || complain "$script $flag: prints more than its head: $said"
    done
    while read -r flag; do
        [[ $said == *"$flag"* ]] || complain "$script --help: does not name $flag"
    done < <(grep -oE '^ +(--[a-z-]+)\)' "$root/$script" | tr -d ' )')
done
exit $wrong
