/* The CUDA driver, opened when the first package for a GPU is loaded. Nothing here links against CUDA or needs its
 * headers. PYFRAME_CUDA_DRIVER names another library than libcuda.so.1. All functions raise Error. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pyframe::cuda {

/* A kernel with everything that does not change between calls. */
struct Launch {
    void *function = nullptr;
    uint32_t grid[3] = {0, 0, 0}, threads = 0, shared = 0;
    bool waits = false; /* the kernel itself waits for the one ahead of it in the stream: it may be started early */
    std::vector<int32_t> ints;
};

/* The compute capability of a device, times ten. */
int capability(int device);

/* The kernel `name` of a cubin, ready for this many bytes of shared memory; loaded once per device and kept. */
void *function(int device, const void *cubin, size_t size, const std::string &name, uint32_t shared);

/* A zeroed word that the host and all devices can address; never given out again. */
int64_t *status_word(int device);

/* Makes the context of a device current for the life of the object. */
class Current {
public:
    explicit Current(int device);
    ~Current();
    Current(const Current &) = delete;

private:
    void *context_, *previous_;
};

/* `params` holds the address of each parameter that comes before the launch's ints. */
/* `launched`: whether the run has launched a kernel, which this sets. The first one starts when all work before it has
 * ended, so that those behind it may read inputs that no kernel writes at any time. */
void launch(const Launch &what, bool &launched, void *stream, std::vector<void *> &params);
void zero(void *memory, size_t bytes, void *stream);

} // namespace pyframe::cuda
