// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string_view>

#include <shardkit/detail/concat.hpp>

namespace shardkit {

/// Reports that there is no memory for a buffer of a group. The text names the group's path, the bytes and the
/// buffer.
class MemoryError : public std::bad_alloc {
  public:
    MemoryError(std::string_view path, std::size_t bytes, std::string_view buffer)
        // NOLINTNEXTLINE(bugprone-throw-keyword-missing): kept for its text
        : text_(detail::concat("'", path, "': no memory for ", bytes, " bytes of ", buffer)) {}

    const char* what() const noexcept override { return text_.what(); }

  private:
    std::runtime_error text_;  // can be copied without throwing
};

}  // namespace shardkit
