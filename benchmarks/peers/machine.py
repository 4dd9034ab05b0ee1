# SPDX-License-Identifier: Apache-2.0
"""Where and when a result was measured, as the other benchmarks record it."""
import os
import platform
import re
import shutil
import subprocess
import time


def processor_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "unknown"


def sysconf(name):
    try:
        return max(0, os.sysconf(name))
    except (ValueError, OSError):
        return 0


def read_machine():
    return {"processor": processor_model(), "processors": len(os.sched_getaffinity(0)),
            "last_cache_bytes": last_cache(), "memory_bytes": sysconf("SC_PHYS_PAGES") * sysconf("SC_PAGESIZE"),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "load_before": os.getloadavg()[0]}


def last_cache():
    """As the C library tells it; Python has no name for it."""
    text = first_line(["getconf", "LEVEL3_CACHE_SIZE"])
    return int(text) if text and text.isdigit() else 0


def library_version(root):
    """As the build names it."""
    found = re.search(r"^  version: '([^']*)',$", (root / "meson.build").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else "unknown"


def library_commit():
    """Of the tree, as benchmarks/run says it."""
    return os.environ.get("SHARDKIT_COMMIT") or "unknown"


def utc_date():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def first_line(command):
    """What a program prints first, or None where it is not there."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=60, check=False)
    lines = done.stdout.decode(errors="replace").splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None
