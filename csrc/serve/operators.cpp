#include "operators.h"

#include "frame.h"
#include "pyframe/error.h"

#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <sstream>

namespace pyframe {

static c10::OperatorName
name_of(const std::string &target)
{
    size_t first = target.find('.'), last = target.rfind('.');
    if (first == std::string::npos || last <= first) {
        throw Error("it calls an operator " + target);
    }
    std::string variant = target.substr(last + 1);
    return {target.substr(0, first) + "::" + target.substr(first + 1, last - first - 1),
            variant == "default" ? "" : variant};
}

c10::OperatorHandle
operator_named(const std::string &name, const std::string &schema)
{
    std::optional<c10::OperatorHandle> found = c10::Dispatcher::singleton().findSchema(name_of(name));
    std::ostringstream text;
    if (found) {
        text << found->schema();
    }
    if (!found || text.str() != schema) {
        throw Error("it calls " + schema + "; this libtorch has " + (found ? text.str() : "no such operator"));
    }
    return *found;
}

static c10::OperatorHandle
known_operator(const std::string &name)
{
    std::optional<c10::OperatorHandle> found = c10::Dispatcher::singleton().findSchema(name_of(name));
    if (!found) {
        throw Error("it calls " + name + ", which this libtorch lacks");
    }
    return *found;
}

Operator::Operator(const Value &step, const Symbols &symbols, const std::vector<int64_t> &values, int buffers,
                   c10::Device device)
    : symbols_(symbols), values_(values), buffers_(buffers), device_(device),
      handle_(known_operator(step.at(1).text())), name_(step.at(1).text())
{
    const c10::FunctionSchema &schema = handle_.schema();
    const std::vector<Value> &args = step.at(2).items(), &kwargs = step.at(3).items(), &out = step.at(5).items();
    std::vector<int> outs;
    for (const Value &each : step.at(4).items()) {
        outs.push_back(int(each.between(-1, buffers - 1)));
    }
    if (args.size() > schema.arguments().size() || (!out.empty() && out.size() != outs.size())) {
        throw Error("it calls " + name_ + " with other arguments than that takes");
    }
    size_t named = 0;
    for (size_t i = 0; i < schema.arguments().size(); i++) {
        const c10::Argument &argument = schema.arguments()[i];
        const Value *given = i < args.size() ? &args[i] : nullptr;
        for (const Value &pair : kwargs) {
            if (pair.at(0).text() == argument.name()) {
                given = &pair.at(1);
                named++;
            }
        }
        int target = -1;
        for (size_t k = 0; k < out.size(); k++) {
            target = out[k].text() == argument.name() ? outs[k] : target;
        }
        if (target >= 0) {
            arguments_.push_back({i, false, false, {target}});
            stack_.emplace_back();
            named++;
        } else if (given != nullptr) {
            stack_.push_back(converted(*given, argument, *argument.type(), i));
        } else if (argument.default_value()) {
            stack_.push_back(*argument.default_value());
        } else {
            throw Error("it calls " + name_ + " without " + argument.name());
        }
    }
    if (named != kwargs.size() + out.size()) {
        throw Error("it calls " + name_ + " with a name that is none of its parameters");
    }
    if (out.empty()) {
        outs_ = outs;
        results_.resize(outs.size());
        const std::vector<Value> &expected = step.at(6).items();
        for (size_t k = 0; k < expected.size() && k < outs.size(); k++) {
            if (expected[k].kind == Value::NONE) {
                continue;
            }
            int itemsize;
            results_[k].checked = true;
            results_[k].dtype = dtype_code(expected[k].at(0).text(), &itemsize);
            for (const Value &size : expected[k].at(1).items()) {
                results_[k].size.push_back(symbols.size(size).at(values));
            }
            for (const Value &stride : expected[k].at(2).items()) {
                results_[k].stride.push_back(symbols.size(stride).at(values));
            }
        }
    }
    find_product(step);
}

/* Products into given memory, which are most calls: no dispatcher in between. */
void
Operator::find_product(const Value &step)
{
    static const std::pair<const char *, Product> known[] = {
        {"aten.mm.out", MM}, {"aten.addmm.out", ADDMM}, {"aten.bmm.out", BMM}, {"aten.baddbmm.out", BADDBMM}};
    for (const auto &[name, product] : known) {
        size_t count = product == MM || product == BMM ? 2 : 3;
        if (name_ != name || device_.type() != c10::DeviceType::CPU || step.at(2).items().size() != count
            || step.at(4).items().size() != 1 || arguments_.size() != count + 1) {
            continue;
        }
        product_ = product;
        for (const Argument &each : arguments_) {
            const std::string &parameter = handle_.schema().arguments()[each.place].name();
            (parameter == "out" ? void(into_ = each.bufs.at(0)) : factors_.push_back(each.bufs.at(0)));
        }
        for (size_t i = 0; i < stack_.size(); i++) {
            const std::string &parameter = handle_.schema().arguments()[i].name();
            if (parameter == "beta" || parameter == "alpha") {
                (parameter == "beta" ? beta_ : alpha_) = stack_[i].toScalar();
            }
        }
        if (into_ < 0 || factors_.size() != count) {
            product_ = NONE;
        }
    }
}

int
Operator::buffer_of(const Value &data) const
{
    return data.kind == Value::NONE ? -1 : int(data["buf"].between(0, buffers_ - 1));
}

static int64_t
constant_of(const Value &data)
{
    static const std::pair<const char *, int64_t> named[] = {
        {"strided", 0}, {"contiguous_format", 0}, {"preserve_format", 1}, {"channels_last", 2}, {"channels_last_3d", 3}};
    const auto &[kind, value] = data.entries().at(0);
    if (kind == "dtype") {
        int itemsize;
        return dtype_code(value.text(), &itemsize);
    }
    for (const auto &[name, number] : named) {
        if (value.text() == name) {
            return number;
        }
    }
    throw Error("it has a constant " + value.text());
}

c10::IValue
Operator::converted(const Value &data, const c10::Argument &argument, const c10::Type &type, size_t place)
{
    bool is_map = data.kind == Value::MAP && !data.entries().empty();
    switch (type.kind()) {
    case c10::TypeKind::OptionalType:
        if (data.kind == Value::NONE) {
            return {};
        }
        return converted(data, argument, *type.expectRef<c10::OptionalType>().getElementType(), place);
    case c10::TypeKind::TensorType:
        arguments_.push_back({place, false, false, {buffer_of(data)}});
        return {};
    case c10::TypeKind::ListType:
        return list_of(data, argument, type.expectRef<c10::ListType>().getElementType(), place);
    case c10::TypeKind::NumberType:
        if (data.kind == Value::BOOL) {
            return data.boolean();
        }
        if (is_map && data.find("complex") != nullptr) {
            return c10::complex<double>(data["complex"].at(0).number(), data["complex"].at(1).number());
        }
        if (data.kind == Value::DOUBLE || (is_map && data.find("real") != nullptr)) {
            return symbols_.real(data, values_);
        }
        return symbols_.size(data).at(values_);
    case c10::TypeKind::FloatType:
        return symbols_.real(data, values_);
    case c10::TypeKind::BoolType:
        return data.kind == Value::INT ? data.integer() != 0 : data.boolean();
    case c10::TypeKind::StringType:
        return data.text();
    case c10::TypeKind::DeviceObjType: {
        c10::Device device(data["device"].text());
        return device.is_cpu() ? device : device_;
    }
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
        if (data.kind == Value::BOOL) {
            return int64_t(data.boolean());
        }
        return is_map && data.find("size") == nullptr ? constant_of(data) : symbols_.size(data).at(values_);
    default:
        throw Error("it calls " + name_ + " with " + argument.name() + ", a " + type.str());
    }
}

c10::IValue
Operator::list_of(const Value &data, const c10::Argument &argument, const c10::TypePtr &element, size_t place)
{
    const c10::Type *inner = element.get();
    bool optional = element->kind() == c10::TypeKind::OptionalType;
    if (optional) {
        inner = element->expectRef<c10::OptionalType>().getElementType().get();
    }
    std::vector<const Value *> items;
    if (data.kind == Value::ARRAY) {
        for (const Value &each : data.items()) {
            items.push_back(&each);
        }
    } else { /* one number for each of a fixed number of items */
        items.assign(size_t(argument.N().value_or(1)), &data);
    }
    if (optional && inner->kind() != c10::TypeKind::TensorType) {
        c10::impl::GenericList list(element);
        for (const Value *each : items) {
            list.push_back(converted(*each, argument, *element, place));
        }
        return list;
    }
    switch (inner->kind()) {
    case c10::TypeKind::TensorType: {
        Argument list{place, true, optional, {}};
        for (const Value *each : items) {
            list.bufs.push_back(buffer_of(*each));
        }
        arguments_.push_back(std::move(list));
        return {};
    }
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: {
        c10::List<int64_t> list;
        for (const Value *each : items) {
            list.push_back(symbols_.size(*each).at(values_));
        }
        return list;
    }
    case c10::TypeKind::FloatType: {
        c10::List<double> list;
        for (const Value *each : items) {
            list.push_back(symbols_.real(*each, values_));
        }
        return list;
    }
    case c10::TypeKind::BoolType: {
        c10::List<bool> list;
        for (const Value *each : items) {
            list.push_back(each->boolean());
        }
        return list;
    }
    case c10::TypeKind::NumberType: {
        c10::List<at::Scalar> list;
        for (const Value *each : items) {
            list.push_back(converted(*each, argument, *inner, place).toScalar());
        }
        return list;
    }
    default:
        throw Error("it calls " + name_ + " with " + argument.name() + ", a list of " + inner->str());
    }
}

at::Tensor
Operator::as_expected(const at::Tensor &found, const Result &expected) const
{
    bool same = int(found.scalar_type()) == expected.dtype && found.sizes() == expected.size, strides = true;
    for (int64_t d = 0; same && d < found.dim(); d++) {
        strides = strides && (expected.size[d] == 1 || found.stride(d) == expected.stride[d]);
    }
    if (!same) {
        throw Error(name_ + " returned a tensor of another size or dtype than where the package was made");
    }
    if (strides || found.numel() == 0) {
        return found;
    }
    at::Tensor copy = at::empty_strided(expected.size, expected.stride, found.options());
    copy.copy_(found);
    return copy;
}

void
Operator::run_product(Frame &frame) const
{
    at::Tensor out = frame.tensor(into_);
    const at::Tensor &a = frame.tensor(factors_[0]), &b = frame.tensor(factors_[1]);
    switch (product_) {
    case MM:
        at::cpu::mm_out(out, a, b);
        break;
    case BMM:
        at::cpu::bmm_out(out, a, b);
        break;
    case ADDMM:
        at::cpu::addmm_out(out, a, b, frame.tensor(factors_[2]), beta_, alpha_);
        break;
    default:
        at::cpu::baddbmm_out(out, a, b, frame.tensor(factors_[2]), beta_, alpha_);
    }
}

at::Tensor
Operator::of(const at::Tensor &x) const
{
    torch::jit::Stack stack = stack_;
    for (const Argument &each : arguments_) {
        if (each.is_list) {
            throw Error(name_ + " lays out no constant");
        }
        stack[each.place] = each.bufs[0] < 0 ? c10::IValue() : c10::IValue(x);
    }
    handle_.callBoxed(stack);
    if (stack.empty() || !stack[0].isTensor()) {
        throw Error(name_ + " lays out no constant");
    }
    return stack[0].toTensor();
}

void
Operator::run(Frame &frame) const
{
    if (product_ != NONE) {
        run_product(frame);
        return;
    }
    torch::jit::Stack stack = stack_;
    for (const Argument &each : arguments_) {
        if (!each.is_list) {
            stack[each.place] = each.bufs[0] < 0 ? c10::IValue() : c10::IValue(frame.tensor(each.bufs[0]));
        } else if (each.optional) {
            c10::List<std::optional<at::Tensor>> list;
            for (int buf : each.bufs) {
                list.push_back(buf < 0 ? std::nullopt : std::make_optional(frame.tensor(buf)));
            }
            stack[each.place] = std::move(list);
        } else {
            c10::List<at::Tensor> list;
            for (int buf : each.bufs) {
                list.push_back(frame.tensor(buf));
            }
            stack[each.place] = std::move(list);
        }
    }
    handle_.callBoxed(stack);
    if (outs_.empty()) {
        return;
    }
    if (stack.size() == 1 && stack[0].isTensorList()) {
        std::vector<at::Tensor> tensors = stack[0].toTensorVector();
        stack.assign(tensors.begin(), tensors.end());
    }
    if (stack.size() < outs_.size()) {
        throw Error(name_ + " returned fewer results than where the package was made");
    }
    for (size_t k = 0; k < outs_.size(); k++) {
        if (outs_[k] >= 0 && stack[k].isTensor()) {
            const at::Tensor &found = stack[k].toTensor();
            frame.set(outs_[k], results_[k].checked ? as_expected(found, results_[k]) : found);
        }
    }
}

} // namespace pyframe
