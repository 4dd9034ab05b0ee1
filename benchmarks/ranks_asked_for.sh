# Sourced by benchmarks/run.
# shellcheck shell=bash

# ranks_asked_for OTHERWISE FLAGS...: as many ranks as --ranks, -g or the first --mesh say, OTHERWISE without them, and none
# at all where that is no number from 1 to 4096: then one process is enough to refuse it.
ranks_asked_for() {
    local flags given extents=() extent ranks=1
    given=$1
    shift
    flags=" $* "
    if [[ $flags =~ ' '(--ranks|--mesh|--ngpus|-g)[\ =]([^\ ,]*) ]]; then given=${BASH_REMATCH[2]}; fi
    IFS=x read -ra extents <<<"${given}x1"
    for extent in "${extents[@]}"; do
        [[ $extent =~ ^0*([1-9][0-9]{0,3})$ ]] || return 0
        ranks=$((ranks * BASH_REMATCH[1]))
        [ "$ranks" -le 4096 ] || return 0
    done
    echo "$ranks"
}
