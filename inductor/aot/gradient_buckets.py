"""The sizes of the buckets in which DistributedDataParallel sends gradients.

DDP sends a bucket as soon as all of its gradients are computed, while the backward pass goes on. A compiled backward
that returns all gradients at its end would leave nothing to overlap with; so while DDP calls a module, the backward is
compiled in stages of about the size of a bucket (see `backward_stages`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import torch.distributed as dist

# The class of DDP, whose attribute `_active_ddp_module` is the module whose forward is running. It is None for most
# programs, which one read per call of a training graph finds out.
DDP: Any = SimpleNamespace(_active_ddp_module=None)
if dist.is_available():
    from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: F811


class BucketSizes(NamedTuple):
    """After how many bytes of gradients a bucket is full: the first one, and the others."""

    first: int
    others: int


def active_buckets() -> BucketSizes | None:
    """The buckets of the DDP module whose forward is running; None outside of such a forward, or if DDP sends the
    gradients at the end of the backward pass anyway."""
    module = DDP._active_ddp_module
    if module is None or module._delay_all_reduce_all_params:
        return None
    others = int(module.bucket_bytes_cap)
    first = dist._DEFAULT_FIRST_BUCKET_BYTES if module.bucket_bytes_cap_default else others  # type: ignore[attr-defined, unused-ignore]  # not in torch's stubs
    return BucketSizes(min(first, others), others)
