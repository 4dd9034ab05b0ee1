# Sourced by benchmarks/run.
# shellcheck shell=bash

# ranks_asked_for OTHERWISE FLAGS...: as many ranks as --ranks, -g, the first --mesh, or --from and --to together say (of which
# 2 and 1 are meant where one is missing), OTHERWISE without them, and none at all where that is no number from 1 to 4096:
# then one process is enough to refuse it.
ranks_asked_for() {
    local flags given sides=() side extents extent ranks all=0
    given=$1
    shift
    flags=" $* "
    if [[ $flags =~ ' '(--ranks|--mesh|--ngpus|-g)[\ =]([^\ ,]*) ]]; then given=${BASH_REMATCH[2]}; fi
    if [[ $flags =~ ' '--(from|to)[\ =] ]]; then
        sides=(2 1)
        if [[ $flags =~ ' '--from[\ =]([^\ ]*) ]]; then sides[0]=${BASH_REMATCH[1]}; fi
        if [[ $flags =~ ' '--to[\ =]([^\ ]*) ]]; then sides[1]=${BASH_REMATCH[1]}; fi
    else
        sides=("$given")
    fi
    for side in "${sides[@]}"; do
        IFS=x read -ra extents <<<"${side}x1"
        ranks=1
        for extent in "${extents[@]}"; do
            [[ $extent =~ ^0*([1-9][0-9]{0,3})$ ]] || return 0
            ranks=$((ranks * BASH_REMATCH[1]))
            [ "$ranks" -le 4096 ] || return 0
        done
        all=$((all + ranks))
    done
    [ "$all" -le 4096 ] && echo "$all"
    return 0
}
