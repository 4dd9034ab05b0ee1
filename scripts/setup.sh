# Sourced by tests/run, examples/run and .ci/run: finds or installs what they need, configures build folders,
# builds, and runs tests.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Seconds between two words on how far it is, to who sees no terminal.
say_every=10

# What a script needs, one per line: kind, what to look for, the Debian package that brings it.
needs_build='
command meson meson
command ninja ninja-build
command python3 python3
command c++ g++
command pkg-config pkg-config
'
needs_tests="$needs_build
command cmake cmake
"
# Of a program with a command line.
needs_program="$needs_build
header CLI/CLI.hpp libcli11-dev
"
needs_train_gpt="$needs_program
header nlohmann/json.hpp nlohmann-json3-dev
module openblas libopenblas-dev
"
needs_benchmarks="$needs_program
header nlohmann/json.hpp nlohmann-json3-dev
"
# Of the benchmarks that are built without Meson.
needs_gpu_benchmarks='
command c++ g++
header CLI/CLI.hpp libcli11-dev
header nlohmann/json.hpp nlohmann-json3-dev
'
needs_mpi="
module ompi-c libopenmpi-dev
command mpirun openmpi-bin
"
# The tests use an MPI that is there, CI each.
wants_mpi_tests="$needs_mpi
module mpich libmpich-dev
command mpirun.mpich mpich
"
# Of tests/compilers/run: newer compilers than the one that the tests are built with.
wants_compilers='
command clang++-19 clang-19
command clang++-22 clang-22
clang_fuzzer 19 libclang-rt-19-dev
clang_fuzzer 22 libclang-rt-22-dev
'
# Of tests/aarch64/run: a cross compiler, and an emulator of its programs.
needs_aarch64='
command aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
command qemu-aarch64-static qemu-user-static
'
needs_plot='command gnuplot gnuplot-nox'
# Of the site made of docs/; what it is made with comes from PyPI.
needs_site='
command python3 python3
python_module ensurepip python3-venv
command doxygen doxygen
'
needs_ci="$needs_tests
$needs_train_gpt
$needs_plot
command clang++ clang
command ld.lld lld
command clang-format-14 clang-format-14
command clang-tidy-14 clang-tidy-14
clang_runtime libclang_rt.asan libclang-rt-14-dev
"

say() { printf '%s\n' "$*" >&2; }

is_there() {  # kind name
    case $1 in
        command) command -v "$2" >/dev/null ;;
        header) command -v c++ >/dev/null && echo "#include <$2>" | c++ -std=c++20 -E -x c++ - >/dev/null 2>&1 ;;
        module) command -v pkg-config >/dev/null && pkg-config --exists "$2" ;;
        python_module) command -v python3 >/dev/null && python3 -c "import $2" 2>/dev/null ;;
        clang_runtime) command -v clang++ >/dev/null && [ -e "$(clang++ -print-runtime-dir)/$2-$(uname -m).so" ] ;;
        clang_fuzzer) [ -e "$("clang++-$2" -print-resource-dir 2>/dev/null)/lib/linux/libclang_rt.fuzzer-$(uname -m).a" ] ;;
    esac
}

# Prints "package (what it brings)" for each line of $1 that is not there.
missing_of() {
    local kind name package
    while read -r kind name package; do
        [ -n "$kind" ] || continue
        is_there "$kind" "$name" || printf '%s %s\n' "$package" "$kind $name"
    done <<<"$1" | sort -u
}

# Makes sure that everything in the list $1 is there; installs it where that is possible, else says what is
# missing and exits 1.
need() {
    local missing packages reason
    missing=$(missing_of "$1")
    [ -n "$missing" ] || return 0
    packages=$(awk '{print $1}' <<<"$missing" | sort -u | tr '\n' ' ')
    if ! command -v apt-get >/dev/null; then
        reason='this system has no apt-get'
    elif [ "$(id -u)" -ne 0 ]; then
        reason='only root can install packages'
    else
        say "installing: $packages"
        reason=$(install_packages "$packages") && reason='apt-get installed them, yet they are not found'
        missing=$(missing_of "$1")
        [ -n "$missing" ] || return 0
    fi
    say "missing, and not installed because $reason:"
    while read -r package kind name; do
        case $kind in
            command) say "  $package (the command $name)" ;;
            header) say "  $package (the header <$name>)" ;;
            module) say "  $package (the pkg-config module $name)" ;;
            *) say "  $package" ;;
        esac
    done <<<"$missing"
    packages=$(awk '{print $1}' <<<"$missing" | sort -u | tr '\n' ' ')
    say "On Debian, as root: apt-get install ${packages% }"
    exit 1
}

# The same for what the tests can do without.
want() {
    (need "$1") || say 'going on without'
}

