/* ATen operators that a plan calls, through the dispatcher. */
#pragma once

#include "plan.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string>
#include <vector>

namespace pyframe {

class Frame;

/* One call of an operator, for given sizes. */
class Operator {
public:
    /* `step`: an EXTERN of the description. `device`: that of the plan, in the place of any GPU. */
    Operator(const Value &step, const Symbols &symbols, const std::vector<int64_t> &values, int buffers,
             c10::Device device);

    void run(Frame &frame) const;
    at::Tensor of(const at::Tensor &x) const; /* the first result, where each buffer is `x` */

private:
    struct Argument {
        size_t place;          /* on the stack */
        bool is_list, optional; /* a list of tensors, of such that may be missing */
        std::vector<int> bufs; /* -1: none */
    };
    struct Result {
        bool checked = false;
        int dtype = 0;
        std::vector<int64_t> size, stride;
    };

    c10::IValue converted(const Value &data, const c10::Argument &argument, const c10::Type &type, size_t place);
    c10::IValue list_of(const Value &data, const c10::Argument &argument, const c10::TypePtr &element, size_t place);
    int buffer_of(const Value &data) const;
    at::Tensor as_expected(const at::Tensor &found, const Result &expected) const;

    const Symbols &symbols_;
    const std::vector<int64_t> &values_; /* valid while this is built */
    int buffers_;
    c10::Device device_;
    c10::OperatorHandle handle_;
    std::string name_;
    torch::jit::Stack stack_; /* the arguments, with nothing where buffers go */
    std::vector<Argument> arguments_;
    std::vector<int> outs_; /* empty if the results are written into given buffers */
    std::vector<Result> results_;
    enum Product { NONE, MM, ADDMM, BMM, BADDBMM } product_ = NONE; /* called without the dispatcher on the CPU */
    std::vector<int> factors_;
    int into_ = -1;
    at::Scalar beta_ = 1, alpha_ = 1;
    void find_product(const Value &step);
    void run_product(Frame &frame) const;
};

/* The operator with a name like "aten.addmm.out", whose schema must be `schema`. Error if this libtorch lacks it or has
 * another. */
c10::OperatorHandle operator_named(const std::string &name, const std::string &schema);

} // namespace pyframe
