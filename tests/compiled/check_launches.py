# SPDX-License-Identifier: Apache-2.0
"""check_launches.py CORE OVER_NCCL: the lists of backend/nccl/compiled_kernels.hpp have every kernel that the core gives to
a device: the library CORE names the kernels that it looks up, and OVER_NCCL has what launches them."""
import re
import subprocess
import sys


def kernels(library, pattern):
    names = subprocess.run(["nm", "-C", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = set(re.findall(pattern, names, re.MULTILINE))
    if len(found) < 50:
        sys.exit(f"{library}: {len(found)} kernels found, expected about a hundred; is {pattern} still their name?")
    return found


def main():
    given = kernels(sys.argv[1], r" shardkit::engine::device_launch<(.*\S) ?>$")
    listed = kernels(sys.argv[2], r" shardkit::engine::DeviceLaunchOf<(.*\S) ?>::run\(")
    by_index = {kernel.replace("::ForEachIndex<", "::RunOnce<", 1) for kernel in listed}  # a host runs them whole
    lacking = sorted(given - listed - by_index)
    print(f"{len(given)} kernels of the core, {len(listed)} launches, {len(lacking)} lacking", *lacking, sep="\n")
    sys.exit(1 if lacking else 0)


if __name__ == "__main__":
    main()
