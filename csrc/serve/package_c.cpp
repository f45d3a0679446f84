#include "pyframe/package_c.h"

#include "pyframe/package.h"

#include <ATen/DLConvertor.h>

struct pyframe_package {
    pyframe::Package package;
};

static thread_local std::string last_error;

/* The tensor of a caller, who keeps its memory. */
static at::Tensor
borrowed(const DLTensor &given)
{
    auto *owner = new DLManagedTensor{given, nullptr, [](DLManagedTensor *self) { delete self; }};
    try {
        return at::fromDLPack(owner);
    } catch (...) {
        delete owner;
        throw;
    }
}

extern "C" {

pyframe_package *
pyframe_load(const char *path, const void *key, size_t key_size, const char *device)
{
    try {
        pyframe::Options options;
        if (key_size > 0) {
            options.key.assign((const char *)key, key_size);
        }
        options.device = device != nullptr ? device : "";
        return new pyframe_package{pyframe::Package(path, options)};
    } catch (const std::exception &error) {
        last_error = error.what();
        return nullptr;
    }
}

void
pyframe_free(pyframe_package *package)
{
    delete package;
}

const char *
pyframe_target(const pyframe_package *package)
{
    return package->package.target().c_str();
}

size_t
pyframe_argument_count(const pyframe_package *package)
{
    return package->package.arguments().size();
}

const char *
pyframe_argument_name(const pyframe_package *package, size_t i)
{
    return package->package.arguments().at(i).name.c_str();
}

int
pyframe_argument_is_tensor(const pyframe_package *package, size_t i)
{
    return package->package.arguments().at(i).is_tensor;
}

size_t
pyframe_result_count(const pyframe_package *package)
{
    return package->package.results();
}

int
pyframe_call(pyframe_package *package, const DLTensor *const *tensors, size_t tensor_count, const int64_t *ints,
             size_t int_count, DLManagedTensor **results, size_t room)
{
    std::vector<DLManagedTensor *> made;
    try {
        if (room < package->package.results()) {
            throw pyframe::Error("it returns " + std::to_string(package->package.results()) + " tensors, and there is "
                                 "room for " + std::to_string(room));
        }
        std::vector<at::Tensor> given;
        for (size_t i = 0; i < tensor_count; i++) {
            given.push_back(borrowed(*tensors[i]));
        }
        std::vector<int64_t> numbers(ints, ints + int_count);
        for (const at::Tensor &result : package->package(given, numbers)) {
            made.push_back(at::toDLPack(result));
        }
    } catch (const std::exception &error) {
        last_error = error.what();
        for (DLManagedTensor *result : made) {
            result->deleter(result);
        }
        return 1;
    }
    std::copy(made.begin(), made.end(), results);
    return 0;
}

const char *
pyframe_error(void)
{
    return last_error.c_str();
}

} /* extern "C" */
