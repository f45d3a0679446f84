#include "pyframe/package.h"

#include "file.h"
#include "frame.h"
#include "operators.h"
#include "plan.h"

#include <ATen/Version.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <list>
#include <map>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace pyframe {
namespace {

enum { MAX_READY = 256, WARP = 32, FIRST_EXACT = 90, MAX_THREADS = 1024 };

int
level_number(const std::string &level)
{
    return level == "AVX512" ? 2 : level == "AVX2" ? 1 : 0;
}

/* What a machine must have, by a target of the description; and what this one is. */
struct Machine {
    std::string architecture, level;
    int gpu = 0; /* the compute capability, times ten */

    static Machine here(const std::string &device, int *index)
    {
        struct utsname about;
        Machine found;
        found.architecture = uname(&about) == 0 ? about.machine : "?";
        found.level = at::get_cpu_capability();
        *index = 0;
        if (device == "cpu") {
            return found;
        }
        const auto *registered = c10::impl::device_guard_impl_registry[int(c10::DeviceType::CUDA)].load();
        if (registered == nullptr || registered->deviceCount() == 0) {
            return found;
        }
        c10::Device chosen = device.empty() || device == "cuda" ? registered->getDevice() : c10::Device(device);
        *index = chosen.index();
        found.gpu = cuda::capability(chosen.index());
        return found;
    }

    bool runs(const Value &target) const
    {
        int arch = int(target["arch"].between(0, 10000));
        if (target["machine"].text() != architecture || level_number(target["level"].text()) > level_number(level)) {
            return false;
        }
        return arch == 0 || arch == gpu || (arch / 10 == gpu / 10 && arch < gpu && arch < FIRST_EXACT);
    }

    std::string text() const
    {
        return architecture + " with " + level
               + (gpu ? ", a GPU of compute capability " + std::to_string(gpu / 10) + "." + std::to_string(gpu % 10)
                      : ", no GPU");
    }
};

const Value &
chosen_target(const Value &targets, const Machine &machine, const std::string &device)
{
    const Value *best = nullptr;
    std::string names;
    auto better = [](const Value &a, const Value &b) {
        int64_t x = a["arch"].integer(), y = b["arch"].integer();
        return x != y ? x > y : level_number(a["level"].text()) > level_number(b["level"].text());
    };
    for (const Value &each : targets.items()) {
        bool gpu = each["arch"].integer() != 0;
        if (!device.empty() && gpu != (device != "cpu")) {
            continue;
        }
        names += (names.empty() ? "" : ", ") + each["name"].text() + " (" + each["machine"].text() + ")";
        if (machine.runs(each) && (best == nullptr || better(each, *best))) {
            best = &each;
        }
    }
    if (best == nullptr) {
        throw Error("it has no kernels for this machine (" + machine.text() + "); its targets"
                    + (device.empty() ? "" : " for " + device) + ": " + (names.empty() ? "none" : names));
    }
    return *best;
}

/* A library from its bytes, which is never closed. */
void *
opened(Bytes bytes)
{
    const char *folder = std::getenv("TMPDIR");
    std::string path = std::string(folder != nullptr && *folder ? folder : "/tmp") + "/pyframe-XXXXXX";
    int file = mkstemp(path.data()); /* readable by this user alone */
    bool in_folder = file >= 0;
    if (!in_folder) {
        file = memfd_create("pyframe-kernels", MFD_CLOEXEC);
        path = "/proc/self/fd/" + std::to_string(file); /* stays open: the loader knows a library by its path */
    }
    size_t written = 0;
    while (file >= 0 && written < bytes.size) {
        ssize_t more = write(file, bytes.data + written, bytes.size - written);
        if (more <= 0) {
            break;
        }
        written += size_t(more);
    }
    void *library = written == bytes.size ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    const char *why = library == nullptr && written == bytes.size ? dlerror() : "there is no place for them";
    std::string message = library == nullptr && why != nullptr ? why : "";
    if (in_folder) {
        close(file);
        unlink(path.c_str());
    }
    if (library == nullptr) {
        throw Error("its kernels cannot be loaded: " + message);
    }
    return library;
}

} // namespace

struct Package::Parts {
    struct Leaf {
        bool is_tensor, is_int;
        size_t place; /* among the tensors, or among the ints */
    };
    struct Result {
        char kind; /* 'r' of the plan, 'a' an argument, 'f' a constant of the file */
        size_t number;
    };

    std::shared_ptr<File> file; /* also kept by the tensors over its memory */
    std::string target;
    c10::Device device{c10::DeviceType::CPU};
    std::unique_ptr<Plan> plan;
    std::vector<Kernel> kernels;
    std::vector<at::Tensor> constants;
    std::vector<Argument> arguments;
    std::vector<Leaf> leaves;
    std::vector<size_t> taken; /* the leaf that is each argument of the plan */
    std::vector<Result> results;
    std::vector<std::pair<const Value *, std::string>> conditions; /* terms of the description, and as one reads them */
    size_t tensors = 0, ints = 0;

