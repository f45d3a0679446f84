"""The models of `benchmarks.accuracy`, and the order in which they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec

from . import accuracy_training  # noqa: F401  registers its blocks
from .accuracy_blocks import BLOCKS
from .accuracy_compare import Job
from .capture_models import CASES, Case

# The groups of models, by the prefix of their names.
GROUPS = ("block", "hf", "timm", "hard")
NEEDS = {"hf": "transformers", "timm": "timm"}
ALL: dict[str, Case] = {**{f"block/{name}": case for name, case in BLOCKS.items()}, **CASES}
# One of each kind of architecture; with a time budget these run first.
DIVERSE = (
    "timm/convnext_atto", "hf/bert", "hf/distilbert", "hf/llama", "timm/resnet18", "timm/efficientnet", "hf/gpt2",
    "hf/convnext", "timm/mobilenetv3", "hf/mpnet", "hf/t5", "timm/vit_tiny", "hf/deberta_v2", "hf/swin",
    "timm/convmixer", "hf/electra", "hf/whisper", "hf/focalnet", "hf/mamba", "hf/mixtral", "timm/nfnet", "hf/xlnet",
    "hf/wav2vec2", "hf/segformer", "timm/poolformer", "hf/poolformer", "hf/clip", "timm/regnetx", "timm/densenet",
)  # fmt: skip
QUICK_BLOCKS = 24


# Training jobs that eager cannot run, by what their keys contain, and why.  Where it fails for a job that is not here,
# that is a failure of the suite.
EAGER_CANNOT: dict[str, str] = {
    "hard/buffers": "a buffer keeps the graph of the first step, so that there is no second backward",
}
# The same for jobs on a device in a dtype, in training and in inference.
LACKS_DTYPE: dict[tuple[str, str, str], str] = {
    ("block/local_response_norm", "cpu", "bfloat16"): "average pooling over volumes lacks the dtype",
    ("block/local_response_norm_channels_last", "cpu", "bfloat16"): "average pooling over volumes lacks the dtype",
    ("block/quantized_straight_through", "cpu", "bfloat16"): "cdist lacks the dtype",
    ("hf/fnet", "cpu", "bfloat16"): "Fourier transforms lack the dtype",
}


def eager_cannot(job: Job) -> str | None:
    """Why eager is known not to run a job."""
    if reason := LACKS_DTYPE.get((job.model, job.device, job.dtype)):
        return reason
    return next((reason for part, reason in EAGER_CANNOT.items() if part in job.key and job.train), None)


def make(name: str) -> Case:
    """The function that makes a model and its keyword arguments."""
    return ALL[name]


def ordered() -> list[str]:
    """All models: quick and diverse ones first, then the groups in turn."""
    blocks = [f"block/{name}" for name in BLOCKS]
    spread = [name for start in range(4) for name in blocks[start::4]]
    first = [*blocks[:7], *_in_turn([spread[: len(spread) // 4], [name for name in DIVERSE if name in ALL]])]
    groups = [spread, *([n for n in ALL if n.startswith(g + "/")] for g in GROUPS[1:])]
    return list(dict.fromkeys([*first, *_in_turn(groups)]))


def _in_turn(lists: Iterable[Sequence[str]]) -> list[str]:
    lists = [list(each) for each in lists]
    found: list[str] = []
    while any(lists):
        found += [each.pop(0) for each in lists if each]  # type: ignore[attr-defined]
    return found


def selected(
    device: str, dtypes: Sequence[str], modes: Sequence[str], groups: Sequence[str], only: Sequence[str], quick: bool
) -> list[Job]:
    """The jobs asked for, in the order in which they run.

    For each model the dtypes and modes that say most come first; a model `..._train` is a training job only, since
    without the suffix the same model is there for inference."""
    names = [n for n in ordered() if n.split("/")[0] in groups and (not only or any(o in n for o in only))]
    names = [n for n in names if (package := NEEDS.get(n.split("/")[0])) is None or find_spec(package)]
    if quick:
        blocks = [n for n in names if n.startswith("block/")][:QUICK_BLOCKS]
        names = [*blocks, *[n for n in names if n in DIVERSE]]
    jobs = [
        Job(name, device, dtype, mode)
        for mode in modes
        for dtype in dtypes
        for name in names
        if not (mode == "infer" and name.endswith("_train"))
    ]
    rank = {name: k for k, name in enumerate(names)}
    quarter = max(1, len(names) // 4)  # of the models, in all settings before the next quarter
    return sorted(jobs, key=lambda job: rank[job.model] // quarter)
