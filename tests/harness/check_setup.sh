#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What scripts/setup.sh says where packages cannot be installed, and while it builds.
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

say_every=1
apt-get() { sleep 1.3; }
said=$(need 'command shardkit-no-such-command some-package' 2>&1)
expect 'while packages are installed' 'installing, 0:0' "$said"

said=$(need 'command bash bash' 2>&1) || { echo "need failed although nothing is missing: $said"; wrong=1; }
[ -z "$said" ] || { echo "need is not quiet when nothing is missing: $said"; wrong=1; }

expect 'an MPI that is missing' '-Dmpi=auto' "$(mpi_option "$absent")"
expect 'an MPI that is there' '-Dmpi=enabled' "$(mpi_option 'command bash bash')"

# A folder that is there is made anew only for other options.
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
meson() { echo configured >>"$room/log"; mkdir -p "$2"; touch "$2/build.ninja"; }
for option in -Dmpi=auto -Dmpi=auto -Dmpi=enabled; do configure "$room/build" "$option" 2>/dev/null; done
expect 'configured for the first and for the other options' 2 "$(wc -l <"$room/log")"
for wants_mpi_tests in "$absent" "$absent" 'command bash bash'; do configure "$room/build" -Dmpi=enabled 2>/dev/null; done
expect 'configured anew for an MPI that was installed' 4 "$(wc -l <"$room/log")"

# Who waits and sees no terminal is told what is built, and how far it is; what is there already needs no word.
said=$(printf 'planted\n[3/7] Compiling\n' | (cat; sleep 1.2) | say_steps 1 configuring 2>&1 >"$room/steps")
expect 'steps while a build goes on' 'step 3 of 7, 0:01' "$said"
expect 'the steps are passed on' '[3/7] Compiling' "$(<"$room/steps")"
to_do=0
ninja() { case " $* " in *' -n '*) [ "$to_do" -gt 0 ] || echo 'ninja: no work to do.' ;; *) return "$((to_do - 1))" ;; esac; }
said=$(compile "$room/build" planted_target 2>&1) && [ -z "$said" ] || { echo "a build of nothing says: $said"; wrong=1; }
to_do=1
said=$(compile "$room/build" planted_target 2>&1) || { echo 'compile failed although ninja did not'; wrong=1; }
expect 'a build' 'building planted_target' "$said"
expect 'a build' 'built in 0:0' "$said"
to_do=2
compile "$room/build" planted_target 2>/dev/null && { echo 'compile succeeded although ninja failed'; wrong=1; }
exit "$wrong"
