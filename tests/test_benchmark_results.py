"""The results that benchmarks write and that are committed."""

from __future__ import annotations

import pytest

from benchmarks.harness import RESULTS, command_line


@pytest.mark.parametrize("output", [["--output", "/tmp/out"], ["--output=/tmp/out"], []])
def test_the_folder_of_the_results_is_not_in_their_header(output):
    command = command_line("benchmarks.zoo", ["--train", *output, "--only", "BERT"])
    assert command == "python -m benchmarks.zoo --train --only BERT"


def test_no_committed_header_names_a_folder():
    heads = {path.name: path.read_text().split("\n", 1)[0] for path in RESULTS.glob("*.txt")}
    assert [name for name, head in heads.items() if "--output" in head] == []
