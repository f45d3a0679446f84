/* Lookup, contexts, modules and error texts of the CUDA driver. */
#include "cuda_driver.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

cuda_driver_api cuda_driver;

static void *contexts[CUDA_MAX_DEVICES];
static PyObject *modules; /* {(device, image): module as an int} */

/* From cuda.h; part of the driver's ABI. */
enum {
    ATTRIBUTE_MAX_DYNAMIC_SHARED = 8,
    HOST_ALLOC_PORTABLE = 1,
    HOST_ALLOC_DEVICE_MAPPED = 2,
    PLAIN_SHARED_LIMIT = 48 << 10, /* more than this must be asked for */
    STATUS_PAGE_WORDS = 512,
};

static const struct {
    const char *name;
    size_t place;
} functions[] = {
    {"cuInit", offsetof(cuda_driver_api, init)},
    {"cuGetErrorString", offsetof(cuda_driver_api, error_string)},
    {"cuDeviceGet", offsetof(cuda_driver_api, device_get)},
    {"cuDevicePrimaryCtxRetain", offsetof(cuda_driver_api, context_retain)},
    {"cuCtxGetCurrent", offsetof(cuda_driver_api, context_get)},
    {"cuCtxSetCurrent", offsetof(cuda_driver_api, context_set)},
    {"cuModuleLoadData", offsetof(cuda_driver_api, module_load)},
    {"cuModuleUnload", offsetof(cuda_driver_api, module_unload)},
    {"cuModuleGetFunction", offsetof(cuda_driver_api, module_function)},
    {"cuFuncGetAttribute", offsetof(cuda_driver_api, function_get)},
    {"cuFuncSetAttribute", offsetof(cuda_driver_api, function_set)},
    {"cuMemHostAlloc", offsetof(cuda_driver_api, host_alloc)},
    {"cuMemsetD8Async", offsetof(cuda_driver_api, memset_bytes)},
    {"cuLaunchKernel", offsetof(cuda_driver_api, launch)},
};

void
cuda_set_error(int32_t status, const char *what)
{
    const char *text = NULL;
    if (cuda_driver.error_string == NULL || cuda_driver.error_string(status, &text) != 0 || text == NULL) {
        text = "unknown error";
    }
    PyErr_Format(PyExc_RuntimeError, "%s: %s (CUDA error %d)", what, text, (int)status);
}

/* ---- Devices ---- */
static int
open_driver(void)
{
    if (cuda_driver.launch != NULL) {
        return 0;
    }
    const char *chosen = getenv("PYFRAME_CUDA_DRIVER");
    const char *path = chosen != NULL && *chosen ? chosen : "libcuda.so.1";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        PyErr_Format(PyExc_RuntimeError, "a graph for a CUDA device needs the CUDA driver: %s", why ? why : path);
        return -1;
    }
    cuda_driver_api found = {0};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *address = dlsym(library, functions[i].name);
        if (address == NULL) {
            PyErr_Format(PyExc_RuntimeError, "the CUDA driver %s lacks %s", path, functions[i].name);
            dlclose(library);
            return -1;
        }
        *(void **)((char *)&found + functions[i].place) = address;
    }
    *(void **)&found.launch_with = dlsym(library, "cuLaunchKernelEx"); /* since CUDA 11.8 */
    *(void **)&found.copy_async = dlsym(library, "cuMemcpyDtoDAsync_v2");
    *(void **)&found.is_capturing = dlsym(library, "cuStreamIsCapturing");
    *(void **)&found.simulated_stream = dlsym(library, "pyframe_simulated_stream");
    int32_t status = found.init(0);
    if (status != 0) {
        const char *text = NULL;
        found.error_string(status, &text);
        PyErr_Format(PyExc_RuntimeError, "a graph for a CUDA device needs a working CUDA driver: %s (CUDA error %d)",
                     text ? text : "unknown error", (int)status);
        return -1;
    }
    cuda_driver = found;
    return 0;
}

void *
cuda_context(int32_t device)
{
    if (device < 0 || device >= CUDA_MAX_DEVICES) {
        PyErr_Format(PyExc_ValueError, "not the number of a CUDA device: %d", (int)device);
        return NULL;
    }
    if (contexts[device] != NULL) {
        return contexts[device];
    }
    if (open_driver() < 0) {
        return NULL;
    }
    int32_t handle, status = cuda_driver.device_get(&handle, device);
    if (status == 0) {
        status = cuda_driver.context_retain(&contexts[device], handle);
    }
    if (status != 0) {
        char what[64];
        PyOS_snprintf(what, sizeof what, "cannot use cuda:%d", (int)device);
        contexts[device] = NULL;
        cuda_set_error(status, what);
    }
    return contexts[device];
}

