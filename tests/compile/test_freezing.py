"""`options={"freezing": True}`: constants computed once, and again whenever a parameter or buffer has changed."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import pyframe
from inductor import compile_fx
from inductor.artifact import Artifact
from inductor.cache import graph_store
from inductor.extension import _C
from inductor.passes import onednn
from inductor.runtime import fold
from inductor.runtime.plan_spec import Extern

OPTIONS = {"strict": True, "freezing": True, "cache": False}
torch.manual_seed(0)


class Net(nn.Module):
    """Convolutions with batch norms, a residual, and linear layers with an activation and with tied weights."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv, self.norm2 = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.grow, self.back = nn.Linear(16, 64), nn.Linear(64, 16)
        self.register_buffer("table", torch.randn(16))
        for norm in (self.norm, self.norm2):
            norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = F.relu(self.norm(self.stem(x)))
        y = F.relu(self.norm2(self.conv(y)) + y).mean((2, 3))
        y = self.back(F.gelu(self.grow(y))) + self.table.exp() * 2
        return y @ self.grow.weight.t()


@pytest.fixture(autouse=True)
def small_products(monkeypatch):
    monkeypatch.setattr(onednn, "mkl_lacks_avx512", lambda: True)
    monkeypatch.setattr(onednn, "LEAST_WORK", 1)


@pytest.fixture
def folds(monkeypatch):
    """The number of times that constants are computed."""
    count, run = [], fold.Fold.run

    def counted(self, given):
        count.append(1)
        return run(self, given)

    monkeypatch.setattr(fold.Fold, "run", counted)
    return count


def agree(fast, net, batch=4, tolerance=1e-4):
    x = torch.randn(batch, 3, 8, 8, dtype=net.table.dtype)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x), rtol=tolerance, atol=tolerance)


def test_constants_are_computed_once(folds):
    net = Net().eval()
    fast = pyframe.compile(net, options=OPTIONS)
    for _ in range(3):
        agree(fast, net)
    assert len(folds) == 1


def test_batch_norms_and_constants_leave_the_graph():
    net = Net().eval()
    with torch.no_grad():
        gm = fx.symbolic_trace(net)
        report = compile_and_report(gm, torch.randn(4, 3, 8, 8))
    (artifact,) = report
    called = [step.target for step in artifact.fold.steps]
    assert "mkldnn._reorder_convolution_weight.default" in called and "mkldnn._reorder_linear_weight.default" in called
    assert "aten.rsqrt.default" in called
    assert len(artifact.spec.kernel_names) == 3  # the layout of the image, the mean, and the sum with the table
    extern = [step.target for step in artifact.spec.steps if isinstance(step, Extern)]
    assert [name.split(".")[1] for name in extern] == ["_convolution_pointwise"] * 2 + ["_linear_pointwise"] * 3
    assert not artifact.spec.constants


def compile_and_report(gm, *args):
    from inductor.compile_report import keeping_artifacts

    with keeping_artifacts():
        compile_fx(gm, args, options=OPTIONS)(*args)
    return gm.meta["compile_report"].artifacts


def test_no_values_are_kept_on_disk():
    net = nn.Linear(8, 8).requires_grad_(False)
    net.weight.fill_(1234.5)
    (artifact,) = compile_and_report(fx.symbolic_trace(net), torch.randn(4, 8))
    data = graph_store.dump(artifact)
    assert graph_store.load(data, Artifact).fold == artifact.fold is not None
    assert net.weight[0, :1].numpy().tobytes() * 2 not in data


def ema(net, other):
    for mine, given in zip(net.parameters(), other.parameters()):
        mine.mul_(0.9).add_(given, alpha=0.1)


