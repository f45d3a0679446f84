#include "plan.h"

#include "pyframe/error.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pyframe {
namespace {

struct Dtype {
    const char *name;
    int code, itemsize;
};

constexpr Dtype DTYPES[] = {
    {"uint8", 0, 1}, {"int8", 1, 1}, {"int16", 2, 2}, {"int32", 3, 4}, {"int64", 4, 8}, {"float16", 5, 2},
    {"float32", 6, 4}, {"float64", 7, 8}, {"complex32", 8, 4}, {"complex64", 9, 8}, {"complex128", 10, 16},
    {"bool", 11, 1}, {"bfloat16", 15, 2}, {"float8_e5m2", 23, 1}, {"float8_e4m3fn", 24, 1}, {"float8_e5m2fnuz", 25, 1},
    {"float8_e4m3fnuz", 26, 1}, {"uint16", 27, 2}, {"uint32", 28, 4}, {"uint64", 29, 8}, {"float8_e8m0fnu", 44, 1},
};
constexpr int64_t MANY = 1 << 24, MAX_DIMS = 64;
constexpr int64_t ARENA_ALIGNMENT = 128; /* of inductor/runtime/arena.py */

struct Named {
    const char *name;
    StepKind kind;
};

constexpr Named KINDS[] = {
    {"alloc", StepKind::ALLOC}, {"arena", StepKind::ARENA}, {"slot", StepKind::SLOT}, {"kernel", StepKind::KERNEL},
    {"launch", StepKind::LAUNCH}, {"extern", StepKind::EXTERN}, {"view", StepKind::VIEW}, {"free", StepKind::FREE},
    {"status", StepKind::STATUS}, {"counters", StepKind::COUNTERS},
};

int64_t
floor_div(int64_t a, int64_t b)
{
    if (b == 0) {
        throw Error("a size is divided by 0");
    }
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

/* Reads one plan. */
struct PlanReader {
    const Symbols &symbols;
    int buffers, kernels;

    int buffer(const Value &data) const { return int(data.between(0, buffers - 1)); }

    std::vector<Size> sizes(const Value &data) const
    {
        std::vector<Size> found;
        for (const Value &each : data.items()) {
            found.push_back(symbols.size(each));
        }
        return found;
    }

    std::vector<int> buffers_of(const Value &data) const
    {
        std::vector<int> found;
        for (const Value &each : data.items()) {
            found.push_back(buffer(each));
        }
        return found;
    }

    Shape shape(const Value &dtype, const Value &size, const Value &stride) const
    {
        Shape found;
        found.dtype = dtype.text().empty() ? -1 : dtype_code(dtype.text(), &found.itemsize);
        found.size = sizes(size);
        found.stride = sizes(stride);
        if (found.size.size() != found.stride.size() || found.size.size() > MAX_DIMS) {
            throw Error("it has a shape without a stride for each size");
        }
        return found;
    }

    Step step(const Value &data) const
    {
        Step s;
        const std::string &name = data.at(0).text();
        const Named *known = std::find_if(std::begin(KINDS), std::end(KINDS),
                                          [&](const Named &each) { return name == each.name; });
        if (known == std::end(KINDS)) {
            throw Error("it has a step " + name);
        }
        s.kind = known->kind;
        switch (s.kind) {
        case StepKind::ALLOC:
            s.buf = buffer(data.at(1));
            s.shape = shape(data.at(2), data.at(3), data.at(4));
            s.device = data.at(5).text() == "cpu" ? 0 : 1;
            break;
        case StepKind::ARENA:
            s.offset = symbols.size(data.at(1));
            s.on_host = data.at(2).boolean();
            break;
        case StepKind::SLOT:
            s.buf = buffer(data.at(1));
            s.offset.terms.push_back({data.at(2).between(0, INT64_MAX), {}});
            s.shape = shape(data.at(3), data.at(4), data.at(5));
            s.on_host = data.at(6).boolean();
            break;
        case StepKind::KERNEL:
        case StepKind::LAUNCH:
            call(s, data);
            break;
        case StepKind::EXTERN:
            s.data = &data;
            break;
        case StepKind::VIEW:
            s.buf = buffer(data.at(1));
            s.base = buffer(data.at(2));
            s.shape = shape(data.at(3), data.at(4), data.at(5));
            s.offset = symbols.size(data.at(6));
            break;
        case StepKind::FREE:
        case StepKind::STATUS:
        case StepKind::COUNTERS:
            s.buf = buffer(data.at(1));
            break;
        }
        if ((s.kind == StepKind::ALLOC || s.kind == StepKind::SLOT) && s.shape.dtype < 0) {
            throw Error("it has a buffer without a dtype");
        }
        return s;
    }

    void call(Step &s, const Value &data) const
    {
        s.kernel = int(data.at(1).between(0, kernels - 1));
        s.bufs = buffers_of(data.at(2));
        if (s.kind == StepKind::KERNEL) {
            s.ints = sizes(data.at(3));
            return;
        }
        s.grid = sizes(data.at(3));
        s.ints = sizes(data.at(4));
        for (const Value &pair : data.at(5).items()) {
            s.by_value.emplace_back(int(pair.at(0).between(0, int64_t(s.bufs.size()) - 1)),
                                    pair.at(1).between(0, INT64_MAX));
        }
        if (s.grid.size() != 3) {
            throw Error("it has a grid that has not three sizes");
        }
    }
};

std::vector<int>
numbers(const Value &data, int64_t below)
{
    std::vector<int> found;
    for (const Value &each : data.items()) {
        found.push_back(int(each.between(0, below - 1)));
    }
    return found;
}

} // namespace

int64_t
relate(const std::string &op, int64_t a, int64_t b)
{
    if (op == "<") return a < b;
    if (op == "<=") return a <= b;
    if (op == ">") return a > b;
    if (op == ">=") return a >= b;
    if (op == "==") return a == b;
    if (op == "!=") return a != b;
    if (op == "//") return floor_div(a, b);
    if (op == "%") return a - floor_div(a, b) * b;
    throw Error("it compares sizes by " + op);
}

int
dtype_code(const std::string &name, int *itemsize)
{
    for (const Dtype &each : DTYPES) {
        if (name == each.name) {
            *itemsize = each.itemsize;
            return each.code;
        }
    }
    throw Error("it has a dtype " + name);
}

int64_t
Size::at(const std::vector<int64_t> &values) const
{
    int64_t total = 0;
    for (const Term &term : terms) {
        int64_t product = term.coefficient;
        for (int symbol : term.symbols) {
            product *= values[size_t(symbol)];
        }
        total += product;
    }
    return total;
}

void
Symbols::read(const Value &data, const Value &program, int inputs)
{
    for (const Value &each : data.items()) {
        const std::string &kind = each.at(2).text();
        if (kind != "shape" && kind != "stride" && kind != "value") {
            throw Error("it has a size that is found in a " + kind);
        }
        numbers.emplace(each.at(0).text(), int(numbers.size()));
        places.push_back({int(each.at(1).between(0, inputs - 1)), kind == "shape" ? 's' : kind == "stride" ? 't' : 'v',
                          int(each.at(3).between(0, MAX_DIMS - 1))});
    }
    if (program.kind == Value::NONE) {
        return;
    }
    for (const Value &each : program["definitions"].items()) {
        const std::string &op = each.at(1).text();
        const Value &b = each.at(3);
        bool is_scaled = op == "floor*";
        computed.push_back({size(each.at(2)), op, is_scaled ? Size() : size(b), is_scaled ? b.number() : 0});
        numbers.emplace(each.at(0).text(), int(numbers.size()));
    }
    if (numbers.size() != places.size() + computed.size()) {
        throw Error("two of its sizes have one name");
    }
    for (const Value &each : program["assumed"].items()) {
        assumed.push_back({size(each.at(0)), each.at(1).text(), size(each.at(2)), 0});
    }
}

Size
Symbols::size(const Value &data) const
{
    Size found;
    if (data.kind == Value::INT) {
        found.terms.push_back({data.integer(), {}});
        return found;
    }
    for (const Value &term : data["size"].items()) {
        Size::Term read{term.at(0).integer(), {}};
        for (size_t i = 1; i < term.items().size(); i++) {
            auto known = numbers.find(term.at(i).text());
            if (known == numbers.end()) {
                throw Error("it has a size of " + term.at(i).text() + ", which is not known");
            }
            read.symbols.push_back(known->second);
        }
        found.terms.push_back(std::move(read));
    }
    return found;
}

double
Symbols::real(const Value &data, const std::vector<int64_t> &values) const
{
    if (data.kind == Value::DOUBLE) {
        return data.number();
    }
    if (data.kind == Value::INT || data.find("size") != nullptr) {
        return double(size(data).at(values));
    }
    const Value &tree = data["real"];
    const std::string &op = tree.at(0).text();
    double a = real(tree.at(1), values);
    if (op == "sqrt") {
        return std::sqrt(a);
    }
    double b = real(tree.at(2), values);
    if (op == "add") return a + b;
    if (op == "mul") return a * b;
    if (op == "div") return a / b;
    if (op == "pow") return std::pow(a, b);
    throw Error("it computes a number by " + op);
}

bool
Symbols::served(std::vector<int64_t> &values) const
{
    for (const Relation &each : computed) {
        int64_t a = each.a.at(values);
        bool is_scaled = each.op == "floor*";
        values.push_back(is_scaled ? int64_t(std::floor(double(a) * each.factor)) : relate(each.op, a, each.b.at(values)));
    }
    return std::all_of(assumed.begin(), assumed.end(), [&](const Relation &each) {
        return relate(each.op, each.a.at(values), each.b.at(values)) != 0;
    });
}

Plan::Plan(const Value &data, const Value &places)
{
    on_gpu = data["device"].text() != "cpu";
    buffers = int(data["buffers"].between(0, MANY));
    const std::vector<Value> &given = data["inputs"].items(), &constants = data["fixed"].items();
    bound = int(data["bound"].between(0, int64_t(given.size())));
    arguments = int(given.size()) - bound;
    if (int64_t(constants.size()) < bound || int64_t(given.size() + constants.size()) - bound > buffers) {
        throw Error("it has fewer buffers than inputs and constants");
    }
    symbols.read(places, data["program"], arguments);
    for (const Value &name : data["kernels"].items()) {
        kernels.push_back(name.text());
    }
    PlanReader reader{symbols, buffers, int(kernels.size())};
    for (const Value &each : given) {
        const std::string &device = each.at(4).text();
        bool is_tensor = each.at(0).text() == "tensor";
        inputs.push_back({is_tensor, reader.shape(each.at(1), each.at(2), each.at(3)), device == "any",
                          device == "cpu"});
    }
    for (size_t i = 0; i < constants.size(); i++) {
        fixed.emplace_back(int(constants[i].between(0, MANY)), data["places"].at(i).text() == "cpu");
    }
    for (const Symbols::Place &each : symbols.places) {
        const Input &input = inputs[size_t(each.input)];
        if (input.is_tensor ? each.kind == 'v' || each.dimension >= int(input.shape.size.size()) : each.kind != 'v') {
            throw Error("a size that varies is found in no input");
        }
    }
    for (const Value &each : data["steps"].items()) {
        steps.push_back(reader.step(each));
    }
    for (const Value &each : data["outputs"].items()) {
        const std::string &kind = each.at(0).text();
        if (kind == "const") {
            outputs.push_back({Output::NOTHING, 0});
        } else {
            outputs.push_back({kind == "input" ? Output::INPUT : Output::BUFFER, reader.buffer(each.at(1))});
        }
    }
    mutated = numbers(data["mutated"], int64_t(inputs.size()));
    uncounted = numbers(data["uncounted"], int64_t(inputs.size()));
    aligned = numbers(data["aligned"], int64_t(inputs.size()));
    for (const Value &each : data["ranges"].items()) {
        ranges.push_back({reader.buffer(each.at(0)), symbols.size(each.at(1)), each.at(2).between(0, MANY),
                          each.at(3).between(0, MANY)});
    }
}

std::map<int, int64_t>
placed(const std::vector<Range> &ranges, const std::vector<int64_t> &values, int64_t *total)
{
    struct Sized {
        const Range *range;
        int64_t bytes;
    };
    struct Taken {
        const Range *range;
        int64_t start, end;
    };
    std::vector<Sized> largest;
    for (const Range &each : ranges) {
        largest.push_back({&each, each.bytes.at(values)});
    }
    std::stable_sort(largest.begin(), largest.end(), [](const Sized &a, const Sized &b) {
        return a.bytes != b.bytes ? a.bytes > b.bytes : a.range->first < b.range->first;
    });
    std::vector<Taken> taken;
    std::map<int, int64_t> offsets;
    *total = 0;
    for (const Sized &each : largest) {
        int64_t need = std::max(ARENA_ALIGNMENT, (each.bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT);
        int64_t at = 0;
        for (const Taken &other : taken) { /* sorted by start */
            bool live = other.range->first <= each.range->last && each.range->first <= other.range->last;
            if (live && at + need <= other.start) {
                break;
            }
            at = live ? std::max(at, other.end) : at;
        }
        Taken mine{each.range, at, at + need};
        taken.insert(std::upper_bound(taken.begin(), taken.end(), mine,
                                      [](const Taken &a, const Taken &b) { return a.start < b.start; }),
                     mine);
        offsets[each.range->buf] = at;
        *total = std::max(*total, at + need);
    }
    return offsets;
}

} // namespace pyframe
