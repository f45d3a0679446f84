"""Chooses the kernels of a product: those of a plain one, of a convolution, of groups, or with descriptors."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...schedule.product import Product
from .kernel import Draft
from .product import JoinKernel, ProductKernel
from .product_convolution import ConvolutionKernel
from .product_descriptors import descriptor_drafts
from .product_grouped import GroupedKernel
from .work import Scratch


def product_drafts(
    product: Product, dtypes: Mapping[str, str], unaligned: Collection[str] = ()
) -> tuple[list[Draft], list[Scratch]]:
    """The kernels of a product in launch order, and the scratch memory that they share."""
    assert product.config is not None
    if product.config.kind == "descriptors":
        return descriptor_drafts(product, dtypes, unaligned)
    kind = ProductKernel
    if product.convolution is not None:
        kind = ConvolutionKernel
    elif product.ends is not None:
        kind = GroupedKernel
    if product.config.split == 1:
        return [kind(product, dtypes, product.config, None).draft(unaligned)], []
    sizes = product.sizes
    whole = sizes.batch * sizes.rows * sizes.columns
    scratch = Scratch(f"%{product.result.name}.sums", "float32", whole * product.config.split)
    parts = kind(product, dtypes, product.config, scratch)
    return [parts.draft(unaligned), JoinKernel(product, dtypes, scratch).draft(unaligned)], [scratch]
