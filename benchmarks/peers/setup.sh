#!/usr/bin/env bash
# setup.sh WHAT ...: installs or builds what a part of benchmarks/peers needs; for setup.py.
#   programs FOLDER TARGET...   the programs of this folder, and MPI where it can be had
#   train_gpt FOLDER            the training example
#   torch FOLDER                a virtual environment with PyTorch
#   valgrind
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup.sh"

what=$1
shift
case $what in
    programs)
        need "$needs_benchmarks"
        want "$wants_mpi_tests" 2>&1 | sed 's/^/benchmarks\/run peers: /' >&2
        folder=$1
        shift
        configure "$folder" --buildtype=release "$(mpi_option "$wants_mpi_tests")" -Dtests=disabled -Dexamples=disabled \
            -Dbenchmarks=enabled
        # Those that this machine can build.
        built=()
        for target in "$@"; do
            if ninja -C "$folder" -t query "benchmarks/peers/$target" >/dev/null 2>&1; then
                built+=("benchmarks/peers/$target")
            fi
        done
        compile "$folder" "${built[@]}" ;;
    train_gpt)
        need "$needs_train_gpt"
        configure "$1" --buildtype=release -Dtests=disabled -Dexamples=enabled "$(mpi_option "$needs_mpi")"
        compile "$1" examples/train_gpt/train_gpt ;;
    torch)
        requirements=$root/benchmarks/peers/requirements.txt
        if ! cmp -s "$requirements" "$1/installed"; then
            say 'installing PyTorch into a virtual environment below build/, which takes minutes and gigabytes'
            rm -rf "$1"
            # Debian keeps what makes environments in a package of its own.
            python3 -c 'import ensurepip' 2>/dev/null || install_packages python3-venv
            python3 -m venv "$1"
            "$1/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: -r "$requirements"
            cp "$requirements" "$1/installed"
        fi ;;
    valgrind) need 'command valgrind valgrind' ;;
    *)
        say "setup.sh: unknown '$what'"
        exit 2 ;;
esac
