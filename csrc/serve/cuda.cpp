#include "cuda.h"

#include "pyframe/error.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>

namespace pyframe::cuda {
namespace {

/* From cuda.h; part of the driver's ABI. */
enum {
    ATTRIBUTE_MAX_DYNAMIC_SHARED = 8,
    DEVICE_MAJOR = 75,
    DEVICE_MINOR = 76,
    HOST_ALLOC_PORTABLE = 1,
    HOST_ALLOC_DEVICE_MAPPED = 2,
    PLAIN_SHARED_LIMIT = 48 << 10, /* more than this must be asked for */
    PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    STATUS_PAGE_WORDS = 512,
};

struct LaunchAttribute {
    int32_t id, padding;
    union {
        int32_t allowed;
        char bytes[64];
    } value;
};

struct LaunchConfig {
    uint32_t grid[3], block[3], shared;
    void *stream;
    LaunchAttribute *attributes;
    uint32_t count;
};

struct Driver {
    int32_t (*init)(uint32_t);
    int32_t (*error_string)(int32_t, const char **);
    int32_t (*device_get)(int32_t *, int32_t);
    int32_t (*device_attribute)(int32_t *, int32_t, int32_t);
    int32_t (*context_retain)(void **, int32_t);
    int32_t (*context_get)(void **);
    int32_t (*context_set)(void *);
    int32_t (*module_load)(void **, const void *);
    int32_t (*module_function)(void **, void *, const char *);
    int32_t (*function_get)(int32_t *, int32_t, void *);
    int32_t (*function_set)(void *, int32_t, int32_t);
    int32_t (*host_alloc)(void **, size_t, uint32_t);
    int32_t (*memset_bytes)(void *, unsigned char, size_t, void *);
    int32_t (*launch)(void *, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, void *, void **,
                      void **);
    int32_t (*launch_with)(const LaunchConfig *, void *, void **, void **); /* may be NULL */
};

std::mutex lock;
std::map<int, void *> contexts;
std::map<std::pair<int, std::string>, void *> modules; /* by the device and the cubin's bytes */

template <class F>
void
find(void *library, F &function, const char *name, bool needed = true)
{
    void *address = dlsym(library, name);
    if (address == nullptr && needed) {
        throw Error(std::string("the CUDA driver lacks ") + name);
    }
    std::memcpy(&function, &address, sizeof address);
}

Driver
opened()
{
    const char *chosen = std::getenv("PYFRAME_CUDA_DRIVER");
    void *library = dlopen(chosen != nullptr && *chosen ? chosen : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char *why = dlerror();
        throw Error(std::string("a package for a GPU needs the CUDA driver: ") + (why ? why : "it cannot be opened"));
    }
    Driver found{};
    find(library, found.init, "cuInit");
    find(library, found.error_string, "cuGetErrorString");
    find(library, found.device_get, "cuDeviceGet");
    find(library, found.device_attribute, "cuDeviceGetAttribute");
    find(library, found.context_retain, "cuDevicePrimaryCtxRetain");
    find(library, found.context_get, "cuCtxGetCurrent");
    find(library, found.context_set, "cuCtxSetCurrent");
    find(library, found.module_load, "cuModuleLoadData");
    find(library, found.module_function, "cuModuleGetFunction");
    find(library, found.function_get, "cuFuncGetAttribute");
    find(library, found.function_set, "cuFuncSetAttribute");
    find(library, found.host_alloc, "cuMemHostAlloc");
    find(library, found.memset_bytes, "cuMemsetD8Async");
    find(library, found.launch, "cuLaunchKernel");
    find(library, found.launch_with, "cuLaunchKernelEx", false); /* since CUDA 11.8 */
    if (found.init(0) != 0) {
        throw Error("a package for a GPU needs a working CUDA driver");
    }
    return found;
}

const Driver &
driver()
{
    static const Driver found = opened();
    return found;
}

void
check(int32_t status, const std::string &what)
{
    if (status != 0) {
        const char *text = nullptr;
        driver().error_string(status, &text);
        throw Error(what + ": " + (text ? text : "unknown error") + " (CUDA error " + std::to_string(status) + ")");
    }
}

/* The primary context, which is the one of libtorch; kept for the process. The caller holds the lock. */
void *
context_of(int device)
{
    void *&context = contexts[device];
    if (context == nullptr) {
        int32_t handle;
        std::string what = "cannot use cuda:" + std::to_string(device);
        check(driver().device_get(&handle, device), what);
        check(driver().context_retain(&context, handle), what);
    }
    return context;
}

} // namespace

Current::Current(int device)
{
    {
        std::lock_guard<std::mutex> held(lock);
        context_ = context_of(device);
    }
    previous_ = nullptr;
    check(driver().context_get(&previous_), "cannot use a CUDA device");
    if (previous_ != context_) {
        check(driver().context_set(context_), "cannot make a CUDA device current");
    }
}

Current::~Current()
{
    if (previous_ != context_) {
        driver().context_set(previous_); /* a failure shows in the next use of the device */
    }
}

int
capability(int device)
{
    int32_t handle, major, minor;
    std::string what = "cannot use cuda:" + std::to_string(device);
    check(driver().device_get(&handle, device), what);
    check(driver().device_attribute(&major, DEVICE_MAJOR, handle), what);
    check(driver().device_attribute(&minor, DEVICE_MINOR, handle), what);
    return 10 * major + minor;
}

void *
function(int device, const void *cubin, size_t size, const std::string &name, uint32_t shared)
{
    Current current(device);
    std::lock_guard<std::mutex> held(lock);
    std::string image((const char *)cubin, size);
    void *&module = modules[{device, image}], *found;
    if (module == nullptr) {
        check(driver().module_load(&module, image.c_str()), "cannot load a compiled kernel");
    }
    check(driver().module_function(&found, module, name.c_str()), "cannot find the kernel " + name);
    int32_t allowed = int32_t(shared);
    if (shared > PLAIN_SHARED_LIMIT) {
        check(driver().function_get(&allowed, ATTRIBUTE_MAX_DYNAMIC_SHARED, found), "cannot prepare " + name);
    }
    if (allowed < int32_t(shared)) { /* never lowered: another package may launch it with more */
        check(driver().function_set(found, ATTRIBUTE_MAX_DYNAMIC_SHARED, int32_t(shared)), "cannot prepare " + name);
    }
    return found;
}

int64_t *
status_word(int device)
{
    static int64_t *page;
    static int used;
    Current current(device);
    std::lock_guard<std::mutex> held(lock);
    if (page == nullptr || used == STATUS_PAGE_WORDS) {
        void *memory;
        check(driver().host_alloc(&memory, STATUS_PAGE_WORDS * sizeof *page,
                                  HOST_ALLOC_PORTABLE | HOST_ALLOC_DEVICE_MAPPED),
              "cannot allocate pinned memory");
        std::memset(memory, 0, STATUS_PAGE_WORDS * sizeof *page);
        page = (int64_t *)memory;
        used = 0;
    }
    return &page[used++];
}

void
launch(const Launch &what, bool &launched, void *stream, std::vector<void *> &params)
{
    static void *no_scratch; /* two pointers to memory of Triton's own, which the kernels do not use */
    if (what.grid[0] == 0 || what.grid[1] == 0 || what.grid[2] == 0) {
        return;
    }
    for (const int32_t &each : what.ints) {
        params.push_back((void *)&each);
    }
    params.push_back(&no_scratch);
    params.push_back(&no_scratch);
    bool first = !launched;
    launched = true;
    if (what.waits && !first && driver().launch_with != nullptr) {
        LaunchAttribute early{PROGRAMMATIC_STREAM_SERIALIZATION, 0, {1}};
        LaunchConfig how{{what.grid[0], what.grid[1], what.grid[2]}, {what.threads, 1, 1}, what.shared, stream, &early, 1};
        check(driver().launch_with(&how, what.function, params.data(), nullptr), "cannot launch a kernel");
        return;
    }
    check(driver().launch(what.function, what.grid[0], what.grid[1], what.grid[2], what.threads, 1, 1, what.shared, stream,
                          params.data(), nullptr),
          "cannot launch a kernel");
}

void
zero(void *memory, size_t bytes, void *stream)
{
    check(driver().memset_bytes(memory, 0, bytes, stream), "cannot set counters to 0");
}

} // namespace pyframe::cuda
