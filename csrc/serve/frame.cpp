#include "frame.h"

#include "pyframe/error.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdlib>

namespace pyframe {

enum { HOST_ALIGNMENT = 64, COUNTERS = 512, MAX_IDLE = 64 };

static std::vector<int64_t>
at_values(const std::vector<Size> &sizes, const std::vector<int64_t> &values)
{
    std::vector<int64_t> found;
    for (const Size &each : sizes) {
        found.push_back(each.at(values));
    }
    return found;
}

static Memory
memory_of(const Shape &shape, const std::vector<int64_t> &values)
{
    return {c10::ScalarType(shape.dtype), at_values(shape.size, values), at_values(shape.stride, values)};
}

/* How many elements lie from the first one to the last, both included. */
static int64_t
extent(const Memory &memory)
{
    int64_t last = 0;
    for (size_t d = 0; d < memory.size.size(); d++) {
        if (memory.size[d] == 0) {
            return 0;
        }
        last += (memory.size[d] - 1) * memory.stride[d];
    }
    return last + 1;
}

static int64_t
bytes_of(const Memory &memory)
{
    return extent(memory) * int64_t(c10::elementSize(memory.dtype));
}

Instance::Instance(const Plan &given, const std::vector<int64_t> &values, const std::vector<Kernel> &kernels,
                   const std::vector<at::Tensor> &fixed, c10::Device where)
    : plan(given), device(where), makers(size_t(given.buffers)), constants(fixed)
{
    std::map<int, int64_t> offsets;
    std::vector<int64_t> itemsizes(size_t(plan.buffers), 0);
    if (!plan.ranges.empty()) {
        offsets = placed(plan.ranges, values, &arena);
    }
    for (size_t i = 0; i < plan.inputs.size(); i++) {
        inputs.push_back(memory_of(plan.inputs[i].shape, values));
        itemsizes[i] = plan.inputs[i].shape.itemsize;
    }
    for (size_t i = 0; i < constants.size(); i++) {
        itemsizes[size_t(plan.arguments) + i] = int64_t(constants[i].element_size());
    }
    for (const Step &s : plan.steps) {
        ReadyStep step;
        step.kind = s.kind;
        step.buf = s.buf;
        step.base = s.base;
        step.on_host = s.on_host;
        step.offset = s.offset.at(values);
        step.bufs = s.bufs;
        step.ints = at_values(s.ints, values);
        switch (s.kind) {
        case StepKind::ALLOC:
            step.memory = memory_of(s.shape, values);
            step.on_host = s.device == 0;
            itemsizes[size_t(s.buf)] = s.shape.itemsize;
            break;
        case StepKind::ARENA:
            (s.on_host ? host_arena : arena) = std::max(step.offset, s.on_host ? host_arena : arena);
            continue;
        case StepKind::SLOT: {
            Maker &maker = makers[size_t(s.buf)] = {Maker::SLOT, -1, 0, s.on_host, memory_of(s.shape, values)};
            if (auto known = offsets.find(s.buf); known != offsets.end()) {
                step.offset = known->second;
            }
            if (step.offset > (s.on_host ? host_arena : arena) - bytes_of(maker.memory)) {
                throw Error("it has a buffer behind the end of its memory");
            }
            itemsizes[size_t(s.buf)] = s.shape.itemsize;
            break;
        }
        case StepKind::VIEW:
            itemsizes[size_t(s.buf)] = s.shape.dtype >= 0 ? s.shape.itemsize : itemsizes[size_t(s.base)];
            makers[size_t(s.buf)] = {Maker::VIEW, s.base, step.offset, false, memory_of(s.shape, values)};
            step.offset *= itemsizes[size_t(s.buf)];
            break;
        case StepKind::KERNEL:
            step.function = kernels[size_t(s.kernel)].function;
            if (step.function == nullptr) {
                throw Error("it calls a kernel of a GPU on the CPU");
            }
            break;
        case StepKind::LAUNCH:
            step.launch = kernels[size_t(s.kernel)].launch;
            if (step.launch.function == nullptr) {
                throw Error("it launches a kernel of the CPU on a GPU");
            }
            for (size_t d = 0; d < 3; d++) {
                step.launch.grid[d] = uint32_t(s.grid[d].at(values));
            }
            step.launch.ints.assign(step.ints.begin(), step.ints.end());
            step.by_value.assign(s.bufs.size(), -1);
            for (auto [place, position] : s.by_value) {
                step.by_value[size_t(place)] = position;
            }
            calls_kernels_on_gpu = true;
            break;
        case StepKind::EXTERN:
            step.called = int(operators.size());
            operators.emplace_back(*s.data, plan.symbols, values, plan.buffers, device);
            break;
        case StepKind::STATUS:
            if (plan.on_gpu) {
                status = cuda::status_word(device.index());
            }
            break;
        case StepKind::FREE:
        case StepKind::COUNTERS:
            break;
        }
        steps.push_back(std::move(step));
    }
}

/* ---- the memory of a call ---- */

Frame::Frame(const Instance &instance)
    : data(size_t(instance.plan.buffers)), instance_(instance), tensors_(size_t(instance.plan.buffers)),
      stays_(size_t(instance.plan.buffers))
{
    for (size_t i = 0; i < instance.constants.size(); i++) {
        size_t buf = size_t(instance.plan.arguments) + i;
        tensors_[buf] = instance.constants[i];
        data[buf] = instance.constants[i].has_storage() ? instance.constants[i].data_ptr() : nullptr;
        stays_[buf] = 1;
    }
    int64_t on_host = instance.plan.on_gpu ? instance.host_arena : instance.arena;
    if (on_host > 0) {
        int64_t rounded = (on_host + HOST_ALIGNMENT - 1) / HOST_ALIGNMENT * HOST_ALIGNMENT;
        host_arena = (char *)std::aligned_alloc(HOST_ALIGNMENT, size_t(rounded));
        if (host_arena == nullptr) {
            throw std::bad_alloc();
        }
    }
    arena = instance.plan.on_gpu ? nullptr : host_arena;
    for (const ReadyStep &step : instance.steps) {
        if (step.kind == StepKind::SLOT && (step.on_host || !instance.plan.on_gpu)) {
            stays_[size_t(step.buf)] = 1;
            data[size_t(step.buf)] = host_arena + step.offset;
        } else if (step.kind == StepKind::VIEW && stays_[size_t(step.base)]) {
            stays_[size_t(step.buf)] = 1;
            data[size_t(step.buf)] = (char *)data[size_t(step.base)] + step.offset;
        }
    }
}

Frame::~Frame()
{
    clear();
    std::free(host_arena);
}

void
Frame::clear()
{
    for (size_t buf = 0; buf < tensors_.size(); buf++) {
        if (!stays_[buf] && tensors_[buf].defined()) {
            tensors_[buf].reset();
        }
    }
    gpu_arena.reset();
    status = 0;
}

void
Frame::set(int buf, const at::Tensor &tensor)
{
    tensors_[size_t(buf)] = tensor;
    data[size_t(buf)] = tensor.has_storage() ? tensor.data_ptr() : nullptr;
}

const at::Tensor &
Frame::tensor(int buf)
{
    at::Tensor &found = tensors_[size_t(buf)];
    if (found.defined()) {
        return found;
    }
    const Maker &maker = instance_.makers[size_t(buf)];
    if (maker.kind == Maker::SLOT) {
        c10::Device device = maker.on_host ? c10::Device(c10::DeviceType::CPU) : instance_.device;
        auto options = at::TensorOptions().dtype(maker.memory.dtype).device(device);
        found = at::for_blob(data[size_t(buf)], maker.memory.size)
                    .strides(maker.memory.stride).options(options).target_device(device).make_tensor();
    } else if (maker.kind == Maker::VIEW) {
        const at::Tensor &base = tensor(maker.base);
        c10::TensorImpl *impl = base.unsafeGetTensorImpl();
        found = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base.storage()),
                                                         impl->key_set(), base.dtype());
        found.unsafeGetTensorImpl()->set_storage_offset(base.storage_offset() + maker.offset);
        found.unsafeGetTensorImpl()->set_sizes_and_strides(maker.memory.size, maker.memory.stride);
    } else {
        throw Error("it reads a buffer that nothing has made");
    }
    return found;
}

