#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/setup.sh says where packages cannot be installed.
. "$1/scripts/setup.sh"

wrong=0
expect() {  # what, expected text, said text
    case $3 in
        *"$2"*) ;;
        *) echo "$1: expected '$2', it said: $3"; wrong=1 ;;
    esac
}

absent='
command bash bash
command shardkit-no-such-command some-package
header shardkit/no_such_header.hpp other-package
module shardkit-no-such-module third-package
'

id() { echo 1000; }
said=$(need "$absent" 2>&1) && { echo 'need succeeded although something is missing'; wrong=1; }
expect 'non-root' 'only root can install packages' "$said"
expect 'non-root' 'some-package (the command shardkit-no-such-command)' "$said"
expect 'non-root' 'other-package (the header <shardkit/no_such_header.hpp>)' "$said"
expect 'non-root' 'third-package (the pkg-config module shardkit-no-such-module)' "$said"
expect 'non-root' 'apt-get install other-package some-package third-package' "$said"
case $said in *'bash (the command'*) echo "it names bash, which is there: $said"; wrong=1 ;; esac

id() { echo 0; }
apt-get() { echo 'E: planted refusal'; return 100; }
said=$(need "$absent" 2>&1) && { echo 'need succeeded although apt-get failed'; wrong=1; }
expect 'failing apt-get' 'E: planted refusal' "$said"
expect 'failing apt-get' 'some-package (the command shardkit-no-such-command)' "$said"

apt-get() { :; }
said=$(need "$absent" 2>&1) && { echo 'need succeeded although nothing was installed'; wrong=1; }
expect 'apt-get that brings nothing' 'some-package (the command shardkit-no-such-command)' "$said"
expect 'apt-get that brings nothing' 'not installed because apt-get' "$said"

said=$(need 'command bash bash' 2>&1) || { echo "need failed although nothing is missing: $said"; wrong=1; }
[ -z "$said" ] || { echo "need is not quiet when nothing is missing: $said"; wrong=1; }

expect 'an MPI that is missing' '-Dmpi=auto' "$(mpi_option "$absent")"
expect 'an MPI that is there' '-Dmpi=enabled' "$(mpi_option 'command bash bash')"

# A folder that is there is made anew only for other options.
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
meson() { echo configured >>"$room/log"; mkdir -p "$2"; touch "$2/build.ninja"; }
for option in -Dmpi=auto -Dmpi=auto -Dmpi=enabled; do configure "$room/build" "$option"; done
expect 'configured for the first and for the other options' 2 "$(wc -l <"$room/log")"
exit "$wrong"
