/* The parts of torch that tensor_bind.c finds and tensor_view.c uses. Private to these two files. */
#ifndef PYFRAME_TENSOR_BIND_H
#define PYFRAME_TENSOR_BIND_H

#include "tensor_view.h"

#include <string.h>

/* Every read of a tensor uses the state, so it is accessed directly, not through the global offset table. */
#pragma GCC visibility push(hidden)

/* The DLPack C exchange ABI, version 1 (only what is used here). */
typedef struct {
    int32_t device_type, device_id;
} dl_device;

typedef struct {
    void *data;
    dl_device device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct {
    uint32_t major, minor;
    void *previous;
    int (*allocate)(dl_tensor *prototype, void **out, void *context,
                    void (*set_error)(void *context, const char *kind, const char *message));
    int (*from_object)(void *object, void **out);
    int (*to_object)(void *managed, void **out_object);
    int (*view_object)(void *object, dl_tensor *out);
    int (*current_stream)(int32_t device_type, int32_t device_id, void **out);
} dl_exchange;

/* Torch's own C functions; each may be absent. */
typedef int32_t (*get_pointer_fn)(void *handle, void *out);

enum { TENSOR_IMPL_SCAN_BYTES = 176 }; /* no TensorImpl is smaller */

typedef struct tv_state {
    bool bound, use_handle;
    PyTypeObject *tensor_type, *parameter_type;
    const dl_exchange *dlpack;
    PyObject *dtype_to_code, *code_to_dtype; /* dicts */
    getter requires_grad;                    /* C getter behind the attribute */
    void *requires_grad_closure;
    Py_ssize_t handle_offset; /* of the at::Tensor inside a tensor object; -1 unknown */
    bool handle_maybe_owned;  /* a "borrowed" flag precedes it (torch before 2.12) */
    Py_ssize_t keys_offset;   /* of the dispatch key set inside a TensorImpl; -1 unknown */
    Py_ssize_t dim_offset, dtype_offset; /* likewise, of the number of dimensions, and of the word that tells the dtype and
                                            the kind of device; -1 unknown */
    PyObject *python_keys;    /* torch._C._dispatch_keys, the fallback */
    PyObject *python_empty;   /* torch.empty_strided, the fallback */
    get_pointer_fn get_sizes, get_strides, get_dim, get_dtype, get_data_ptr, get_device_type, get_device_index,
        get_storage_offset;
    int32_t (*empty_strided)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, void **);
    int32_t (*delete_handle)(void *);
    int32_t (*cuda_stream)(int32_t device_index, void **stream);
    PyObject *(*wrap)(const void *);
    bool (*impl_requires_grad)(const void *impl); /* TensorImpl's method; spares the attribute protocol */
} tv_state;

extern tv_state tv;

/* The dispatch key set, read through Python. 0, or -1 with an exception set. */
int tv_dispatch_keys_from_python(PyObject *tensor, uint64_t *keys);

/* `wrap(tensor)`; where that throws, which happens if there is no memory for the object, MemoryError (caught.cpp). */
PyObject *tv_wrap_caught(PyObject *(*wrap)(const void *), const void *tensor);

#pragma GCC visibility pop

static inline uint64_t
tv_word_at(const void *base, Py_ssize_t offset)
{
    uint64_t word;
    memcpy(&word, (const char *)base + offset, sizeof word);
    return word;
}

#endif