/* ---- a call ---- */

std::unique_ptr<Frame>
Instance::take()
{
    std::lock_guard<std::mutex> held(lock_);
    if (idle_.empty()) {
        return std::make_unique<Frame>(*this);
    }
    std::unique_ptr<Frame> frame = std::move(idle_.back());
    idle_.pop_back();
    return frame;
}

void
Instance::check(int i, const at::Tensor &given) const
{
    const Input &input = plan.inputs[size_t(i)];
    const Memory &expected = inputs[size_t(i)];
    const char *wrong = nullptr;
    if (!given.defined() || !given.has_storage()) {
        wrong = "no memory";
    } else if (!input.any_device && given.device() != (input.on_host ? c10::Device(c10::DeviceType::CPU) : device)) {
        wrong = "another device";
    } else if (given.scalar_type() != expected.dtype) {
        wrong = "another dtype";
    } else if (given.dim() != int64_t(expected.size.size())) {
        wrong = "another number of dimensions";
    } else if (given.sizes() != expected.size) {
        wrong = "another size";
    } else if (given.numel() > 0) {
        for (int64_t d = 0; d < given.dim(); d++) {
            if (expected.size[size_t(d)] > 1 && given.stride(d) != expected.stride[size_t(d)]) {
                wrong = "another stride";
            }
        }
    }
    if (wrong != nullptr) {
        throw Error("input " + std::to_string(i) + " has " + wrong + " than the package was made for");
    }
}

