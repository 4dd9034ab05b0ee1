// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/cub/aligned_pack.hpp>
#include <shardkit/core/element.hpp>

namespace shardkit::gpu {

/// `element` as a To: rounded to nearest, ties to even; between fp64 and a 16-bit type by way of fp32.
template <class To, class From>
constexpr To converted(From element) noexcept {
    return static_cast<To>(static_cast<Arithmetic<To>>(static_cast<Arithmetic<From>>(element)));
}

/// The same for each lane.
template <class To, class From, std::size_t Lanes>
constexpr AlignedPack<To, Lanes> converted_pack(const AlignedPack<From, Lanes>& from) noexcept {
    AlignedPack<To, Lanes> to{};
    for (std::size_t i = 0; i < Lanes; ++i) { to.lane[i] = converted<To>(from.lane[i]); }
    return to;
}

}  // namespace shardkit::gpu
