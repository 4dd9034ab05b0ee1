#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/start_ranks tells each process its place, and ends with the first that fails.
start=$1/scripts/start_ranks
wrong=0
expect() {  # what, expected, given
    [ "$2" = "$3" ] || { echo "$1: expected '$2', given '$3'"; wrong=1; }
}
unset MASTER_ADDR MASTER_PORT

# shellcheck disable=SC2016
said=$("$start" 3 bash -c 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT"')
expect 'status of three that succeed' 0 $?
expect 'places' "$(printf '%s\n' '0 0 3 3 127.0.0.1 29500' '1 1 3 3 127.0.0.1 29500' '2 2 3 3 127.0.0.1 29500')" \
    "$(sort <<<"$said")"
# shellcheck disable=SC2016
expect 'a given port' 'here:1' "$(MASTER_ADDR=here MASTER_PORT=1 "$start" 1 bash -c 'echo "$MASTER_ADDR:$MASTER_PORT"')"

begin=$SECONDS
# shellcheck disable=SC2016
"$start" 3 bash -c 'if [ "$RANK" = 1 ]; then exit 7; fi; exec sleep 60' >/dev/null
expect 'status of the one that fails' 7 $?
[ $((SECONDS - begin)) -lt 30 ] || { echo 'the others were waited for'; wrong=1; }

# shellcheck disable=SC2016
said=$("$start" 2 bash -c 'if [ "$RANK" = 0 ]; then sleep 0.2; echo why; fi; exit 2')
expect 'status of those that refuse' 2 $?
expect 'the one that says why has the time to' why "$said"

for given in 0 x ''; do
    said=$("$start" "$given" true 2>&1)
    expect "status of '$given' processes" 2 $?
    expect "'$given' processes" "start_ranks: error: number of processes '$given': expected a whole number of at least 1, and a command" "$said"
done
exit $wrong
