// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>

namespace train_gpt {

/// Hands out pieces of one block of memory, each aligned to 128 bytes, and never gives one back.
/// An arena without memory only counts: a layout run on it yields its exact size in bytes, so that the plan and
/// the pointers come from the same lines.
class Arena {
  public:
    static constexpr std::size_t alignment = 128;

    /// Counts only; every pointer handed out is null.
    Arena() noexcept = default;

    /// Works in [begin, begin + bytes); `begin` is aligned to 128 bytes.
    Arena(std::byte* begin, std::size_t bytes) noexcept : begin_(begin), bytes_(bytes) {}

    /// @throws std::logic_error when the block is too small: a layout differs from its plan
    template <class X>
    X* take(std::size_t count) {
        const std::size_t offset = used_;
        used_ += (count * sizeof(X) + alignment - 1) / alignment * alignment;
        if (begin_ == nullptr) { return nullptr; }
        if (used_ > bytes_) {
            throw std::logic_error("Arena: " + std::to_string(used_) + " bytes asked for, " + std::to_string(bytes_) +
                                   " planned");
        }
        return reinterpret_cast<X*>(begin_ + offset);
    }

    std::size_t used() const noexcept { return used_; }

  private:
    std::byte* begin_ = nullptr;
    std::size_t bytes_ = 0;
    std::size_t used_ = 0;
};

}  // namespace train_gpt