/* The input, or a copy with the same strides at an address that the kernels of a GPU can read by vectors. */
at::Tensor
Instance::aligned(int i, const at::Tensor &given) const
{
    if (uintptr_t(given.data_ptr()) % INPUT_ALIGNMENT == 0) {
        return given;
    }
    if (std::find(plan.mutated.begin(), plan.mutated.end(), i) != plan.mutated.end()) {
        throw Error("input " + std::to_string(i) + ", which is written, is not aligned to 16 bytes");
    }
    at::Tensor copy = at::empty_strided(given.sizes(), given.strides(), given.options());
    copy.copy_(given);
    return copy;
}

void
Instance::refuse_overlaps(const Frame &frame) const
{
    for (int i : plan.mutated) {
        const char *start = (const char *)frame.data[size_t(i)], *end = start + bytes_of(inputs[size_t(i)]);
        for (size_t j = 0; j < inputs.size(); j++) {
            const char *other = (const char *)frame.data[j];
            if (int(j) != i && plan.inputs[j].is_tensor && other < end && start < other + bytes_of(inputs[j])) {
                throw Error("a tensor that the call writes overlaps another one");
            }
        }
    }
}

void
Instance::run_launch(Frame &frame, const ReadyStep &step) const
{
    std::vector<void *> params;
    params.reserve(step.bufs.size() + step.launch.ints.size() + 2);
    for (size_t i = 0; i < step.bufs.size(); i++) {
        void **address = &frame.data[size_t(step.bufs[i])];
        params.push_back(step.by_value[i] < 0 ? (void *)address : (char *)*address + step.by_value[i]);
    }
    cuda::launch(step.launch, frame.launched, frame.stream, params);
}

