"""The table of many models: its shards, its loss, and what it counts, without running any compiler."""

import json
from dataclasses import asdict

import pytest
import torch

from benchmarks import many_models
from benchmarks.many_models import Model, WithLoss
from benchmarks.zoo import Row


class Structured(torch.nn.Module):
    def forward(self, x):
        return {"last": x * 2, "states": (x, [x.long()]), "count": 3}


class Labelled(torch.nn.Module):
    def forward(self, x):
        return {"loss": x.sum(), "logits": x}


def row(name, pyframe, peer, times=None, status="timed"):
    right = {"pyframe": pyframe, "torch.compile": peer} if pyframe else {}
    times = dict(zip(("eager", "torch.compile", "pyframe"), times or (), strict=False))
    first = {"pyframe": 1.0, "torch.compile": 8.0}
    return Row(Model(name, 1, "infer", True), status, right=right, first=first, time=times, wall=times)


def test_the_loss_of_a_model():
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    assert WithLoss(Labelled())(x=x).item() == 4.0
    assert WithLoss(Structured())(x=x).item() == pytest.approx(4 * 5.0 + 5.0)  # integers have no part in it


def test_shards_are_all_models_once():
    whole = many_models.selected(False, [], (0, 1))
    parts = [case for k in range(4) for case in many_models.selected(False, [], (k, 4))]
    assert {c.title for c in parts} == {c.title for c in whole} and len(parts) == len(whole) > 0


def test_what_is_counted(tmp_path):
    rows = [
        row("hf/a", "right", "right", (4.0, 2.0, 1.0)),
        row("hf/b", "right", "wrong", (4.0, 2.0, 1.0)),
        row("hf/c", "error", "right"),
        row("hf/d", None, None, status="error"),  # which eager does not run either
        row("hf/e", "right", "right", (1.0, 1.0, 1.0)),
    ]
    for k in range(2):
        (tmp_path / str(k)).mkdir()
        known = {"machine": {"gpu": "none"}, "measured": [asdict(r) for r in rows[k::2]]}
        (tmp_path / str(k) / "many_models_cpu_inference.json").write_text(json.dumps(known))
    parts = [str(tmp_path / str(k)) for k in range(2)]
    many_models.main(["--device", "cpu", "--join", *parts, "--output", str(tmp_path)])
    said = json.loads((tmp_path / "many_models_cpu_inference.json").read_text())["summary"]
    assert said[:3] == [
        "5 models, of which 4 ran in eager and within the time",
        "pyframe runs 3 of 4",
        "torch.compile runs 3 of 4",
    ]
    assert "eager / pyframe, time: geometric mean 2.00 of 2, 0 more than 2 % slower" in said
    assert "first calls, torch.compile / pyframe: geometric mean 8.00" in said
    assert "not right with pyframe: hf/c: error" in said and "not right with torch.compile: hf/b: wrong" in said
