/* bench ROUNDS CALLS THREADS MODEL.pyframe MODEL.pt2 IDS SIZE...: the time of one call of a package by pyframe and of one
 * by AOTInductor, with one input of these sizes: random floats, or with IDS not 0 numbers below it. Prints two lines, each
 * the median over rounds of the microseconds of a call; the rounds alternate. */
#include <pyframe/package.h>

#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

template <class F>
static double
microseconds(int calls, F call)
{
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; i++) {
        call();
    }
    std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
    return spent.count() / calls;
}

static double
median(std::vector<double> times)
{
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

int
main(int argc, char **argv)
{
    if (argc < 8) {
        return 2;
    }
    int rounds = std::atoi(argv[1]), calls = std::atoi(argv[2]);
    at::set_num_threads(std::atoi(argv[3]));
    std::vector<int64_t> sizes;
    for (int i = 7; i < argc; i++) {
        sizes.push_back(std::atol(argv[i]));
    }
    at::Tensor x = std::atol(argv[6]) > 0 ? at::randint(std::atol(argv[6]), sizes, at::kLong) : at::randn(sizes);
    pyframe::Package ours(argv[4]);
    torch::inductor::AOTIModelPackageLoader theirs(argv[5]);
    std::vector<double> our_times, their_times;
    for (int round = -1; round < rounds; round++) { /* the first is not counted */
        double a = microseconds(calls, [&] { ours({x}); });
        double b = microseconds(calls, [&] { theirs.run({x}); });
        if (round >= 0) {
            our_times.push_back(a);
            their_times.push_back(b);
        }
    }
    std::printf("%.3f\n%.3f\n", median(our_times), median(their_times));
    return 0;
}
