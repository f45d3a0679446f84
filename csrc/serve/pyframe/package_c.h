/* The functions of package.h for C: tensors are those of DLPack, whose header is part of libtorch.
 *
 *     pyframe_package *package = pyframe_load("model.pyframe", NULL, 0, "");
 *     DLManagedTensor *result;
 *     if (package == NULL || pyframe_call(package, &x, 1, NULL, 0, &result, 1) != 0) {
 *         fprintf(stderr, "%s\n", pyframe_error());
 *     }
 *     result->deleter(result);
 *     pyframe_free(package);
 *
 * Several threads may call one package at once. A file holds machine code: load only files that you trust as you trust
 * your own programs, or give the key that signed them. */
#ifndef PYFRAME_PACKAGE_C_H
#define PYFRAME_PACKAGE_C_H

#include <ATen/dlpack.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pyframe_package pyframe_package;

/* The package in a file; NULL if it cannot be used, see pyframe_error. `key`: `key_size` bytes with which it must be
 * signed; 0 for none. `device`: "cpu", "cuda" or "cuda:1"; "": the current GPU if the file has kernels for it, else the
 * CPU. */
pyframe_package *pyframe_load(const char *path, const void *key, size_t key_size, const char *device);
void pyframe_free(pyframe_package *package);

/* The machine for which the kernels in use were made: "avx2", "sm_90" ... */
const char *pyframe_target(const pyframe_package *package);

/* The arguments of a call: how many, and of the i-th the name, such as x or batch['mask'], and whether it is a tensor (1)
 * or an int that varies (0). */
size_t pyframe_argument_count(const pyframe_package *package);
const char *pyframe_argument_name(const pyframe_package *package, size_t i);
int pyframe_argument_is_tensor(const pyframe_package *package, size_t i);

/* How many tensors a call returns. */
size_t pyframe_result_count(const pyframe_package *package);

/* Calls the package with the tensors and ints among the arguments, each kind in order, and writes the results to
 * `results`, which has room for `room` of them. The tensors stay the caller's, and their memory has to live until the
 * results are deleted, as results may share it. The caller owns the results: `result->deleter(result)` ends each. 0 if
 * all went well, else nothing is written; see pyframe_error. */
int pyframe_call(pyframe_package *package, const DLTensor *const *tensors, size_t tensor_count, const int64_t *ints,
                 size_t int_count, DLManagedTensor **results, size_t room);

/* Why the last function that failed in this thread did so. Valid until the next one fails. */
const char *pyframe_error(void);

#ifdef __cplusplus
}
#endif

#endif