    std::mutex lock;
    std::list<std::pair<std::vector<int64_t>, std::shared_ptr<Instance>>> ready; /* the latest first */
    std::shared_ptr<Instance> only;

    Parts(const std::string &path, const Options &options) : file(std::make_shared<File>(path, options.key))
    {
        int index;
        const Value &about = file->description;
        Machine machine = Machine::here(options.device, &index);
        const Value &entry = chosen_target(about["targets"], machine, options.device);
        target = entry["name"].text();
        if (entry["arch"].integer() != 0) {
            device = c10::Device(c10::DeviceType::CUDA, c10::DeviceIndex(index));
        }
        const Value &data = about["plans"].at(size_t(entry["plan"].between(0, 1 << 20)));
        plan = std::make_unique<Plan>(data, about["symbols"]);
        check_operators(data);
        load_constants();
        lay_out(data["packed"]);
        load_kernels(entry);
        read_signature(about);
        if (plan->symbols.places.empty()) {
            only = std::make_shared<Instance>(*plan, std::vector<int64_t>(), kernels, constants, device);
        }
    }

    void check_operators(const Value &data)
    {
        const Value &schemas = file->description["operators"];
        auto check = [&schemas](const Value &step) {
            if (step.at(0).text() == "extern") {
                const std::string &name = step.at(1).text();
                operator_named(name, schemas[name.c_str()].text());
            }
        };
        for (const Value &step : data["steps"].items()) {
            check(step);
        }
        for (const Value &each : data["packed"].items()) {
            check(each.at(1));
        }
    }

    void load_constants()
    {
        at::AutoDispatchBelowADInplaceOrView no_autograd;
        std::map<std::pair<int64_t, bool>, at::Tensor> memory; /* by section, and whether it is on the CPU */
        for (auto [number, on_host] : plan->fixed) {
            const Value &about = file->description["constants"].at(size_t(number));
            int64_t section = about["section"].integer();
            on_host = on_host || !plan->on_gpu;
            at::Tensor &flat = memory[{section, on_host}];
            if (!flat.defined()) {
                Bytes bytes = file->section(section);
                flat = at::from_blob(
                    bytes.data, {int64_t(bytes.size)}, [kept = file](void *) {},
                    at::TensorOptions().dtype(c10::ScalarType::Byte));
                flat = on_host ? flat : flat.to(device);
            }
            constants.push_back(aligned(constants.size(), constant(about, flat)));
        }
    }

    /* The constant, or a copy with the same strides if kernels of a GPU read it by vectors and its place in the memory of
     * its section is not at a multiple of their size. */
    at::Tensor aligned(size_t position, const at::Tensor &made) const
    {
        auto in = [buf = plan->arguments + int(position)](const std::vector<int> &inputs) {
            return std::find(inputs.begin(), inputs.end(), buf) != inputs.end();
        };
        if (!plan->on_gpu || !in(plan->aligned) || uintptr_t(made.data_ptr()) % INPUT_ALIGNMENT == 0) {
            return made;
        }
        if (in(plan->mutated)) {
            throw Error("a constant that is written is not aligned to 16 bytes");
        }
        at::Tensor copy = at::empty_strided(made.sizes(), made.strides(), made.options());
        copy.copy_(made);
        return copy;
    }

    /* Constants in a layout of oneDNN's own, which is that for this machine. */
    void lay_out(const Value &packed)
    {
        at::AutoDispatchBelowADInplaceOrView no_autograd;
        std::vector<int64_t> no_sizes;
        for (const Value &each : packed.items()) {
            at::Tensor &x = constants.at(size_t(each.at(0).between(0, int64_t(constants.size()) - 1)));
            x = Operator(each.at(1), plan->symbols, no_sizes, 2, device).of(x);
        }
    }

    at::Tensor constant(const Value &about, const at::Tensor &flat) const
    {
        int itemsize, dtype = dtype_code(about["dtype"].text(), &itemsize);
        std::vector<int64_t> size, stride;
        for (const Value &each : about["size"].items()) {
            size.push_back(each.between(0, INT64_MAX));
        }
        for (const Value &each : about["stride"].items()) {
            stride.push_back(each.between(0, INT64_MAX));
        }
        int64_t offset = about["offset"].between(0, INT64_MAX), room = flat.numel() / itemsize - offset, last = 0;
        if (size.size() != stride.size()) {
            throw Error("the constant " + about["name"].text() + " has not a stride for each size");
        }
        bool empty = std::find(size.begin(), size.end(), 0) != size.end();
        for (size_t d = 0; d < size.size() && !empty; d++) {
            int64_t step;
            if (__builtin_mul_overflow(size[d] - 1, stride[d], &step) || __builtin_add_overflow(last, step, &last)) {
                last = INT64_MAX;
                break;
            }
        }
        if (empty ? room < 0 : last >= room) {
            throw Error("the constant " + about["name"].text() + " is larger than its section");
        }
        at::Tensor found = at::detail::make_tensor<c10::TensorImpl>(
            c10::Storage(flat.storage()), flat.key_set(), c10::scalarTypeToTypeMeta(c10::ScalarType(dtype)));
        found.unsafeGetTensorImpl()->set_storage_offset(offset);
        found.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
        return found;
    }

