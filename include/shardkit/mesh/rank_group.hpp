// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace shardkit {

/// The ranks of a mesh that share every coordinate but those of some chosen axes, numbered by these axes
/// (the last one fastest). Pure arithmetic: no communicator.
class RankGroup {
  public:
    static constexpr std::size_t max_axes = 8;

    constexpr RankGroup() noexcept = default;

    /// World rank of member `index`.
    /// @pre index < size()   @post member(index()) is the rank the group was asked for
    constexpr std::size_t member(std::size_t index) const noexcept {
        std::size_t rank = base_;
        for (std::size_t a = axis_count_; a > 0; --a) {
            rank += index % extents_[a - 1] * strides_[a - 1];
            index /= extents_[a - 1];
        }
        return rank;
    }
    /// Ranks in the group: the product of the chosen axes' extents.
    constexpr std::size_t size() const noexcept { return size_; }
    /// This rank's number in the group.
    constexpr std::size_t index() const noexcept { return index_; }
    /// The same for all members and for no other group of the same axes: the rank of member 0.
    constexpr std::size_t color() const noexcept { return base_; }

    /// Same members in the same order.
    friend constexpr bool operator==(const RankGroup& a, const RankGroup& b) noexcept {
        if (a.size_ != b.size_) { return false; }
        for (std::size_t i = 0; i < a.size_; ++i) {
            if (a.member(i) != b.member(i)) { return false; }
        }
        return true;
    }

  private:
    friend class AxisGrid;

    std::array<std::size_t, max_axes> extents_{};
    std::array<std::size_t, max_axes> strides_{};
    std::size_t axis_count_ = 0;
    std::size_t base_ = 0;
    std::size_t size_ = 1;
    std::size_t index_ = 0;
};

}  // namespace shardkit
