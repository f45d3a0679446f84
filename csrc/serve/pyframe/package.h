/* Runs what pyframe.package() wrote, with libtorch alone: no Python, no compiler, no tracing.
 *
 *     pyframe::Package package("model.pyframe");
 *     std::vector<at::Tensor> results = package({torch::randn({8, 64})});
 *
 * A package may be called by several threads at once. The file holds machine code: load only files that you trust as
 * you trust your own programs, or give the key that signed them. docs/package.md describes the format. */
#pragma once

#include "error.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pyframe {

struct Options {
    std::string key;         /* if not empty: the file must be signed with it */
    std::string device = ""; /* "cpu", "cuda" or "cuda:1"; "": the current GPU if the file has kernels for it, else the CPU */
};

/* A tensor, or an int that varies, among the arguments of the packaged call. */
struct Argument {
    std::string name; /* where it was, such as x or batch['mask'] */
    bool is_tensor;
};

class Package {
public:
    explicit Package(const std::string &path, const Options &options = {});
    ~Package();
    Package(Package &&) noexcept;
    Package &operator=(Package &&) noexcept;

    /* The results of a call, in the order in which they are found in what the Python function returns; what is not a
     * tensor there is left out. `tensors` and `ints` are the arguments in the order of arguments(). No gradients are
     * recorded. */
    std::vector<at::Tensor> operator()(const std::vector<at::Tensor> &tensors, const std::vector<int64_t> &ints = {});

    const std::vector<Argument> &arguments() const;
    size_t results() const; /* how many tensors a call returns */
    const std::string &target() const; /* of the kernels in use: "avx2", "sm_90" ... */

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

} // namespace pyframe