def train_a_step(net, fast):
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    with torch.enable_grad():
        fast(torch.randn(4, 3, 8, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    net.eval()


def train_statistics(net, fast):
    """Batch norms update their statistics without changing the version counters."""
    net.train()
    fast(torch.randn(4, 3, 8, 8))
    net.eval()


def replace_data(net, _):
    for _ in range(2):  # the second may be at the first one's address
        net.grow.weight.data = net.grow.weight.data * 1.5


CHANGES = {
    "in_place": lambda net, fast: net.stem.weight.mul_(2),
    "statistics": lambda net, fast: net.norm2.running_var.add_(1),
    "through_a_view": lambda net, fast: net.conv.weight[0].zero_(),
    "detached": lambda net, fast: net.grow.bias.detach().add_(1),
    "load_state_dict": lambda net, fast: net.load_state_dict(Net().state_dict()),
    "assigned_state_dict": lambda net, fast: net.load_state_dict(Net().state_dict(), assign=True),
    "new_parameter": lambda net, fast: setattr(net.back, "weight", nn.Parameter(torch.randn(16, 64))),
    "new_buffer": lambda net, fast: setattr(net, "table", torch.randn(16)),
    "new_module": lambda net, fast: setattr(net, "conv", Net().conv),
    "data": replace_data, "average": lambda net, fast: ema(net, Net()), "training": train_a_step,
    "training_of_statistics": train_statistics,
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CHANGES)
def test_changes_are_seen(name, dynamic):
    net = Net().eval()
    fast = pyframe.compile(net, dynamic=dynamic, options={**OPTIONS, "strict": False})
    agree(fast, net)
    with torch.no_grad():
        CHANGES[name](net, fast)
    agree(fast, net)
    agree(fast, net, batch=7)
    with torch.no_grad():
        CHANGES[name](net, fast)
    agree(fast, net)


def test_batches_of_all_sizes_share_constants(folds):
    net = Net().eval()
    fast = pyframe.compile(net, dynamic=True, options=OPTIONS)
    for batch in (4, 9, 6, 4):
        agree(fast, net, batch)
    assert len(folds) == 1


def test_calls_that_record_gradients_are_not_frozen(folds):
    net = Net().eval()
    fast = pyframe.compile(net, options=OPTIONS)
    x = torch.randn(4, 3, 8, 8)
    fast(x).sum().backward()
    got = net.stem.weight.grad.clone()
    net.zero_grad()
    net(x).sum().backward()
    torch.testing.assert_close(got, net.stem.weight.grad, rtol=1e-3, atol=1e-3)
    assert not folds


def test_parameters_that_always_change_are_not_folded_for_ever(folds):
    net = Net().eval()
    fast = pyframe.compile(net, options=OPTIONS)
    with torch.no_grad():
        for _ in range(2 * fold.MAX_WASTED):
            net.stem.weight.mul_(1.01)
            agree(fast, net)
    assert len(folds) == fold.MAX_WASTED + 1


def test_modules_that_share_a_compiled_graph(folds):
    layers = [nn.Linear(8, 8) for _ in range(5)]
    run = pyframe.compile(lambda layer, x: layer(x).relu(), options=OPTIONS)
    with torch.no_grad():
        for _ in range(3):
            for layer in layers:
                x = torch.randn(4, 8)
                torch.testing.assert_close(run(layer, x), layer(x).relu(), rtol=1e-5, atol=1e-5)
    assert len(folds) == 5


def test_constants_die_with_their_parameters():
    layer = nn.Linear(8, 8)
    call = compile_fx(fx.symbolic_trace(lambda x, w: F.linear(x, w)), (torch.randn(4, 8), layer.weight), options=OPTIONS)
    with torch.no_grad():
        call = compile_fx(
            fx.symbolic_trace(lambda x, w: F.linear(x, w)), (torch.randn(4, 8), layer.weight), options=OPTIONS
        )
        call(torch.randn(4, 8), layer.weight)
    assert len(call.folded.sets) == 1
    gone = weakref.ref(layer.weight)
    del layer
    gc.collect()
    assert gone() is None and not call.folded.sets


def test_inference_tensors_are_not_constants(folds):
    with torch.inference_mode():
        net = Net().eval()
        fast = pyframe.compile(net, options=OPTIONS)
        for _ in range(2):
            x = torch.randn(4, 3, 8, 8)
            torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-4)
            net.stem.weight.mul_(2)
    assert not folds


def test_results_are_never_the_constants_themselves():
    class Returns(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            doubled = self.w * 2
            return x @ doubled, doubled, self.w.t(), self.w

    net = Returns()
    fast = pyframe.compile(net, options=OPTIONS)
    x = torch.randn(4, 4)
    with torch.no_grad():
        for _ in range(2):
            got, want = fast(x), net(x)
            for a, b in zip(got, want):
                torch.testing.assert_close(a, b)
            got[1].zero_()
        assert got[3] is net.w and got[2].data_ptr() == net.w.data_ptr()


def test_random_numbers_and_written_buffers_are_not_constants():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(4))
            self.w = nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            self.calls += 1
            return x @ F.dropout(self.w.exp(), 0.5) + self.calls * 2

    net, other = Counts(), Counts()
    other.load_state_dict(net.state_dict())
    fast = pyframe.compile(net, options=OPTIONS)
    with torch.no_grad():
        results = [(fast(x), other(x)) for x in torch.ones(3, 4, 4)]
    assert net.calls.tolist() == [3.0] * 4
    assert not torch.equal(results[0][0], results[1][0] - 2)


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="needs a processor with bfloat16")
def test_bfloat16():
    net = Net().eval().bfloat16()
    fast = pyframe.compile(net, options=OPTIONS)
    agree(fast, net, tolerance=6e-2)
    with torch.no_grad():
        net.conv.weight.mul_(-1)
    agree(fast, net, tolerance=6e-2)


def test_autocast():
    net = Net().eval()
    fast = pyframe.compile(net, options=OPTIONS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        agree(fast, net, tolerance=6e-2)
    agree(fast, net)


def test_from_the_cache(tmp_path, monkeypatch, folds):
    options = {**OPTIONS, "cache": True}
    for _ in range(2):
        net = Net().eval()
        pyframe.reset()
        fast = pyframe.compile(net, options=options)
        agree(fast, net)
    assert pyframe.counters["cache_hits"] == 1 and len(folds) == 2


@pytest.mark.parametrize("value", [torch.channels_last, torch.contiguous_format, torch.strided, torch.bfloat16])
def test_arguments_of_operators_are_kept(value):
    assert graph_store.load(graph_store.dump([value]), list) == [value]


@pytest.mark.skipif(_C is None, reason="needs the C extension")
@pytest.mark.parametrize("change", ["none", "object", "version", "address", "contents"])
def test_the_comparison_in_c_agrees_with_the_reference(change):
    kept, buffer = nn.Parameter(torch.randn(3, 4)), torch.randn(5)
    given, constants = [kept, buffer], fold._Constants(fold.Fold((0, 1), (), ()), [kept, buffer], lambda _: None)
    with torch.no_grad():
        match change:
            case "object":
                given = [nn.Parameter(kept.data), buffer]
            case "version":
                kept.add_(0)
            case "address":
                kept.data = kept.data.clone()
            case "contents":
                buffer.data.add_(1)
    results = {check(given, constants.refs, constants.facts) for check in (_C.unchanged, fold._unchanged)}
    assert results == {change == "none"}
