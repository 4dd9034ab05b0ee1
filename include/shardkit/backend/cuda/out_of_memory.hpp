// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>

#include <shardkit/backend/cuda/error.hpp>

namespace shardkit::gpu {

/// A GPU has no memory for a chunk: what containers get as std::bad_alloc, and name their group to.
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
