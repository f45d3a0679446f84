"""Chooses between ATen and the templates for matrix products, by measuring both on the user's GPU.

`tuned` takes a schedule and returns one in which each product, with its epilogue, is computed by the fastest of ATen's
kernels and the configurations of the template. `measure.py` runs them; a choice is kept in the disk cache, by the text
of the kernels (which contains sizes, strides, dtypes and the epilogue) and the device.
"""

from .choose import tuned

__all__ = ["tuned"]
