/* The CUDA driver, opened when the first plan for a CUDA device is built. Nothing here links against CUDA or needs its
 * headers; a machine without the driver gets one RuntimeError from cuda_context().
 *
 * PYFRAME_CUDA_DRIVER names another library than libcuda.so.1. A library that also exports `pyframe_simulated_stream`
 * is a simulator: its device memory is the host's, so plans work on CPU tensors and launch on the stream it returns. */
#ifndef PYFRAME_CUDA_DRIVER_H
#define PYFRAME_CUDA_DRIVER_H

#include "../compat.h"

#pragma GCC visibility push(hidden)

enum { CUDA_MAX_DEVICES = 64 };

/* CUlaunchConfig and CUlaunchAttribute of cuda.h; part of the driver's ABI. */
typedef struct cuda_launch_attribute {
    int32_t id;
    int32_t padding;
    union {
        int32_t allowed;
        char bytes[64];
    } value;
} cuda_launch_attribute;

typedef struct cuda_launch {
    uint32_t grid[3], block[3], shared;
    void *stream;
    cuda_launch_attribute *attributes;
    uint32_t n_attributes;
} cuda_launch;

enum { CUDA_PROGRAMMATIC_STREAM_SERIALIZATION = 6 }; /* the kernel may start before the one ahead of it has ended */

/* Driver functions by name; each returns a CUresult, 0 for success. Filled by cuda_context(). */
typedef struct cuda_driver_api {
    int32_t (*init)(uint32_t flags);
    int32_t (*error_string)(int32_t error, const char **text);
    int32_t (*device_get)(int32_t *device, int32_t ordinal);
    int32_t (*context_retain)(void **context, int32_t device);
    int32_t (*context_get)(void **context);
    int32_t (*context_set)(void *context);
    int32_t (*module_load)(void **module, const void *image);
    int32_t (*module_unload)(void *module);
    int32_t (*module_function)(void **function, void *module, const char *name);
    int32_t (*function_get)(int32_t *value, int32_t attribute, void *function);
    int32_t (*function_set)(void *function, int32_t attribute, int32_t value);
    int32_t (*host_alloc)(void **memory, size_t bytes, uint32_t flags);
    int32_t (*memset_bytes)(void *memory, unsigned char value, size_t bytes, void *stream);
    int32_t (*launch)(void *function, uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x,
                      uint32_t block_y, uint32_t block_z, uint32_t shared, void *stream, void **params, void **extra);
    int32_t (*launch_with)(const cuda_launch *how, void *function, void **params, void **extra); /* may be NULL */
    int32_t (*copy_async)(uint64_t to, uint64_t from, size_t bytes, void *stream); /* device to device; may be NULL */
    int32_t (*is_capturing)(void *stream, int32_t *status); /* may be NULL */
    void *(*simulated_stream)(void); /* NULL for a real driver */
} cuda_driver_api;

extern cuda_driver_api cuda_driver;

/* The primary context of a device, the one that torch uses; kept for the process. NULL with RuntimeError set if there
 * is no driver or no such device. */
void *cuda_context(int32_t device);

/* Make `context` current; `*previous` is for cuda_leave(). 0, or -1 with an exception set. */
int cuda_enter(void *context, void **previous);
void cuda_leave(void *context, void *previous);

/* The kernel `name` (str) of `cubin` (bytes: a cubin, or PTX text), ready for `shared` bytes of dynamic shared memory.
 * A module is loaded once per device and kept for the process. NULL with an exception set. */
void *cuda_function(int32_t device, PyObject *cubin, PyObject *name, int32_t shared);

/* A zeroed word that the host and every device can address. It is never given out again: a kernel of a dead plan may
 * still be on its way. NULL with an exception set. */
int64_t *cuda_status_word(int32_t device);

/* RuntimeError("<what>: <the driver's words for status>"). */
void cuda_set_error(int32_t status, const char *what);

#pragma GCC visibility pop

#endif
