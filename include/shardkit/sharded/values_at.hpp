// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/param/tensor_part.hpp>

namespace shardkit::detail {

/// The values of a whole tensor, some at a time: a function of the index, without its type, so that what writes them
/// is compiled once for all functions.
class ValuesAt {
  public:
    /// @pre `value_at`, index in the whole tensor -> double, outlives it
    template <class F>
    static ValuesAt of(const F& value_at) noexcept {
        return {&value_at, [](const void* function, const TensorPart& part, std::size_t first, std::span<double> to) {
                    for (std::size_t i = 0; i < to.size(); ++i) {
                        to[i] = (*static_cast<const F*>(function))(part.whole_index(first + i));
                    }
                }};
    }
    /// Elements of `part` from number `first` on, as many as `to` has.
    void read(const TensorPart& part, std::size_t first, std::span<double> to) const {
        read_(function_, part, first, to);
    }

  private:
    using Read = void (*)(const void* function, const TensorPart& part, std::size_t first, std::span<double> to);
    ValuesAt(const void* function, Read reads) noexcept : function_(function), read_(reads) {}

    const void* function_;
    Read read_;
};

}  // namespace shardkit::detail
