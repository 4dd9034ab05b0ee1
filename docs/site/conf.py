# SPDX-License-Identifier: Apache-2.0
"""Sphinx's configuration; docs/site/generate.py lays out the pages beside a copy of this file."""
import json
import pathlib

here = pathlib.Path(__file__).parent
facts = json.loads((here / "facts.json").read_text(encoding="utf-8"))

project = "shardkit"
author = "The shardkit authors"
project_copyright = author
version = release = facts["version"]
extensions = ["myst_parser", "breathe"]
root_doc = "docs/README"
exclude_patterns = ["xml"]
myst_heading_anchors = 4
primary_domain = "cpp"
highlight_language = "text"
breathe_projects = {room: str(here / folder) for room, folder in facts["rooms"].items()}
html_theme = "furo"
html_title = f"shardkit {version}"
html_show_sourcelink = False
html_copy_source = False
