// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::gpu {

/// A call of the CUDA runtime failed: "cuda: cudaMalloc at train.cpp:41: cudaErrorMemoryAllocation: out of memory".
/// Says which call, the runtime's own name and text for the code, and the user's file and line.
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

}  // namespace shardkit::gpu
