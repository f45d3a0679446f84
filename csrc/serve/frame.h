/* A plan for given sizes, and the memory of one call of it. */
#pragma once

#include "cuda.h"
#include "operators.h"
#include "plan.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace pyframe {

enum { INPUT_ALIGNMENT = 16 }; /* bytes, of the addresses of inputs that kernels of a GPU read by vectors */

using KernelFunction = void (*)(void **, const int64_t *);

/* What a package has loaded for this machine. Kernels of a GPU come first. */
struct Kernel {
    KernelFunction function = nullptr;
    cuda::Launch launch;
};

struct Memory {
    c10::ScalarType dtype = c10::ScalarType::Byte;
    std::vector<int64_t> size, stride;
};

struct ReadyStep {
    StepKind kind = StepKind::FREE;
    int buf = -1, base = -1;
    int64_t offset = 0; /* SLOT, VIEW, ARENA: bytes */
    bool on_host = false;
    Memory memory; /* ALLOC */
    KernelFunction function = nullptr;
    std::vector<int> bufs;
    std::vector<int64_t> ints, by_value;
    cuda::Launch launch;
    int called = -1; /* EXTERN: the number of the operator */
};

/* How the tensor of a buffer is made where an operator or the caller needs one. */
struct Maker {
    enum Kind { NONE, SLOT, VIEW } kind = NONE;
    int base = -1;
    int64_t offset = 0; /* of a VIEW, in elements */
    bool on_host = false;
    Memory memory;
};

class Frame;

/* The plan for given sizes. */
struct Instance {
    const Plan &plan;
    c10::Device device;
    std::vector<Memory> inputs;
    std::vector<ReadyStep> steps;
    std::vector<Maker> makers; /* by buffer */
    std::vector<Operator> operators;
    const std::vector<at::Tensor> &constants;
    int64_t arena = 0, host_arena = 0;
    int64_t *status = nullptr; /* of a GPU's plan that has one */
    bool calls_kernels_on_gpu = false;

    Instance(const Plan &plan, const std::vector<int64_t> &values, const std::vector<Kernel> &kernels,
             const std::vector<at::Tensor> &constants, c10::Device device);

    std::vector<at::Tensor> call(const std::vector<at::Tensor> &args, const std::vector<bool> &ints);

private:
    friend class Frame;
    std::mutex lock_;
    std::vector<std::unique_ptr<Frame>> idle_; /* frames whose memory the next calls take */

    std::unique_ptr<Frame> take();
    void check(int i, const at::Tensor &given) const;
    at::Tensor aligned(int i, const at::Tensor &given) const;
    void refuse_overlaps(const Frame &frame) const;
    void run(Frame &frame, const ReadyStep &step) const;
    void run_launch(Frame &frame, const ReadyStep &step) const;
};

class Frame {
public:
    explicit Frame(const Instance &instance);
    ~Frame();

    const at::Tensor &tensor(int buf);
    void set(int buf, const at::Tensor &tensor);
    void clear(); /* drop what belongs to a call */

    std::vector<void *> data;
    void *stream = nullptr;
    bool launched = false; /* a kernel of this run has been launched */
    int64_t status = 0;
    char *arena = nullptr, *host_arena = nullptr;
    at::Tensor gpu_arena;

private:
    const Instance &instance_;
    std::vector<at::Tensor> tensors_;
    std::vector<char> stays_; /* buffers whose tensors and addresses are the same in all calls with this frame */
};

} // namespace pyframe
