"""A share of `benchmarks.accuracy`: small models in training, compared with a wider dtype; and what the suite can see."""


import pytest
import torch

from benchmarks import accuracy_compare, accuracy_jobs
from benchmarks.accuracy_compare import Job, compare, run_job

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
QUICK = [
    ("conv2d_depthwise_strided", "autocast"), ("layer_norm_channels_channels_last", "bfloat16"),
    ("adaptive_avg_pool_channels_last", "float32"), ("batch_norm2d_average", "float32"),
    ("attention_padding", "float32"), ("attention_lower_float", "autocast"), ("tied", "float32"),
    ("loss_cross_entropy_ignored_class", "float32"), ("frozen", "float32"), ("running_buffer", "float32"),
    ("detached", "float32"), ("dropout", "float32"),
]  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name, dtype", QUICK)
def test_block(name, dtype, device):
    found = run_job(Job(f"block/{name}", device, dtype, "train"), accuracy_jobs.make(f"block/{name}"), "pyframe")
    expected = "not for this setting" if name == "dropout" and device == "cuda" else "right"
    assert found["status"] == expected, found
    assert expected != "right" or found["graphs"] >= 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["convnext_linear", "convnext_conv", "convnext_channels_last", "inverted_residual"])
def test_image_block_under_autocast(name):
    found = run_job(Job(f"block/{name}", "cuda", "autocast", "train"), accuracy_jobs.make(f"block/{name}"), "pyframe")
    assert found["status"] == "right", found


def test_what_is_wrong_is_seen():
    want = {"call 0: output": torch.randn(50), "call 0: gradient w": torch.randn(4, 5)}
    exact = {name: value.double() + 1e-8 for name, value in want.items()}

    def judged(**changed):
        return compare({**want, **changed}, [(want, exact)], "float32")["status"]

    assert judged() == "right"
    assert judged(**{"call 0: gradient w": want["call 0: gradient w"] * (1 + 1e-6)}) == "right"
    assert judged(**{"call 0: gradient w": torch.zeros(4, 5)}) == "wrong"
    assert judged(**{"call 0: gradient w": "None"}) == "wrong"
    assert judged(**{"call 0: output": want["call 0: output"].double()}) == "wrong"
    one_off = want["call 0: output"].clone()
    one_off[7] += 1e-3
    assert judged(**{"call 0: output": one_off}) == "wrong"
    one_off[7] = float("nan")
    assert judged(**{"call 0: output": one_off}) == "wrong"


def test_an_error_of_eager_is_no_error_of_ours():
    want = {"call 0: gradient w": torch.zeros(50)}
    exact = {"call 0: gradient w": torch.randn(50, dtype=torch.float64)}
    found = compare({"call 0: gradient w": exact["call 0: gradient w"].float()}, [(want, exact)], "float32")
    assert found["status"] == "eager wrong" and "gradient w" in found["detail"]
    assert compare(want, [(want, exact)], "float32")["status"] == "right"  # what eager gives is never called wrong
    assert compare({"call 0: gradient w": torch.full((50,), 9.0)}, [(want, exact)], "float32")["status"] == "wrong"


def test_eager_is_measured_against_the_reference_for_its_own_parameters():
    """Parameters that differ change results by far more than rounding does; that does not excuse an error of ours."""
    exact = torch.randn(50, dtype=torch.float64)
    first = {"call 0: output": exact.float()}, {"call 0: output": exact}
    nearby = {"call 0: output": (2 * exact).float()}, {"call 0: output": 2 * exact}
    ours = {"call 0: output": (exact * (1 + 1e-3)).float()}
    ours_nearby = [{"call 0: output": (2 * exact * (1 + 1e-3)).float()}]
    assert compare(ours, [first, nearby], "float32", ours_nearby)["status"] == "wrong"
    noisy = {"call 0: output": (2 * exact * (1 + 1e-3 * torch.randn(50))).float()}, {"call 0: output": 2 * exact}
    assert compare(ours, [first, noisy], "float32", ours_nearby)["status"] == "right"
    assert compare(ours, [first, noisy], "float32")["status"] == "wrong"  # luck of eager's elsewhere is no excuse


