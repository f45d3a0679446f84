"""docs/migrating_settings.md has a row for every setting of the installed torch, and no row for anything else."""

from __future__ import annotations

import importlib
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch

import pyframe
from inductor.torch_options import ALWAYS, TRANSLATED

PAGE = (Path(__file__).parents[2] / "docs" / "migrating_settings.md").read_text()
MODULES = re.findall(r"^## Settings of ([\w.]+)$", PAGE, re.M)
# Names that only some of the supported releases have.
SOME_RELEASES = {
    "torch._dynamo.config": {"_dynamic_shapes_spec", "static_sources", "skip_fsdp_hooks", "computed_lazy_constant_max_nodes",
                              "gc_gen2_threshold_during_compile", "canonicalize_output_graph_node_order"},
    "torch.compiler.config": {"static_sources", "compile_on_one_rank", "gc_gen2_threshold_during_compile"},
    "torch._inductor.config": {
        "numerics", "force_same_precision", "bmm_shared_a", "_partitioned_scatter_default", "flydsl_*", "max_template_*",
        "strict_signed_zero", "decompose_shard_dim_alltoall",
    },
}  # fmt: skip


def rows(module):
    """(name or pattern, what it is here), in order."""
    section = PAGE.split(f"## Settings of {module}\n")[1].split("\n## ")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]
    return [(name.strip("`"), here) for names, here, _ in cells for name in names.split(", ")]


def settings(module):
    config = importlib.import_module(module)._config
    return [name for name in config if name not in ("TYPE_CHECKING", "_save_config_ignore")]


def first(module, name):
    """The first row that fits a setting, None if there is none."""
    return next((row for row in rows(module) if fnmatchcase(name, row[0])), None)


@pytest.mark.parametrize("module", MODULES)
def test_every_setting_has_a_row(module):
    assert settings(module)
    assert [name for name in settings(module) if first(module, name) is None] == []


@pytest.mark.parametrize("module", MODULES)
def test_every_row_is_the_first_that_fits_some_setting(module):
    used = {first(module, name)[0] for name in settings(module)}
    idle = {name for name, _ in rows(module)} - used
    if torch.__version__.startswith("2.13"):
        idle -= SOME_RELEASES.get(module, set())
        assert idle == set()


def test_options_are_accepted_as_the_page_says():
    module = "torch._inductor.config"
    for name in TRANSLATED:
        assert first(module, name)[1].startswith(("`mode", "`options"))
    for name, values in ALWAYS.items():
        here = first(module, name)[1]
        assert here in (("always", "not needed") if True in values else ("always", "missing"))


def test_what_to_use_instead_exists():
    for path in set(re.findall(r"`pyframe((?:\.\w+)+)", PAGE)):
        value = pyframe
        for name in path.split(".")[1:]:
            value = getattr(value, name)
