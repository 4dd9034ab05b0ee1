// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <shardkit/backend/cub/lanes_for.hpp>

namespace shardkit::gpu {

/// `Lanes` neighbouring elements, aligned so that a copy of all takes accesses of 16 bytes, or one shorter one.
template <class T, std::size_t Lanes>
struct alignas(std::max(alignof(T), std::min(Lanes * sizeof(T), widest_access))) AlignedPack {
    T lane[Lanes];
};

/// `Lanes` neighbouring elements from `from`, in one access where their alignment allows it.
/// @pre `from` is aligned as AlignedPack<T, Lanes> is
template <std::size_t Lanes, class T>
constexpr AlignedPack<T, Lanes> load(const T* from) noexcept {
    return *reinterpret_cast<const AlignedPack<T, Lanes>*>(from);
}

/// The same way back.
/// @pre `to` is aligned as AlignedPack<T, Lanes> is
template <std::size_t Lanes, class T>
constexpr void store(const AlignedPack<T, Lanes>& pack, T* to) noexcept {
    *reinterpret_cast<AlignedPack<T, Lanes>*>(to) = pack;
}

}  // namespace shardkit::gpu