def test_an_error_at_one_point_is_judged_by_the_median_of_several():
    """A mask that rounding flips at the first parameters alone is no defect; an error at all of them is one."""
    exact = [torch.randn(50, dtype=torch.float64) for _ in range(6)]
    runs = [({"call 0: output": x.float()}, {"call 0: output": x}) for x in exact]
    flipped = exact[0].clone()
    flipped[3] += 1
    near = [{"call 0: output": x.float()} for x in exact[1:]]
    off = [{"call 0: output": (x * (1 + 1e-3)).float()} for x in exact[1:]]
    ours = {"call 0: output": flipped.float()}
    assert compare(ours, runs, "float32")["status"] == "wrong"
    found = compare(ours, runs, "float32", near)
    assert found["status"] == "right" and "1 of 1 judged by medians" in found["detail"]
    assert compare(ours, runs, "float32", off)["status"] == "wrong"


def test_numbers_near_the_largest_may_overflow():
    big = torch.finfo(torch.bfloat16).max
    exact = torch.tensor([0.94, -1.2, 0.1, 1e-6]) * big
    eager = torch.tensor([0.8, -float("inf"), 0.05, 0.0]).mul(big).nan_to_num(0.0, neginf=-float("inf")).bfloat16()

    def judged(*values):
        ours = torch.tensor(values, dtype=torch.float64).mul(big).bfloat16()
        name = "call 0: gradient of input mask"
        return compare({name: ours}, [({name: eager}, {name: exact})], "bfloat16")["status"]

    inf = float("inf")
    assert judged(0.94, -inf, 0.1, 0) == "right"
    assert judged(inf, -inf, 0.1, 0) == "right"
    assert judged(inf, -inf, inf, 0) == "wrong"
    assert judged(0.94, inf, 0.1, 0) == "wrong"
    assert judged(0.94, -inf, float("nan"), 0) == "wrong"


def test_the_gradient_of_a_mask_is_no_measure_for_parameters():
    want = {"call 0: gradient w": torch.randn(50), "call 0: gradient of input mask": torch.randn(4) * 1e37}
    exact = {name: value.double() for name, value in want.items()}
    assert compare({**want, "call 0: gradient w": torch.zeros(50)}, [(want, exact)], "float32")["status"] == "wrong"


def test_a_model_with_dropout_has_a_reference_that_takes_eagers_draws():
    job = Job("block/dropout", "cpu", "bfloat16", "train")
    case = accuracy_jobs.make(job.model)
    setting = accuracy_compare.prepared(job, case, keep_dropout=True)
    with accuracy_compare.Recorded() as recorded:
        want, _ = accuracy_compare.run(setting, setting.model)
    reference, note = accuracy_compare.reference_of(job, case, draws=False, recorded=recorded)
    assert not note
    for name, value in want.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value.float(), reference[name], rtol=0.1, atol=0.1)
    assert any((value == 0).any() for name, value in want.items() if "output" in name and isinstance(value, torch.Tensor))


def test_the_reference_for_disturbed_parameters_is_of_the_same_parameters():
    job = Job("block/none", "cpu", "float32", "infer")

    def case():
        torch.manual_seed(0)
        return torch.nn.Linear(64, 64), {"input": torch.randn(2, 64)}

    plain, _ = accuracy_compare.reference_of(job, case, draws=False)
    for eager, reference in accuracy_compare._disturbed(job, case, draws=False):
        name = "call 0: output"
        assert not torch.equal(reference[name], plain[name])
        torch.testing.assert_close(eager[name].double(), reference[name], rtol=1e-5, atol=1e-6)


def test_a_model_that_eager_cannot_run_is_no_success():
    def case():
        return torch.nn.Linear(3, 3), {"input": torch.randn(2, 4)}

    assert run_job(Job("block/none", "cpu", "float32", "train"), case, "pyframe")["status"] == "eager failed"
    assert accuracy_compare.TOLERANCES["float32"] <= 1e-5
