"""Settings of Sphinx for the documentation site: `make docs` writes it to build/docs.

The pages are Markdown that GitHub shows, too. Nothing in the site comes from another server.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # autodoc imports the packages

project = "pyframe"
extensions = ["myst_parser", "sphinx.ext.autodoc"]

html_theme = "furo"
html_title = "pyframe"
html_static_path: list[str] = []
html_copy_source = False
html_show_sourcelink = False

myst_heading_anchors = 3

# The docstrings are plain text in which `name` is code.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
add_module_names = False
python_maximum_signature_line_length = 100

_PAGE = re.compile(r"`docs/(\w+\.md|decisions/)`")
_FIELD = re.compile(r"^(\w+): ")
_HIDDEN_LIST = "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"


def prepare_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Turn the names of other pages, such as `docs/limitations.md`, into links. `source` has one item, the page."""
    up = "../" * docname.count("/")
    source[0] = _PAGE.sub(lambda found: _link(up, found[1]), source[0])
    if docname == "decisions/README":
        source[0] += _HIDDEN_LIST


def _link(up: str, page: str) -> str:
    target = "decisions/README.md" if page == "decisions/" else page
    return f"[`docs/{page}`]({up}{target})"


def prepare_docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Mark up what a plain docstring shows by its layout: indented programs, and lists of lines `name: meaning`."""
    marked: list[str] = []
    for paragraph in re.split(r"\n\n(?! )", "\n".join(lines).strip("\n")):
        rows = paragraph.split("\n")
        if all(_FIELD.match(row) or row.startswith("    ") for row in rows) and len(rows) > 2:
            marked += [_FIELD.sub(r"- `\1`: ", row) for row in rows]
        else:
            marked += re.sub(r"\n\n(?=    )", "\n\n.. code-block:: python\n\n", paragraph, count=1).split("\n")
        marked.append("")
    lines[:] = marked


def setup(app: Sphinx) -> None:
    app.connect("source-read", prepare_page)
    app.connect("autodoc-process-docstring", prepare_docstring)