    void load_kernels(const Value &entry)
    {
        for (const Value &each : entry["cubins"].items()) {
            Bytes code = file->section(each.at(0).integer());
            Kernel kernel;
            kernel.launch.threads = uint32_t(each.at(2).between(1, MAX_THREADS / WARP)) * WARP;
            kernel.launch.shared = uint32_t(each.at(3).between(0, 1 << 20));
            kernel.launch.waits = each.at(4).boolean();
            kernel.launch.function = cuda::function(device.index(), code.data, code.size, each.at(1).text(),
                                                    kernel.launch.shared);
            kernels.push_back(std::move(kernel));
        }
        std::vector<void *> libraries;
        for (const Value &each : entry["libraries"].items()) {
            libraries.push_back(opened(file->section(each.integer())));
        }
        while (kernels.size() < plan->kernels.size()) {
            const std::string &name = plan->kernels[kernels.size()];
            Kernel kernel;
            for (void *library : libraries) {
                void *address = kernel.function == nullptr ? dlsym(library, name.c_str()) : nullptr;
                if (address != nullptr) {
                    std::memcpy(&kernel.function, &address, sizeof address);
                }
            }
            if (kernel.function == nullptr) {
                throw Error("no library defines the kernel " + name);
            }
            kernels.push_back(std::move(kernel));
        }
    }

    void read_signature(const Value &about)
    {
        for (const Value &each : about["leaves"].items()) {
            const std::string &kind = each["kind"].text();
            bool is_int = kind == "number", is_tensor = kind == "tensor";
            leaves.push_back({is_tensor, is_int, is_int ? ints : tensors});
            if (is_int || is_tensor) {
                arguments.push_back({each["name"].text(), is_tensor});
                (is_int ? ints : tensors)++;
            }
        }
        for (const Value &each : about["taken"].items()) {
            taken.push_back(size_t(each.between(0, int64_t(leaves.size()) - 1)));
        }
        if (int(taken.size()) != plan->arguments) {
            throw Error("its plan takes other arguments than its function");
        }
        for (size_t i = 0; i < taken.size(); i++) {
            const Leaf &leaf = leaves[taken[i]];
            if (plan->inputs[i].is_tensor ? !leaf.is_tensor : !leaf.is_int) {
                throw Error("its plan takes other arguments than its function");
            }
        }
        for (const Value &each : about["results"].items()) {
            const std::string &kind = each.at(0).text();
            bool computed = kind == "result", given = kind == "argument";
            size_t count = computed ? plan->outputs.size() : given ? leaves.size() : constants.size();
            size_t number = size_t(each.at(1).between(0, int64_t(count) - 1));
            if (given && !leaves[number].is_tensor) {
                throw Error("a result of it is an argument that is no tensor");
            }
            results.push_back({computed ? 'r' : given ? 'a' : 'f', given ? leaves[number].place : number});
        }
        for (const Value &each : about["conditions"].items()) {
            conditions.push_back({&each["term"], each["text"].text()});
        }
    }

    /* ---- a call ---- */

    const Leaf &leaf_of(const Value &number, bool is_tensor) const
    {
        const Leaf &leaf = leaves.at(size_t(number.between(0, int64_t(leaves.size()) - 1)));
        if (is_tensor ? !leaf.is_tensor : !leaf.is_int) {
            throw Error("a condition is on an argument of another kind");
        }
        return leaf;
    }