# Quiet when it works, but for how long it takes; else prints why not.
install_packages() {
    local log
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    get() {
        (set -o pipefail && apt-get -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" 2>&1 </dev/null |
            say_steps "$say_every" installing >"$log")
    }
    # shellcheck disable=SC2086
    if get install -y --no-install-recommends $1 ||
        { get update && get install -y --no-install-recommends $1; }; then
        rm -f "$log"
        return 0
    fi
    printf 'apt-get failed:\n%s' "$(tail -n 15 "$log")"
    rm -f "$log"
    return 1
}

# configure FOLDER [meson options]: sets up a build folder; does nothing when it is there with these options.
configure() {
    local folder=$1 wanted log
    shift
    wanted="CXX=${CXX-} CXXFLAGS=${CXXFLAGS-} $*"
    # The tests of an MPI that is installed later need a folder that has found it.
    case " $* " in *' -Dmpi=enabled '*) wanted+=" without $(missing_of "$wants_mpi_tests")" ;; esac
    if [ -f "$folder/build.ninja" ] && [ "$(cat "$folder/.configured" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    say "configuring ${folder#"$root"/}"
    rm -rf "$folder"
    mkdir -p "$(dirname "$folder")"
    log=$folder.setup.log
    if ! meson setup "$folder" "$root" "$@" >"$log" 2>&1; then
        cat "$log" >&2
        return 1
    fi
    rm -f "$log"
    printf '%s' "$wanted" >"$folder/.configured"
}

# mpi_option LIST: what configure is given besides, by what is needed of MPI. A folder from before that was installed is
# so made anew, and finds it.
mpi_option() {
    if [ -z "$(missing_of "$1")" ]; then echo -Dmpi=enabled; else echo -Dmpi=auto; fi
}

# compile FOLDER [targets]: quiet where there is nothing to do; else says on standard error how far it is.
compile() {
    local folder=$1 log begin=$SECONDS
    shift
    log=$folder/build.log
    if ninja -C "$folder" -n "$@" 2>/dev/null | grep -q 'ninja: no work to do'; then return 0; fi
    local what=${*:-everything}
    if [ $# -gt 3 ]; then what="$# programs and libraries"; fi
    say "building $what in ${folder#"$root"/}; the first time this takes minutes"
    if [ -t 2 ]; then
        # ninja's one moving line, for people who wait
        ninja -C "$folder" "$@" >&2 || return 1
    elif ! (set -o pipefail && ninja -C "$folder" "$@" 2>&1 | say_steps "$say_every" configuring >"$log"); then
        grep -v '^\[[0-9]*/[0-9]*\] \(Compiling\|Linking\|Generating\)' "$log" | head -n 200 >&2
        return 1
    fi
    say "built in $(minutes $((SECONDS - begin)))"
}

# say_steps N FIRST: passes lines on, and says every N seconds how far ninja is by its lines, FIRST until there is one.
say_steps() {
    local line step=$2 begin=$SECONDS said=$SECONDS
    while true; do
        if IFS= read -r -t "$1" line; then
            printf '%s\n' "$line"
            if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then step="step ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"; fi
        elif [ $? -le 128 ]; then
            return 0
        fi
        if ((SECONDS - said >= $1)); then
            say "  $step, $(minutes $((SECONDS - begin)))"
            said=$SECONDS
        fi
    done
}

minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# test_folder FOLDER [suite or test name ...]: builds what these tests need, runs them and prints the closing line.
test_folder() {
    local folder=$1 targets
    shift
    # The build files themselves must be up to date to know which tests there are.
    if ! compile "$folder" build.ninja; then
        say "the build files in $folder could not be made anew"
        echo '0 passed, 1 failed'
        return 1
    fi
    targets=$(python3 -B "$root/tests/run_tests.py" --targets "$folder" "$@") || return 1
    # shellcheck disable=SC2086
    if [ -n "$targets" ] && ! compile "$folder" $targets; then
        say "the build in $folder failed"
        echo '0 passed, 1 failed'
        return 1
    fi
    python3 -B "$root/tests/run_tests.py" "$folder" "$@"
}

# check_bits FOLDER COMMAND ...: compiles the core and the trainer of tests/compiled with a compiler, and compares what they
# print with the table that all compilers share. FOLDER/emulated, where there is one, runs it.
check_bits() {
    local out=$1 part objects=()
    shift
    for part in compiled compiled_{checkpoint,states,parts,schedule,reshard}; do
        echo "#include <shardkit/$part.hpp>" >"$out/$part.cpp"
        "$@" -ffp-contract=off -c "$out/$part.cpp" -o "$out/$part.o" || return 1
        objects+=("$out/$part.o")
    done
    "$@" -DSHARDKIT_COMPILED "$root/tests/compiled/trainer.cpp" "${objects[@]}" -pthread -o "$out/trainer" || return 1
    local trainer=$out/trainer
    if [ -e "$out/emulated" ]; then trainer=$out/emulated; fi
    python3 -B "$root/tests/compiled/check_bits.py" "$root/tests/golden/compiled_form.txt" threads "$trainer"
}