void
Instance::run(Frame &frame, const ReadyStep &step) const
{
    switch (step.kind) {
    case StepKind::ALLOC:
        if (step.on_host || !plan.on_gpu) {
            frame.set(step.buf, at::Tensor(at::detail::empty_strided_cpu(step.memory.size, step.memory.stride,
                                                                         step.memory.dtype)));
        } else {
            frame.set(step.buf, at::empty_strided(step.memory.size, step.memory.stride,
                                                  at::TensorOptions().dtype(step.memory.dtype).device(device)));
        }
        break;
    case StepKind::SLOT:
        if (plan.on_gpu && !step.on_host) {
            frame.data[size_t(step.buf)] = frame.arena + step.offset;
        }
        break;
    case StepKind::VIEW:
        frame.data[size_t(step.buf)] = (char *)frame.data[size_t(step.base)] + step.offset;
        break;
    case StepKind::KERNEL: {
        void *small[64];
        std::vector<void *> many;
        void **bufs = small;
        if (step.bufs.size() > 64) {
            many.resize(step.bufs.size());
            bufs = many.data();
        }
        for (size_t i = 0; i < step.bufs.size(); i++) {
            bufs[i] = frame.data[size_t(step.bufs[i])];
        }
        step.function(bufs, step.ints.data());
        break;
    }
    case StepKind::LAUNCH:
        run_launch(frame, step);
        break;
    case StepKind::EXTERN:
        operators[size_t(step.called)].run(frame);
        break;
    case StepKind::STATUS:
        frame.data[size_t(step.buf)] = status != nullptr ? status : &frame.status;
        break;
    case StepKind::COUNTERS: {
        at::Tensor counters = at::empty({COUNTERS}, at::TensorOptions().dtype(c10::ScalarType::Int).device(device));
        cuda::zero(counters.data_ptr(), COUNTERS * sizeof(int32_t), frame.stream);
        frame.set(step.buf, counters);
        break;
    }
    case StepKind::ARENA:
    case StepKind::FREE:
        break;
    }
}

static void
refuse_index(int64_t &status)
{
    if (status != 0) {
        status = 0;
        throw Error("an index is out of range");
    }
}

std::vector<at::Tensor>
Instance::call(const std::vector<at::Tensor> &args, const std::vector<bool> &ints)
{
    /* Operators record no gradients, and what autocast does is a part of the plan. */
    at::AutoDispatchBelowADInplaceOrView no_autograd;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    struct Lease {
        Instance &instance;
        std::unique_ptr<Frame> frame;
        ~Lease()
        {
            frame->clear();
            std::lock_guard<std::mutex> held(instance.lock_);
            if (instance.idle_.size() < MAX_IDLE) {
                instance.idle_.push_back(std::move(frame));
            }
        }
    } lease{*this, take()};
    Frame &frame = *lease.frame;
    for (size_t i = 0; i < args.size(); i++) {
        if (!ints[i]) {
            check(int(i), args[i]);
            frame.set(int(i), args[i]);
        }
    }
    for (int i : plan.aligned) {
        if (i < plan.arguments) {
            frame.set(i, aligned(i, frame.tensor(i)));
        }
    }
    refuse_overlaps(frame);
    std::unique_ptr<cuda::Current> current;
    if (plan.on_gpu) {
        if (status != nullptr) {
            refuse_index(*status); /* of an earlier call */
        }
        current = std::make_unique<cuda::Current>(device.index());
        frame.stream = (void *)c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
        frame.launched = false;
        if (arena > 0) {
            frame.gpu_arena = at::empty({arena}, at::TensorOptions().dtype(c10::ScalarType::Byte).device(device));
            frame.arena = (char *)frame.gpu_arena.data_ptr();
        }
    }
    for (const ReadyStep &step : steps) {
        run(frame, step);
    }
    refuse_index(frame.status);
    for (int i : plan.mutated) {
        if (std::find(plan.uncounted.begin(), plan.uncounted.end(), i) == plan.uncounted.end()) {
            frame.tensor(i).unsafeGetTensorImpl()->bump_version();
        }
    }
    std::vector<at::Tensor> results;
    for (const Output &output : plan.outputs) {
        results.push_back(output.kind == Output::NOTHING ? at::Tensor() : frame.tensor(output.number));
    }
    return results;
}

} // namespace pyframe
