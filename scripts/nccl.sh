# Sourced by what is built with nvcc: where NCCL is. `nvcc` names the compiler.
# shellcheck shell=bash disable=SC2034

# find_nccl: takes NCCL_HOME's, or the newest of those in the toolkit, in the system and in PyTorch's wheel. Sets
#   nccl_home     the folder above include/nccl.h, and nccl_version, what that says; both empty where there is none
#   nccl_flags    for the compilers, and nccl_libraries for the linker
find_nccl() {
    local folder header library version
    local -a places=("${NCCL_HOME:-}")
    if [ -z "${NCCL_HOME:-}" ]; then
        places=("$(dirname "$(dirname "$(readlink -f "$(command -v "$nvcc")")")")" /usr/local /usr
            "$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null || true)")
    fi
    nccl_home='' nccl_version='' nccl_flags=() nccl_libraries=()
    for folder in "${places[@]}"; do
        header=$folder/include/nccl.h
        library=$(nccl_library_of "$folder")
        if [ -z "$library" ] || [ ! -e "$header" ]; then continue; fi
        version=$(awk '/define NCCL_(MAJOR|MINOR|PATCH) / { printf "%s%s", dot, $3; dot = "." }' "$header")
        # Of equal ones the first.
        [ "$(printf '%s\n' "$nccl_version" "$version" | sort -V | tail -n 1)" != "$nccl_version" ] || continue
        nccl_home=$folder nccl_version=$version nccl_flags=()
        # The compilers look there themselves, and stumble when told to look there first.
        [ "$folder" = /usr ] || nccl_flags=(-isystem "$folder/include")
        nccl_libraries=(-L"$(dirname "$library")" "-Xlinker=-rpath,$(dirname "$library")" "-l:$(basename "$library")")
    done
}

nccl_library_of() {
    local library
    for library in "$1"/{lib,lib64,"lib/$(uname -m)-linux-gnu"}/libnccl.so{,.2}; do
        if [ -e "$library" ]; then echo "$library" && return; fi
    done
}

# For programs that were built on a machine where libraries need not be where they are here; behind find_nccl.
take_libraries_of_this_machine() {
    # shellcheck disable=SC2046
    LD_LIBRARY_PATH=$(printf '%s:' ${nccl_home:+"$(dirname "$(nccl_library_of "$nccl_home")")"} \
        $(python3 -c 'import glob, nvidia as n; print(*(f for p in n.__path__ for f in glob.glob(p + "/*/lib")))' 2>/dev/null) \
        "$(dirname "$(dirname "$(readlink -f "$(command -v "$nvcc" || echo /usr/local/cuda/bin/nvcc)")")")/lib64")${LD_LIBRARY_PATH-}
    export LD_LIBRARY_PATH
}

# For people: what find_nccl took, or what it looked for.
nccl_taken() {
    if [ -n "$nccl_home" ]; then
        echo "NCCL $nccl_version of $nccl_home"
    elif [ -n "${NCCL_HOME:-}" ]; then
        echo "no NCCL: expected include/nccl.h and lib/libnccl.so below NCCL_HOME=$NCCL_HOME"
    else
        echo "no NCCL: expected it in the toolkit, the system or PyTorch's wheel, or NCCL_HOME=the folder above include/"
    fi
}
