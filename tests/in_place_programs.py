"""Programs that write to parts of an input: a cache `c` of (2, 8, 4), new rows `k` of (2, 2, 4) and their positions."""

import torch


def slice_of_a_cache(c, k, pos):
    c[:, 3:5] = k
    return c[:, :5].sum(-1)


def position(c, k, pos):
    c[:, 2] = k[:, 0]
    return c * 2


def nested(c, k, pos):
    c[1][:, 2] = k[1, :1, :1].expand(1, 8)[0]
    return c[1].sum()


def slice_with_a_step(c, k, pos):
    c[:, ::3] = 1
    c[:, 1::5].add_(c[:, 1::5])
    return c.clone()


def index_copy(c, k, pos):
    c.index_copy_(1, pos, k)
    return c @ k.transpose(1, 2)


def index_put(c, k, pos):
    c[:, pos] = k
    return c.amax(1)


def index_add(c, k, pos):
    c.index_add_(1, pos, k)
    c.index_add_(1, pos, k * 2)


def scatter(c, k, pos):
    c.scatter_(1, pos.view(1, 2, 1).expand(2, 2, 4), k)
    c.scatter_add_(1, pos.view(1, 2, 1).expand(2, 2, 4), k)
    return c + 1


def put_into_a_view(c, k, pos):
    c[1].index_copy_(0, pos, k[1])
    c[0, :, 1].index_fill_(0, pos, 3.0)
    return c.mean()


def fill_from_the_end(c, k, pos):
    c.index_fill_(1, -pos, 3.0)
    return c.index_fill(0, pos // 6 - 1, 2.0)


def several_writes(c, k, pos):
    c.index_copy_(1, pos, k)
    c[0].zero_()
    c.select(1, 0).add_(1)
    c[:, 1:3] *= 2
    return c


def reads_before(c, k, pos):
    old = c * 2
    part = c[:, 3:5]
    total = part.sum()
    c[:, 3:5] = k
    return old, total, c + 1


def the_old_view_read_later(c, k, pos):
    old = c[:, 3:5].clone()
    c[:, 3:5] = k
    return old + c[:, 3:5]


def the_old_value_read_later(c, k, pos):
    old = c.exp()
    c[:, 3:5] = k
    c[:, 0] = 0
    return old + c, old.sum(-1)


def a_split_read_later(c, k, pos):
    a, b = (c + 0).split(4, 1)
    c[:, 3:5] = k
    return a * b, c.sum()


def a_part_with_gaps_returned(c, k, pos):
    part = (c + 1)[:, ::2]
    c.index_fill_(1, pos, 5.0)
    return part


def parts_of_one_result(c, k, pos):
    whole = torch.nn.functional.pad(c, [2, 1], value=1.0)
    left, right = whole[..., :4], whole[:, 1:, 3:]
    c[:, 2:4] = k
    return left, right, left.as_strided((2, 2), (7, 1), 3)


def moved_within(c, k, pos):
    c[:, 1:] = c[:, :-1].clone()
    return c


def moved_by_an_index(c, k, pos):
    c[:, pos] = c[:, pos + 1]
    c.index_copy_(1, pos, c[:, 4:6] * 2)
    return c


def written_by_itself(c, k, pos):
    c[:, 2:4].copy_(c[:, 4:6].clone())
    c[:, 2:4].mul_(c[:, 2:4])


def of_another_dtype(c, k, pos):
    c[:, 3:5] = k.double()
    c[:, 0] = 7
    return c.sum()


def copies_are_returned(c, k, pos):
    c[:, 3:5] = k
    return c, c.clone(), c[:, 3], c[:, 3:5] + 0


def through_data(c, k, pos):
    c.data.index_copy_(1, pos, k)
    c.data[:, 0] = 1
    return c + 1


def masked(c, k, pos):
    c.masked_scatter_(c > 0, k.repeat(1, 8, 1))
    c[c < 0] = 0
    return c.sum(0)


def two_inputs(c, k, pos):
    c[:, pos] = k
    k[:, 0] = c[:, 3]
    k[:, 1] += c[:, 4]
    return c.sum(), k.sum()


PROGRAMS = [
    slice_of_a_cache, position, nested, slice_with_a_step, index_copy, index_put, index_add, scatter, put_into_a_view,
    fill_from_the_end, several_writes, reads_before, the_old_view_read_later, the_old_value_read_later,
    a_split_read_later, a_part_with_gaps_returned, parts_of_one_result, moved_within,
    moved_by_an_index, written_by_itself, of_another_dtype, copies_are_returned, through_data, masked, two_inputs,
]  # fmt: skip


def arguments(dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    return [
        torch.randn(2, 8, 4, generator=g).to(dtype), torch.randn(2, 2, 4, generator=g).to(dtype), torch.tensor([2, 6])
    ]  # fmt: skip


def layouts(args):
    c, k, pos = args
    yield args
    yield [c.transpose(0, 1).contiguous().transpose(0, 1), k, pos]
    yield [c.new_zeros(4, 8, 8)[1:3, :, 2:6].copy_(c), k[:, :, :1].expand(2, 2, 4).clone(), pos]
