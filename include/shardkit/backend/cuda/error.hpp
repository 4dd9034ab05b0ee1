// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::gpu {

/// Reports that a call of the CUDA runtime failed: "cuda: cudaMalloc at train.cpp:41: cudaErrorMemoryAllocation: out
/// of memory". The text names the call, the user's file and line, and the runtime's name and text of the code.
class Error : public std::runtime_error {
  public:
    Error(cudaError_t code, std::string_view call, SourceLocation where)
        : std::runtime_error(shardkit::detail::concat("cuda: ", call, " at ", where.file, ":", where.line, ": ",
                                                      cudaGetErrorName(code), ": ", cudaGetErrorString(code))),
          code_(code),
          call_(call),
          where_(where) {}

    cudaError_t code() const noexcept { return code_; }
    const std::string& call() const noexcept { return call_; }
    SourceLocation where() const noexcept { return where_; }

  private:
    cudaError_t code_;
    std::string call_;
    SourceLocation where_;
};

/// Reports that a GPU has no memory for a chunk. Containers catch it as std::bad_alloc and add their group's path.
class OutOfMemory : public std::bad_alloc {
  public:
    OutOfMemory(std::string_view call, std::size_t bytes, SourceLocation where)
        // NOLINTNEXTLINE(bugprone-throw-keyword-missing): kept for its text
        : error_(cudaErrorMemoryAllocation, shardkit::detail::concat(call, " of ", bytes, " bytes"), where) {}

    const char* what() const noexcept override { return error_.what(); }

  private:
    Error error_;
};

}  // namespace shardkit::gpu

namespace shardkit::gpu::detail {

/// Checks a result. Clears the runtime's last error of this thread first, so that the next call that reads it does
/// not report this error again.
/// @throws Error with `call`, the runtime's text and the caller's line
inline void check(cudaError_t code, std::string_view call, SourceLocation where = SourceLocation::current()) {
    if (code == cudaSuccess) { return; }
    static_cast<void>(cudaGetLastError());
    throw Error(code, call, where);
}

}  // namespace shardkit::gpu::detail
