/* call_package PACKAGE: calls a package of x * 2 + 1 with three floats from C, and checks the result and the errors. */
#include <pyframe/package_c.h>

#include <stdio.h>
#include <string.h>

static int
failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, pyframe_error());
    return 1;
}

int
main(int argc, char **argv)
{
    float values[3] = {1.0f, 2.0f, -4.0f};
    int64_t size = 3, stride = 1;
    DLTensor x;
    const DLTensor *given = &x;
    DLManagedTensor *result = NULL;
    pyframe_package *package = argc == 2 ? pyframe_load(argv[1], NULL, 0, "cpu") : NULL;
    int i;

    if (package == NULL) {
        return failed("load");
    }
    memset(&x, 0, sizeof x);
    x.data = values;
    x.device.device_type = kDLCPU;
    x.ndim = 1;
    x.dtype.code = kDLFloat;
    x.dtype.bits = 32;
    x.dtype.lanes = 1;
    x.shape = &size;
    x.strides = &stride;
    if (pyframe_argument_count(package) != 1 || strcmp(pyframe_argument_name(package, 0), "x") != 0
        || !pyframe_argument_is_tensor(package, 0) || pyframe_result_count(package) != 1) {
        return failed("arguments");
    }
    if (pyframe_call(package, &given, 1, NULL, 0, &result, 1) != 0) {
        return failed("call");
    }
    for (i = 0; i < 3; i++) {
        if (((const float *)result->dl_tensor.data)[i] != values[i] * 2 + 1) {
            return failed("values");
        }
    }
    result->deleter(result);
    size = 2;
    result = NULL;
    if (pyframe_call(package, &given, 1, NULL, 0, &result, 1) == 0 || strstr(pyframe_error(), "another size") == NULL
        || result != NULL) {
        return failed("a call that does not fit");
    }
    if (pyframe_call(package, &given, 1, NULL, 0, &result, 0) == 0 || strstr(pyframe_error(), "room for 0") == NULL) {
        return failed("no room");
    }
    if (pyframe_load("no such file", NULL, 0, NULL) != NULL || strstr(pyframe_error(), "no such file") == NULL) {
        return failed("a file that is not there");
    }
    printf("%s\n", pyframe_target(package));
    pyframe_free(package);
    return 0;
}
