// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <shardkit/layout/placed_parameter.hpp>

/// A layout and where the N parameters lie that were appended to it.
template <std::size_t N>
class LaidOut : public shardkit::layout::FlatLayout {
  public:
    constexpr LaidOut(const std::array<std::size_t, N>& numels, std::size_t shards, std::size_t alignment,
                      shardkit::Packing packing = shardkit::Packing::aligned)
        : FlatLayout(shards, alignment, packing) {
        for (std::size_t p = 0; p < N; ++p) { parameters_[p].range = append(numels[p]); }
    }

    constexpr shardkit::IndexRange range(std::size_t p) const noexcept { return parameters_[p].range; }
    constexpr std::span<const shardkit::PlacedParameter> parameters() const noexcept { return parameters_; }

  private:
    std::array<shardkit::PlacedParameter, N> parameters_{};
};
