/* Tensors without torch headers: metadata, allocation and handles, from functions that torch exports.
 *
 * Two routes, chosen when tv_bind_torch() runs:
 *   handle  a tensor object holds an at::Tensor at a fixed offset (found by scanning for the value of `_cdata`), and a
 *           pointer to it is what the aoti_torch_* C functions take;
 *   DLPack  torch.Tensor.__dlpack_c_exchange_api__, a stable C ABI; the fallback for whatever the first lacks.
 * Each extension module that compiles this file has its own copy of the state and calls tv_bind_torch() itself. */
#ifndef PYFRAME_TENSOR_VIEW_H
#define PYFRAME_TENSOR_VIEW_H

#include "compat.h"
#include <stdbool.h>

/* dtype is c10::ScalarType's number (float32 = 6), device_type c10::DeviceType's (cpu = 0, cuda = 1). device_index is
 * -1 for a device that has none. sizes and strides count elements and live as long as the tensor keeps its shape. */
typedef struct tensor_view {
    void *data; /* first element (storage offset included); NULL for an empty or a data-less tensor */
    const int64_t *sizes;
    const int64_t *strides;
    int64_t ndim;
    int64_t storage_offset; /* 0 through DLPack, which lacks it */
    int32_t dtype;
    int32_t device_type;
    int32_t device_index;
} tensor_view;

enum { TV_ANY_DEVICE = -1, TV_CPU = 0, TV_CUDA = 1, TV_META = 14 };

/* Look everything up. Needs torch imported; safe to call again. 0, or -1 with an exception set. */
int tv_bind_torch(void);
bool tv_is_bound(void);

/* Address of a C symbol of torch's libraries (libc10, libtorch_cpu, libtorch_python, libtorch_cuda), or NULL. */
void *tv_symbol(const char *name);

/* Exactly torch.Tensor or torch.nn.Parameter: nothing is overridden, so the metadata read in C is complete. */
int tv_is_exact_tensor(PyObject *object);

/* Fill `view` from a tensor object. tv_read_meta leaves data and storage_offset at 0. 0, or -1 with an exception
 * set. */
int tv_read(PyObject *tensor, tensor_view *view);
int tv_read_meta(PyObject *tensor, tensor_view *view);

/* The tensor's own handle for the aoti_torch_* functions (borrowed: valid while the object lives), or NULL without an
 * exception where handles are unavailable. */
void *tv_aten_handle(PyObject *tensor);

/* A new tensor object for the at::Tensor behind `handle`; the handle stays the caller's. NULL with an exception set. */
PyObject *tv_wrap_handle(void *handle);

/* A new uninitialised tensor. `strides` may be NULL for contiguous. NULL with an exception set. */
PyObject *tv_empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                           int32_t device_type, int32_t device_index);

/* Sizes or strides as a tuple of ints. NULL with an exception set. */
PyObject *tv_dims_tuple(const int64_t *values, int64_t n);

/* requires_grad: 1 or 0, or -1 with an exception set. */
int tv_requires_grad(PyObject *tensor);

/* The raw dispatch key set. 0, or -1 with an exception set. */
int tv_dispatch_keys(PyObject *tensor, uint64_t *keys);

/* Addresses of 8-byte words that hold a tensor's sizes, strides, dtype, kind of device and dispatch keys: while they
 * are unchanged, so is this metadata. In the order in which they may be read: the first keeps the others alive.
 * Returns their number, at most TV_MAX_STAMPS; 0 where they are not known, without an exception. */
enum { TV_MAX_STAMPS = 16 };
int tv_metadata_stamps(PyObject *tensor, const void **addresses);

/* Metadata that those words do not hold: requires_grad, and the device's index if the tensor is not `on_cpu`. A
 * number to compare with another of the same tensor; -1 with an exception set. */
int tv_unstamped_metadata(PyObject *tensor, bool on_cpu);
bool tv_on_cpu(PyObject *tensor);

/* The stream that torch would launch on. 0, or -1 with an exception set. */
int tv_current_stream(int32_t device_type, int32_t device_index, void **stream);

/* c10::ScalarType's number of a torch.dtype, or -1 with an exception set; and back (a new reference). */
int32_t tv_dtype_code(PyObject *dtype);
PyObject *tv_dtype_object(int32_t code);

/* The parts that were found, as a dict for reports and tests: {"handle": bool, "dlpack": bool, "dispatch_keys": bool, ...}. */
PyObject *tv_describe(void);
/* Force one route ("handle" or "dlpack") so that tests can compare them. 0, or -1 with an exception set. */
int tv_use_route(const char *route);

#endif
