/* run_package (PACKAGE IN OUT)...: calls packages with the tensors and ints in the files IN and writes their results to
 * OUT, in the format of package_util.py. Each is called twice, the second time in several threads at once, and all
 * results must be equal. The environment variables PYFRAME_TEST_KEY and PYFRAME_TEST_DEVICE give options. */
#include <pyframe/package.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <thread>

static int64_t
read_int(std::ifstream &in)
{
    int64_t value = 0;
    in.read((char *)&value, sizeof value);
    return value;
}

static at::Tensor
read_tensor(std::ifstream &in)
{
    int64_t dtype = read_int(in), ndim = read_int(in);
    std::vector<int64_t> sizes, strides;
    for (int64_t d = 0; d < ndim; d++) {
        sizes.push_back(read_int(in));
    }
    for (int64_t d = 0; d < ndim; d++) {
        strides.push_back(read_int(in));
    }
    int64_t bytes = read_int(in);
    auto type = c10::ScalarType(dtype);
    at::Tensor flat = at::empty({bytes / int64_t(c10::elementSize(type))}, at::TensorOptions().dtype(type));
    in.read((char *)flat.data_ptr(), bytes);
    return flat.as_strided(sizes, strides);
}

static void
write_int(std::ofstream &out, int64_t value)
{
    out.write((const char *)&value, sizeof value);
}

static void
write_tensor(std::ofstream &out, const at::Tensor &x)
{
    at::Tensor dense = x.contiguous();
    write_int(out, int64_t(x.scalar_type()));
    write_int(out, x.dim());
    for (int64_t size : x.sizes()) {
        write_int(out, size);
    }
    for (int64_t stride : x.strides()) {
        write_int(out, stride);
    }
    write_int(out, int64_t(dense.nbytes()));
    out.write((const char *)dense.data_ptr(), std::streamsize(dense.nbytes()));
}

static const char *
setting(const char *name)
{
    const char *value = std::getenv(name);
    return value != nullptr ? value : "";
}

static void
run(const char *path, const char *from, const char *to)
{
    std::ifstream in(from, std::ios::binary);
    std::vector<at::Tensor> tensors;
    std::vector<int64_t> ints;
    for (int64_t n = read_int(in); n > 0; n--) {
        tensors.push_back(read_tensor(in));
    }
    for (int64_t n = read_int(in); n > 0; n--) {
        ints.push_back(read_int(in));
    }
    bool writes = read_int(in) != 0;
    if (std::strncmp(setting("PYFRAME_TEST_DEVICE"), "cuda", 4) == 0) {
        for (auto &tensor : tensors) {
            tensor = tensor.to(at::Device(setting("PYFRAME_TEST_DEVICE")));
        }
    }
    pyframe::Package package(path, {setting("PYFRAME_TEST_KEY"), setting("PYFRAME_TEST_DEVICE")});
    std::vector<at::Tensor> results = package(tensors, ints);
    for (auto &result : results) {
        result = result.cpu();
    }
    if (!writes) {
        std::vector<std::vector<at::Tensor>> others(8);
        std::vector<std::thread> threads;
        for (auto &other : others) {
            threads.emplace_back([&] { other = package(tensors, ints); });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        for (const auto &other : others) {
            for (size_t i = 0; i < results.size(); i++) {
                at::Tensor again = other[i].cpu();
                if (results[i].nbytes() != again.nbytes()
                    || (results[i].nbytes() > 0 && std::memcmp(results[i].contiguous().data_ptr(),
                                                               again.contiguous().data_ptr(), results[i].nbytes()))) {
                    throw std::runtime_error("two calls differ");
                }
            }
        }
    }
    std::ofstream out(to, std::ios::binary);
    write_int(out, int64_t(results.size()));
    for (const at::Tensor &x : results) {
        write_tensor(out, x);
    }
    for (const at::Tensor &x : tensors) { /* they may have been written */
        write_tensor(out, x.cpu());
    }
    std::cout << package.target() << "\n";
}

int
main(int argc, char **argv)
{
    try {
        for (int i = 1; i + 2 < argc; i += 3) {
            run(argv[i], argv[i + 1], argv[i + 2]);
        }
    } catch (const std::exception &error) {
        std::cerr << error.what() << "\n";
        return 1;
    }
    return 0;
}
