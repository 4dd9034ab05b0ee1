// SPDX-License-Identifier: Apache-2.0
#include "../../examples/common/openblas.hpp"

#include <array>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "../../examples/train_gpt/model/host_place.hpp"

namespace blas_test {

using namespace program;
using train_gpt::Into, train_gpt::matmul, train_gpt::Matrix, train_gpt::matrix;

constexpr std::array x86{Instructions::sse, Instructions::avx, Instructions::avx2, Instructions::avx512};

TEST_CASE("each kernel is older than the processors that have more, and one that is not known than none") {
    for (const Instructions processor : x86) {
        for (const Instructions kernel : x86) {
            const Blas made{"", std::string(core_type(kernel)), "", "", processor};
            CHECK(made.older_than_processor() == (kernel < processor));
        }
        CHECK_FALSE(Blas{"", "ARMV8", "", "", processor}.older_than_processor());
        CHECK_FALSE(
            Blas{"", std::string(core_type(processor)), "", "", Instructions::unknown}.older_than_processor());
    }
}

TEST_CASE("a kernel is known by its name, in capitals or not") {
    CHECK(instructions_of_kernel("Prescott") == Instructions::sse);
    CHECK(instructions_of_kernel("Katmai") == Instructions::sse);
    CHECK(instructions_of_kernel("GENERIC") == Instructions::sse);
    CHECK(instructions_of_kernel("Opteron_SSE3") == Instructions::sse);
    CHECK(instructions_of_kernel("Piledriver") == Instructions::avx);
    CHECK(instructions_of_kernel("HASWELL") == Instructions::avx2);
    CHECK(instructions_of_kernel("Zen") == Instructions::avx2);
    CHECK(instructions_of_kernel("Cooperlake") == Instructions::avx512);
    for (const char* const unknown : {"", "Hasw", "Haswell2", "neoversen2", "Prescott Core2"}) {
        CHECK(instructions_of_kernel(unknown) == Instructions::unknown);
    }
    for (const Instructions each : x86) { CHECK(instructions_of_kernel(core_type(each)) == each); }
}

TEST_CASE("where kernel and processor fit, one line names them; else a sentence says what to do") {
    Blas made{"OpenBLAS 0.3.21", "Haswell", "", "", Instructions::avx2};
    CHECK(made.text() == "blas:  OpenBLAS 0.3.21, kernel Haswell\n");
    made.replaced = "Prescott";
    CHECK(made.text() ==
          "blas:  OpenBLAS 0.3.21, kernel Haswell, chosen here: its own choice, Prescott, does not fit "
          "this processor\n");
    made = {"OpenBLAS 0.3.21", "Haswell", "", "", Instructions::avx512};
    CHECK(made.older_than_processor());
    CHECK(made.text() ==
          "blas:  OpenBLAS 0.3.21, kernel Haswell\n       The kernel is older than this processor, which "
          "has AVX-512: matrix products take longer than they need to. Set OPENBLAS_CORETYPE=SkylakeX, "
          "or install a newer OpenBLAS, built with DYNAMIC_ARCH.\n");
    made = {"OpenBLAS 0.3.21", "SkylakeX", "", "skylakex", Instructions::avx2};
    CHECK_FALSE(made.older_than_processor());
    CHECK(made.text() == "blas:  OpenBLAS 0.3.21, kernel SkylakeX (OPENBLAS_CORETYPE=skylakex)\n");
}

TEST_CASE("this process's kernel fits its processor, if the user has not asked for another, and makes products") {
    if (blas().asked.empty()) { CHECK_FALSE(blas().older_than_processor()); }
    // Of 67 x 45 and 45 x 35 whole numbers, so that every sum is exact.
    constexpr std::size_t m = 67, k = 45, n = 35;
    std::vector<float> a(m * k), b(k * n), c(m * n);
    for (std::size_t i = 0; i < a.size(); ++i) { a[i] = static_cast<float>(i * 7 % 5) - 2; }
    for (std::size_t i = 0; i < b.size(); ++i) { b[i] = static_cast<float>(i * 11 % 7) - 3; }
    matmul<float>(matrix(a.data(), m, k), matrix(b.data(), k, n), matrix(c.data(), m, n), Into::overwrite);
    for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
            float sum = 0;
            for (std::size_t l = 0; l < k; ++l) { sum += a[i * k + l] * b[l * n + j]; }
            REQUIRE(c[i * n + j] == sum);
        }
    }
}

}  // namespace blas_test
