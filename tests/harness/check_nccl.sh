#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which NCCL scripts/nccl.sh takes, of several that are newer than any of this machine.
set -uo pipefail
. "$1/scripts/nccl.sh"

wrong=0
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
place() {  # folder, folder of the library, name of the library, version
    mkdir -p "$room/$1/include" "$room/$1/$2" && touch "$room/$1/$2/$3"
    printf '#define NCCL_%s\n' "MAJOR ${4%%.*}" "MINOR $(cut -d. -f2 <<<"$4")" "PATCH ${4##*.}" \
        >"$room/$1/include/nccl.h"
}
expect() {  # what, expected folder, expected version
    find_nccl
    if [ "$nccl_home" != "${2:+$room/$2}" ] || [ "$nccl_version" != "$3" ]; then
        echo "$1: expected $2 $3, it took $(nccl_taken)"
        wrong=1
    fi
}
contains() {  # what, expected text, given text
    case $3 in *"$2"*) ;; *) echo "$1: expected '$2', it is '$3'"; wrong=1 ;; esac
}

mkdir -p "$room/toolkit/bin" && touch "$room/toolkit/bin/nvcc" && chmod +x "$room/toolkit/bin/nvcc"
nvcc=$room/toolkit/bin/nvcc
python3() { echo "$room/wheel"; }
unset NCCL_HOME

place toolkit lib64 libnccl.so 999.9.5
expect 'only the toolkit has one' toolkit 999.9.5
library=$room/toolkit/lib64
contains 'the library of lib64' "-L$library -Xlinker=-rpath,$library -l:libnccl.so" "${nccl_libraries[*]}"
place wheel lib libnccl.so.2 999.10.1
expect "PyTorch's is newer" wheel 999.10.1
contains "the wheel's library" "-l:libnccl.so.2" "${nccl_libraries[*]}"
contains "the wheel's headers" "-isystem $room/wheel/include" "${nccl_flags[*]}"
place toolkit lib64 libnccl.so 999.10.1
expect 'both are as new' toolkit 999.10.1
rm "$room/toolkit/lib64/libnccl.so"
expect 'the toolkit has no library' wheel 999.10.1

place wheel lib libnccl.so.2 999.29.7
place toolkit lib64 libnccl.so 0.0.1
expect 'none is left out' wheel 999.29.7

place own lib libnccl.so 2.18.0
NCCL_HOME=$room/own
expect 'NCCL_HOME names an old one' own 2.18.0
contains 'what it says' "NCCL 2.18.0 of $room/own" "$(nccl_taken)"
NCCL_HOME=$room/empty
expect 'NCCL_HOME names none' '' ''
contains 'what it says of none' "NCCL_HOME=$room/empty" "$(nccl_taken)"
exit "$wrong"
