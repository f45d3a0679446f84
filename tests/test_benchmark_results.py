"""The results that benchmarks write and that are committed."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from benchmarks import plots
from benchmarks.harness import RESULTS, command_line


def bars_of(name):
    source, make = plots.PLOTS[name]
    return make(json.loads((RESULTS / f"{source}.json").read_text()))


def texts_of(path):
    return [element.text for element in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def labels_of(bars):
    for system, values in bars.values.items():
        yield from bars.labels.get(system) or [f"{value:.2f}" for value in values if value is not None]


@pytest.mark.parametrize("output", [["--output", "/tmp/out"], ["--output=/tmp/out"], []])
def test_the_folder_of_the_results_is_not_in_their_header(output):
    command = command_line("benchmarks.zoo", ["--train", *output, "--only", "BERT"])
    assert command == "python -m benchmarks.zoo --train --only BERT"


def test_no_committed_header_names_a_folder():
    heads = {path.name: path.read_text().split("\n", 1)[0] for path in RESULTS.glob("*.txt")}
    assert [name for name, head in heads.items() if "--output" in head] == []


@pytest.mark.parametrize("name", plots.PLOTS)
def test_committed_plots_show_the_committed_results(name):
    """Run `python -m benchmarks.plots` after new results."""
    bars, texts = bars_of(name), texts_of(RESULTS / f"{name}.svg")
    assert bars.groups and all(len(values) == len(bars.groups) for values in bars.values.values())
    for text in (*bars.groups, *labels_of(bars)):
        texts.remove(text)  # each bar has its own
    assert (RESULTS / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_bars_are_relative_to_eager_and_have_its_time():
    rows = [{"model": "a", "eager ms": 2.0, "torch.compile ms": 1.0, "pyframe ms": 0.5},
            {"model": "b", "eager ms": 4.0, "torch.compile ms": "-", "pyframe ms": 1.0},
            {"model": "c", "eager ms": "-", "torch.compile ms": "-", "pyframe ms": "-"}]  # fmt: skip
    bars = plots.over_eager("Zoo", {"rows": rows, "machine": {"gpu": "H200", "torch": "2.11"}}, "model", "ms")
    assert list(bars.groups) == ["a", "b"] and bars.labels == {"eager": ["2 ms", "4 ms"]}
    assert bars.values == {"eager": [1, 1], "torch.compile": [0.5, None], "pyframe": [0.25, 0.25]}


def test_plots_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    assert plots.main(["--only", "call_overhead", "--output", str(tmp_path)]) == 0
    assert set(labels_of(bars_of("call_overhead"))) <= set(texts_of(tmp_path / "call_overhead.svg"))
    assert (tmp_path / "call_overhead.png").stat().st_size > 1000
