# SPDX-License-Identifier: Apache-2.0
"""check_update_times.py PROGRAM PAGE: the program times what the table of the page has rows for."""
import pathlib
import re
import subprocess
import sys

program, page = sys.argv[1:]
done = subprocess.run([program, "4096", "1"], stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout
timed = [found[1] for found in re.finditer(r"^(.+?) +\d+\.\d\d ns, from +\d+\.\d\d to +\d+\.\d\d$", done, re.MULTILINE)]
text = pathlib.Path(page).read_text(encoding="utf-8").split("## What an update takes on the host\n")[1]
shown = re.findall(r"^\| ([^|]+) \| \d+\.\d\d \| \d+\.\d\d \| \d+\.\d\d \|$", text, re.MULTILINE)
if timed != shown or len(timed) != len(done.splitlines()):
    sys.exit(f"{page} has times of {shown}, and the program prints\n{done}")
