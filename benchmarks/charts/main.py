# SPDX-License-Identifier: Apache-2.0
"""The picture of a result, for --plot of the benchmark programs. Standard input: {"picture": name of a .svg or .png,
"peers": name of a file or "", "draws": whether to draw, or only to look at the peers, "result": what --json writes, or
for the look its rows without figures}. Standard output: the picture or nothing; with exit code 2 what was expected in
place of the peers' file, with 1 what failed."""
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "common"))
from collectives_charts import bandwidth_chart  # noqa: E402
from gnuplot import NoGnuplot, draw  # noqa: E402
from peer_times import BadPeers, read_peer_times  # noqa: E402
from policies_charts import predicted_chart, step_chart  # noqa: E402


def chart_of(result, peers):
    if result["benchmark"] == "collectives":
        return bandwidth_chart(result, result["rows"], peers)[1]
    return (step_chart if result["rows"] else predicted_chart)(result)[1]


def main():
    asked = json.load(sys.stdin)
    result = asked["result"]
    try:
        peers = read_peer_times(asked["peers"], result) if asked["peers"] else []
        if asked["draws"]:
            picture = draw({"": chart_of(result, peers)}, pathlib.Path(asked["picture"]).suffix[1:])[""]
            sys.stdout.buffer.write(picture)
    except (BadPeers, NoGnuplot) as error:
        print(error, end="")
        return 2 if isinstance(error, BadPeers) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
