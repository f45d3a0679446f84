/* Runs a package from C++: serve model.pyframe [rows] [key]
 *
 * For the model that make_model.py writes, which takes one tensor of any number of rows of 64 floats. Prints the results
 * of the first row and the time of a call. */
#include <pyframe/package.h>

#include <ATen/ops/ones.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

int
main(int argc, char **argv)
{
    if (argc < 2) {
        std::fprintf(stderr, "usage: serve model.pyframe [rows] [key]\n");
        return 2;
    }
    try {
        pyframe::Options options;
        options.key = argc > 3 ? argv[3] : "";
        pyframe::Package package(argv[1], options);
        for (const pyframe::Argument &argument : package.arguments()) {
            std::printf("takes %s, %s\n", argument.name.c_str(), argument.is_tensor ? "a tensor" : "an int");
        }
        std::printf("kernels for %s\n", package.target().c_str());
        at::Tensor x = at::ones({argc > 2 ? std::atol(argv[2]) : 8, 64});
        std::vector<at::Tensor> results = package({x});
        std::printf("first result:");
        for (int64_t i = 0; i < results[0].size(1); i++) {
            std::printf(" %.6f", results[0].data_ptr<float>()[i]);
        }
        constexpr int calls = 1000;
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; i++) {
            package({x});
        }
        std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
        std::printf("\n%.1f us a call\n", spent.count() / calls);
    } catch (const std::exception &error) { /* of the package, or of an operator */
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