    /* A term of a condition: {"size": [leaf, dimension]}, {"stride": ...}, {"input": leaf}, {"number": value}, or an
     * operator with terms. */
    int64_t term(const Value &tree, const std::vector<at::Tensor> &given, const std::vector<int64_t> &numbers) const
    {
        if (tree.kind == Value::MAP) {
            if (const Value *number = tree.find("number")) {
                return number->kind == Value::BOOL ? number->boolean() : number->integer();
            }
            if (const Value *number = tree.find("input")) {
                return numbers.at(leaf_of(*number, false).place);
            }
            const Value *size = tree.find("size"), &place = size ? *size : tree["stride"];
            const at::Tensor &x = given.at(leaf_of(place.at(0), true).place);
            if (x.dim() <= place.at(1).between(0, 64)) {
                throw Error("a tensor has fewer dimensions than the package was made for");
            }
            return size ? x.size(place.at(1).integer()) : x.stride(place.at(1).integer());
        }
        const std::string &op = tree.at(0).text();
        if (op == "is" || op == "is not") {
            const at::Tensor &a = given.at(leaf_of(tree.at(1)["input"], true).place);
            return a.is_same(given.at(leaf_of(tree.at(2)["input"], true).place)) == (op == "is");
        }
        int64_t a = term(tree.at(1), given, numbers);
        if (op == "neg") return -a;
        if (op == "abs") return a < 0 ? -a : a;
        if (op == "not") return !a;
        int64_t b = term(tree.at(2), given, numbers);
        if (op == "+") return a + b;
        if (op == "-") return a - b;
        if (op == "*") return a * b;
        if (op == "min") return std::min(a, b);
        if (op == "max") return std::max(a, b);
        if (op == "and") return a && b;
        if (op == "or") return a || b;
        return relate(op, a, b);
    }

    std::shared_ptr<Instance> instance(const std::vector<at::Tensor> &args, const std::vector<int64_t> &values_of_ints)
    {
        if (only) {
            return only;
        }
        std::vector<int64_t> values;
        for (const Symbols::Place &place : plan->symbols.places) {
            const at::Tensor &x = args[size_t(place.input)];
            if (place.kind != 'v' && (!x.defined() || x.dim() <= place.dimension)) {
                throw Error("input " + std::to_string(place.input) + " has fewer dimensions than the package was made for");
            }
            values.push_back(place.kind == 'v' ? values_of_ints[size_t(place.input)]
                             : place.kind == 's' ? x.size(place.dimension) : x.stride(place.dimension));
        }
        std::lock_guard<std::mutex> held(lock);
        for (auto it = ready.begin(); it != ready.end(); ++it) {
            if (it->first == values) {
                ready.splice(ready.begin(), ready, it);
                return it->second;
            }
        }
        std::vector<int64_t> all = values;
        bool small = std::any_of(values.begin(), values.end(), [](int64_t value) { return value < 2; });
        if (small || !plan->symbols.served(all)) {
            throw Error("it was not made for these sizes");
        }
        auto made = std::make_shared<Instance>(*plan, all, kernels, constants, device);
        ready.emplace_front(values, made);
        if (ready.size() > MAX_READY) {
            ready.pop_back();
        }
        return made;
    }

    std::vector<at::Tensor> call(const std::vector<at::Tensor> &given, const std::vector<int64_t> &numbers)
    {
        if (given.size() != tensors || numbers.size() != ints) {
            throw Error("it takes " + std::to_string(tensors) + " tensors and " + std::to_string(ints) + " ints, not "
                        + std::to_string(given.size()) + " and " + std::to_string(numbers.size()));
        }
        for (const auto &[condition, text] : conditions) {
            if (!term(*condition, given, numbers)) {
                throw Error("the program requires " + text);
            }
        }
        std::vector<at::Tensor> args(taken.size());
        std::vector<bool> is_int(taken.size());
        std::vector<int64_t> values(taken.size());
        for (size_t i = 0; i < taken.size(); i++) {
            const Leaf &leaf = leaves[taken[i]];
            is_int[i] = leaf.is_int;
            if (leaf.is_int) {
                values[i] = numbers[leaf.place];
            } else {
                args[i] = given[leaf.place];
            }
        }
        std::vector<at::Tensor> computed = instance(args, values)->call(args, is_int), found;
        for (const Result &each : results) {
            found.push_back(each.kind == 'r' ? computed[each.number] : each.kind == 'a' ? given.at(each.number)
                                                                                       : constants[each.number]);
        }
        return found;
    }
};

static std::string
named(const std::string &path, const std::exception &error)
{
    return path + ": " + error.what();
}

Package::Package(const std::string &path, const Options &options)
{
    try {
        parts_ = std::make_unique<Parts>(path, options);
    } catch (const Error &error) {
        throw Error(named(path, error));
    }
}

Package::~Package() = default;
Package::Package(Package &&) noexcept = default;
Package &Package::operator=(Package &&) noexcept = default;

std::vector<at::Tensor>
Package::operator()(const std::vector<at::Tensor> &tensors, const std::vector<int64_t> &ints)
{
    try {
        return parts_->call(tensors, ints);
    } catch (const Error &error) {
        throw Error(named(parts_->file->path, error));
    }
}

const std::vector<Argument> &
Package::arguments() const
{
    return parts_->arguments;
}

size_t
Package::results() const
{
    return parts_->results.size();
}

const std::string &
Package::target() const
{
    return parts_->target;
}

} // namespace pyframe
