// SPDX-License-Identifier: Apache-2.0
// Loaded before a program's BLAS: notes the shapes of each thread's matrix products, and when the program has ended
// makes them again, and nothing else, on as many threads at once. SHARDKIT_PRODUCTS names the file that gets the
// result. Operands are the first bytes of three buffers, which so stay in the caches: no program's products can be
// faster.
#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <cblas.h>
#include <dlfcn.h>

namespace {

using Gemm = decltype(&cblas_sgemm);

Gemm next_gemm() {
    static const Gemm found = reinterpret_cast<Gemm>(dlsym(RTLD_NEXT, "cblas_sgemm"));
    return found;
}

struct Product {
    CBLAS_ORDER layout;
    CBLAS_TRANSPOSE left, right;
    blasint m, n, k;
    blasint left_stride, right_stride, result_stride;
    float beta;

    static std::size_t extent(blasint rows, blasint columns, blasint stride, bool transposed) {
        return static_cast<std::size_t>(transposed ? columns : rows) * static_cast<std::size_t>(stride);
    }
    std::size_t left_size() const { return extent(m, k, left_stride, left != CblasNoTrans); }
    std::size_t right_size() const { return extent(k, n, right_stride, right != CblasNoTrans); }
    std::size_t result_size() const { return extent(m, n, result_stride, false); }
};
using Products = std::vector<Product>;

std::mutex mutex;
std::vector<std::unique_ptr<Products>> of_threads;
bool replaying = false;

void replay();

Products& of_this_thread() {
    thread_local Products* mine = nullptr;
    if (mine == nullptr) {
        const std::lock_guard lock(mutex);
        if (of_threads.empty() && std::atexit(replay) != 0) { std::abort(); }
        mine = of_threads.emplace_back(std::make_unique<Products>()).get();
    }
    return *mine;
}

struct Operands {
    explicit Operands(const Products& products) {
        std::size_t a = 0;
        std::size_t b = 0;
        std::size_t c = 0;
        for (const Product& product : products) {
            a = std::max(a, product.left_size());
            b = std::max(b, product.right_size());
            c = std::max(c, product.result_size());
        }
        left.assign(a, 0.5F);
        right.assign(b, 0.25F);
        result.assign(c, 0.0F);
    }
    std::vector<float> left, right, result;

    void make(const Products& products) {
        for (const Product& p : products) {
            next_gemm()(p.layout, p.left, p.right, p.m, p.n, p.k, 1.0F, left.data(), p.left_stride, right.data(),
                        p.right_stride, p.beta, result.data(), p.result_stride);
        }
        // What is added to again and again would overflow.
        std::fill(result.begin(), result.end(), 0.0F);
    }
};

/// Seconds from the first thread's begin to the last one's end, for each of a few turns after one that counts
/// nothing.
std::vector<double> times() {
    using Clock = std::chrono::steady_clock;
    constexpr std::size_t turns = 4;
    const std::size_t count = of_threads.size();
    std::vector<std::vector<Clock::time_point>> begins(count), ends(count);
    std::barrier<> together(static_cast<std::ptrdiff_t>(count));
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < count; ++t) {
        threads.emplace_back([&, t] {
            Operands operands(*of_threads[t]);
            for (std::size_t turn = 0; turn < turns; ++turn) {
                together.arrive_and_wait();
                begins[t].push_back(Clock::now());
                operands.make(*of_threads[t]);
                ends[t].push_back(Clock::now());
            }
        });
    }
    for (std::thread& thread : threads) { thread.join(); }
    std::vector<double> seconds;
    for (std::size_t turn = 1; turn < turns; ++turn) {
        Clock::time_point begin = begins[0][turn];
        Clock::time_point end = ends[0][turn];
        for (std::size_t t = 1; t < count; ++t) {
            begin = std::min(begin, begins[t][turn]);
            end = std::max(end, ends[t][turn]);
        }
        seconds.push_back(std::chrono::duration<double>(end - begin).count());
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds;
}

/// By hand: the JSON library's destructors may have run.
void replay() {
    const char* const file = std::getenv("SHARDKIT_PRODUCTS");
    if (file == nullptr) { return; }
    replaying = true;
    std::size_t products = 0;
    std::uint64_t multiply_adds = 0;
    for (const auto& list : of_threads) {
        products += list->size();
        for (const Product& p : *list) {
            multiply_adds +=
                static_cast<std::uint64_t>(p.m) * static_cast<std::uint64_t>(p.n) * static_cast<std::uint64_t>(p.k);
        }
    }
    // m, n, k, whether an operand is transposed, whether the product is added to its result: and how many there are.
    std::map<std::array<blasint, 6>, std::size_t> kinds;
    for (const auto& list : of_threads) {
        for (const Product& p : *list) {
            ++kinds[{p.m, p.n, p.k, p.left != CblasNoTrans, p.right != CblasNoTrans, p.beta != 0}];
        }
    }
    const std::vector<double> seconds = times();
    std::FILE* const out = std::fopen(file, "w");
    if (out == nullptr) { return; }
    std::fprintf(
        out, "{\"threads\": %zu, \"products\": %zu, \"multiply_adds\": %llu, \"seconds\": %.9g, \"kinds\": [",
        of_threads.size(), products, static_cast<unsigned long long>(multiply_adds), seconds[seconds.size() / 2]);
    const char* between = "";
    for (const auto& [kind, count] : kinds) {
        std::fprintf(out, "%s[", between);
        for (const blasint each : kind) { std::fprintf(out, "%lld, ", static_cast<long long>(each)); }
        std::fprintf(out, "%zu]", count);
        between = ", ";
    }
    std::fputs("]}\n", out);
    std::fclose(out);
}

}  // namespace

extern "C" void cblas_sgemm(CBLAS_ORDER layout, CBLAS_TRANSPOSE left, CBLAS_TRANSPOSE right, blasint m, blasint n,
                            blasint k, float alpha, const float* a, blasint a_stride, const float* b,
                            blasint b_stride, float beta, float* c, blasint c_stride) {
    if (!replaying) {
        of_this_thread().push_back({layout, left, right, m, n, k, a_stride, b_stride, c_stride, beta});
    }
    next_gemm()(layout, left, right, m, n, k, alpha, a, a_stride, b, b_stride, beta, c, c_stride);
}