int
cuda_enter(void *context, void **previous)
{
    *previous = NULL;
    int32_t status = cuda_driver.context_get(previous);
    if (status == 0 && *previous != context) {
        status = cuda_driver.context_set(context);
    }
    if (status != 0) {
        cuda_set_error(status, "cannot make a CUDA device current");
        return -1;
    }
    return 0;
}

void
cuda_leave(void *context, void *previous)
{
    if (previous != context) {
        cuda_driver.context_set(previous); /* a failure shows in the next use of the device */
    }
}

/* ---- Kernels ---- */
static void *
known_module(PyObject *key)
{
    PyObject *module = PyDict_GetItemWithError(modules, key);
    return module == NULL ? NULL : PyLong_AsVoidPtr(module);
}

static void *
load_module(PyObject *key, PyObject *image)
{
    void *module = known_module(key);
    if (module != NULL || PyErr_Occurred()) {
        return module;
    }
    int32_t status;
    const char *bytes = PyBytes_AS_STRING(image); /* ends in a null byte, which PTX text needs */
    /* loading may wait for the device, and what that waits for may want the interpreter */
    Py_BEGIN_ALLOW_THREADS
    status = cuda_driver.module_load(&module, bytes);
    Py_END_ALLOW_THREADS
    if (status != 0) {
        cuda_set_error(status, "cannot load a compiled kernel");
        return NULL;
    }
    void *other = known_module(key); /* another thread was faster */
    if (other != NULL) {
        cuda_driver.module_unload(module);
        return other;
    }
    PyObject *number = PyLong_FromVoidPtr(module);
    int failed = number == NULL || PyDict_SetItem(modules, key, number) < 0;
    Py_XDECREF(number);
    return failed ? NULL : module;
}

static int32_t
allow_shared(void *function, int32_t shared)
{
    int32_t allowed = 0;
    if (shared <= PLAIN_SHARED_LIMIT) {
        return 0;
    }
    int32_t status = cuda_driver.function_get(&allowed, ATTRIBUTE_MAX_DYNAMIC_SHARED, function);
    if (status != 0 || allowed >= shared) { /* never lowered: another plan may launch it with more */
        return status;
    }
    return cuda_driver.function_set(function, ATTRIBUTE_MAX_DYNAMIC_SHARED, shared);
}

void *
cuda_function(int32_t device, PyObject *cubin, PyObject *name, int32_t shared)
{
    const char *text = PyUnicode_AsUTF8(name);
    if (text == NULL || !PyBytes_Check(cubin) || (modules == NULL && (modules = PyDict_New()) == NULL)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a CUDA kernel's code must be bytes");
        }
        return NULL;
    }
    void *context = cuda_context(device), *previous, *function = NULL;
    PyObject *key = context == NULL ? NULL : Py_BuildValue("(iO)", (int)device, cubin);
    if (key == NULL || cuda_enter(context, &previous) < 0) {
        Py_XDECREF(key);
        return NULL;
    }
    void *module = load_module(key, cubin);
    if (module != NULL) {
        int32_t status = cuda_driver.module_function(&function, module, text);
        if (status == 0) {
            status = allow_shared(function, shared);
        }
        if (status != 0) {
            char what[256];
            PyOS_snprintf(what, sizeof what, "cannot prepare the kernel %.180s with %d bytes of shared memory", text,
                          (int)shared);
            cuda_set_error(status, what);
            function = NULL;
        }
    }
    cuda_leave(context, previous);
    Py_DECREF(key);
    return function;
}

/* ---- Status words ---- */
int64_t *
cuda_status_word(int32_t device)
{
    static int64_t *page;
    static size_t used;
    if (page == NULL || used == STATUS_PAGE_WORDS) {
        void *context = cuda_context(device), *previous, *memory = NULL;
        if (context == NULL || cuda_enter(context, &previous) < 0) {
            return NULL;
        }
        int32_t status = cuda_driver.host_alloc(&memory, STATUS_PAGE_WORDS * sizeof *page,
                                                HOST_ALLOC_PORTABLE | HOST_ALLOC_DEVICE_MAPPED);
        cuda_leave(context, previous);
        if (status != 0) {
            cuda_set_error(status, "cannot allocate pinned memory");
            return NULL;
        }
        memset(memory, 0, STATUS_PAGE_WORDS * sizeof *page);
        page = memory;
        used = 0;
    }
    return &page[used++];
}
