// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <shardkit/core/element.hpp>
#include <shardkit/param/tensor_part.hpp>

namespace shardkit::detail {

/// Sets neighbouring elements of a parameter's part, for Kernels::for_each_index. `Master`: what values are rounded
/// to before they become T, void: to nothing.
template <class T, class Master, class F>
struct FillWork {
    F value;
    TensorPart part;
    std::size_t first;
    T* to;

    constexpr T operator[](std::uint64_t i) const {
        auto its = static_cast<double>(value(std::uint64_t{part.whole_index(first + i)}));
        if constexpr (!std::is_void_v<Master>) {
            its = static_cast<double>(
                static_cast<Arithmetic<Master>>(static_cast<Master>(static_cast<Arithmetic<Master>>(its))));
        }
        return static_cast<T>(static_cast<Arithmetic<T>>(its));
    }
    constexpr void operator()(std::uint64_t i) const { to[i] = (*this)[i]; }
};

}  // namespace shardkit::detail
