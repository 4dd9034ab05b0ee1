# Sourced by what is built with nvcc: where NCCL is. `nvcc` names the compiler.
# shellcheck shell=bash

# The folder above NCCL's include/ and lib/: NCCL_HOME, the toolkit, the system, or the wheel that PyTorch brings.
nccl_home() {
    local folder
    for folder in "${NCCL_HOME:-}" "$(dirname "$(dirname "$nvcc")")" /usr/local /usr \
        "$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null)"; do
        if [ -n "$folder" ] && [ -e "$folder/include/nccl.h" ]; then echo "$folder" && return; fi
    done
}

# What links with it, one a line.
nccl_libraries() {
    local home
    home=$(nccl_home)
    printf '%s\n' "-L$home/lib" "-Xlinker=-rpath,$home/lib"
    if [ -e "$home/lib/libnccl.so" ]; then echo -lnccl; else echo -l:libnccl.so.2; fi
}
