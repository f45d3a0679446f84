/* A plan as the description of a package has it, with its sizes as polynomials over symbols; and for given values of
 * these. Needs no libtorch. */
#pragma once

#include "value.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pyframe {

/* The sum of coefficients times products of symbols, which are numbers of `Symbols`. */
struct Size {
    struct Term {
        int64_t coefficient;
        std::vector<int> symbols;
    };
    std::vector<Term> terms;

    int64_t at(const std::vector<int64_t> &values) const;
};

/* The symbols of a graph. The first ones are read from the inputs, the others computed from symbols before them; and
 * what must hold of all. */
struct Symbols {
    struct Place {
        int input;
        char kind; /* 's' of a size, 't' of a stride, 'v' of an int */
        int dimension;
    };
    struct Relation {
        Size a;
        std::string op;
        Size b;
        double factor; /* instead of `b`, if the operator is "floor*" */
    };
    std::vector<Place> places;
    std::vector<Relation> computed;
    std::vector<Relation> assumed;
    std::map<std::string, int> numbers;

    void read(const Value &symbols, const Value &program, int inputs);
    Size size(const Value &data) const;
    double real(const Value &data, const std::vector<int64_t> &values) const; /* of a number that may be a float */
    bool served(std::vector<int64_t> &values) const; /* adds the computed symbols to those of `places` */
};

struct Shape {
    int dtype; /* a c10::ScalarType */
    int itemsize;
    std::vector<Size> size, stride;
};

enum class StepKind { ALLOC, ARENA, SLOT, KERNEL, LAUNCH, EXTERN, VIEW, FREE, STATUS, COUNTERS };

struct Step {
    StepKind kind;
    int buf = -1, base = -1;
    Shape shape;
    Size offset; /* SLOT: bytes; VIEW: elements; ARENA: the size in bytes */
    bool on_host = false;
    int device = -1; /* ALLOC: 0 for the CPU, 1 for the plan's device */
    int kernel = -1;
    std::vector<int> bufs;
    std::vector<Size> ints, grid;
    std::vector<std::pair<int, int64_t>> by_value;
    const Value *data = nullptr; /* EXTERN: of the description */
};

struct Input {
    bool is_tensor;
    Shape shape;
    bool any_device, on_host;
};

struct Output {
    enum Kind { BUFFER, INPUT, NOTHING } kind;
    int number;
};

struct Range {
    int buf;
    Size bytes;
    int64_t first, last;
};

struct Plan {
    bool on_gpu;
    std::vector<Input> inputs; /* arguments, then bound constants */
    std::vector<std::pair<int, bool>> fixed; /* the constants: numbers, and whether each is on the host of a GPU's plan */
    int arguments, bound, buffers;
    std::vector<Step> steps;
    std::vector<Output> outputs;
    std::vector<std::string> kernels;
    std::vector<int> mutated, uncounted, aligned;
    std::vector<Range> ranges;
    Symbols symbols;

    Plan(const Value &data, const Value &symbols);
};

/* The offsets of the slots of a plan with `ranges`, and the size of the arena; as inductor/runtime/arena.py places
 * them. */
std::map<int, int64_t> placed(const std::vector<Range> &ranges, const std::vector<int64_t> &values, int64_t *total);

/* `a op b` for a comparison (1 or 0), "//" or "%", as Python computes it. */
int64_t relate(const std::string &op, int64_t a, int64_t b);

/* The c10::ScalarType and the size in bytes of a dtype. */
int dtype_code(const std::string &name, int *itemsize);

} // namespace pyframe
