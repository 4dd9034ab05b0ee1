// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/cuda/error.hpp>

#include "unit/backend/cuda/clean_machine.hpp"
#include "unit/thrown_message.hpp"

namespace error_test {

using shardkit::SourceLocation;
using shardkit::gpu::Error;
using shardkit::gpu::detail::check;

TEST_CASE("gpu::detail::check: success passes") {
    const CleanMachine machine;
    CHECK_NOTHROW(check(cudaSuccess, "cudaMalloc"));
}

TEST_CASE("gpu::detail::check: the error names the call, the user's line, the code and the runtime's text") {
    const CleanMachine machine;
    const SourceLocation where{"train.cpp", 41};
    CHECK(thrown_message<Error>([&] { check(cudaErrorMemoryAllocation, "cudaMalloc", where); }) ==
          std::string("cuda: cudaMalloc at train.cpp:41: cudaErrorMemoryAllocation: ") +
              cudaGetErrorString(cudaErrorMemoryAllocation));
    try {
        check(cudaErrorInvalidDevice, "cudaSetDevice", where);
        FAIL("nothing was thrown");
    } catch (const Error& error) {
        CHECK(error.code() == cudaErrorInvalidDevice);
        CHECK(error.call() == "cudaSetDevice");
        CHECK(error.where().line == 41);
    }
    CHECK(thrown_message<Error>([] { check(cudaErrorInvalidValue, "cudaFree"); }).find("error_test.cpp:") !=
          std::string::npos);
}

TEST_CASE("gpu::detail::check: the runtime's last error is cleared, so that nobody finds it again") {
    const CleanMachine machine;
    standin::fail_next("cudaMalloc", cudaErrorMemoryAllocation);
    void* memory = nullptr;
    const cudaError_t code = cudaMalloc(&memory, 8);
    REQUIRE(code == cudaErrorMemoryAllocation);
    REQUIRE(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
    CHECK_THROWS_AS(check(code, "cudaMalloc"), Error);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
}

}  // namespace error_test
