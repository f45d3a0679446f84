"""Recurrent layers: an LSTM on the CPU is one operator of oneDNN whose backward no graph can describe."""

import copy
import warnings

import pytest
import torch
from torch import nn

import inductor
import pyframe

torch.manual_seed(0)


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("grad", [True, False])
def test_results_and_gradients(make, grad):
    mine = make(4, 6, num_layers=2, batch_first=True)
    theirs, x = copy.deepcopy(mine), torch.randn(3, 5, 4)
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.simplefilter("error")
        got, want = pyframe.compile(mine)(x), theirs(x)
        torch.testing.assert_close(got, want)
        if grad:
            got[0].sum().backward(), want[0].sum().backward()
            torch.testing.assert_close([p.grad for p in mine.parameters()], [p.grad for p in theirs.parameters()])


def test_a_graph_with_an_lstm_that_is_trained_runs_eagerly():
    lstm, x = nn.LSTM(4, 6), torch.randn(3, 5, 4)
    graph = torch.fx.Graph()
    graph.output(graph.call_module("lstm", (graph.placeholder("x"),)))
    with pytest.warns(UserWarning, match="oneDNN"):
        call = inductor.compile_fx(torch.fx.GraphModule({"lstm": lstm}, graph), [x])
    call(x)[0].sum().backward()
    got = [p.grad.clone() for p in lstm.parameters()]
    lstm.zero_grad()
    lstm(x)[0].sum().backward()
    torch.testing.assert_close(got, [p.grad for p in lstm.parameters()])
