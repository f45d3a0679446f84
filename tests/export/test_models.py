"""Whole models as programs: tiny ones of transformers and timm, with sizes that vary, and in training."""

import pytest
import torch
from export_checks import check

import pyframe
from benchmarks.capture_models import CASES

NAMES = (
    "hf/bert", "hf/bert_train", "hf/gpt2", "hf/llama", "hf/t5", "timm/mobilenetv3", "timm/deit_tiny",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_models(name, tmp_path):
    pytest.importorskip("timm" if name.startswith("timm") else "transformers")
    model, inputs = CASES[name]()
    exported = check(model, path=tmp_path / "p", **inputs)
    assert set(model.state_dict()) <= set(exported.constants)


@pytest.mark.parametrize("name", ["hf/bert", "hf/llama"])
def test_batch_and_length_vary(name):
    pytest.importorskip("transformers")
    model, inputs = CASES[name]()
    ids = next(value for value in inputs.values() if isinstance(value, torch.Tensor))
    name = next(iter(inputs))
    rest = {key: value for key, value in inputs.items() if not isinstance(value, torch.Tensor)}
    ids = torch.randint(3, 60, (3, 10))
    exported = pyframe.export(model)(**{name: ids}, **rest, dynamic={name: (True, True)})
    assert {each.text for each in exported.conditions} >= {f"{name}.size(0) >= 2", f"{name}.size(1) >= 2"}
    for size in ((3, 10), (5, 7), (2, 12)):
        comparison = exported.check(**{name: torch.randint(3, 60, size)}, **rest)
        assert comparison.equal, str(comparison)
