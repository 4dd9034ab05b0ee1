// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>

#include <shardkit/detail/concat.hpp>
#include <shardkit/layout/index_range.hpp>
#include <shardkit/layout/shard_range.hpp>

namespace shardkit {

/// How parameters lie inside a flat buffer.
enum class Packing : unsigned char {
    aligned,  ///< every parameter starts at a multiple of the alignment
    packed,   ///< no inner padding
    exact     ///< no inner padding and none at the end: memory that somebody else laid out; cannot be sharded
};

/// Where the N parameters of a group lie in its flat buffer, and how that buffer is cut into shards.
/// All buffers of a group (parameters, gradients, master, optimizer states) share these element offsets.
/// @post parameter i is [offset(i), offset(i) + numel(i)); parameters are disjoint, in order, and inside the
///       buffer; padding lies behind a parameter, less than `alignment` elements between two parameters
/// Source:  flat parameters of PyTorch FSDP and Megatron's distributed optimizer
template <std::size_t N>
class FlatLayout {
  public:
    /// @pre alignment > 0, shards > 0
    /// @throws std::length_error when the buffer's element count overflows
    constexpr FlatLayout(const std::array<std::size_t, N>& numels, std::size_t shards, std::size_t alignment,
                         Packing packing = Packing::aligned)
        : shards_(shards) {
        std::size_t end = 0;
        for (std::size_t i = 0; i < N; ++i) {
            const std::size_t begin = packing == Packing::aligned ? checked_round_up(end, alignment) : end;
            end = checked_sum(begin, numels[i]);
            ranges_[i] = {begin, end};
        }
        total_ = end;
        static_cast<void>(checked_sum(total_, checked_product(shards, alignment)));
        shard_numel_ = shardkit::shard_numel(total_, shards, alignment);
        buffer_numel_ = packing == Packing::exact ? total_ : checked_product(shard_numel_, shards);
    }

    constexpr std::size_t offset(std::size_t i) const noexcept { return ranges_[i].begin; }
    constexpr std::size_t numel(std::size_t i) const noexcept { return ranges_[i].size(); }
    constexpr IndexRange range(std::size_t i) const noexcept { return ranges_[i]; }
    /// Of all parameters, in order.
    constexpr std::span<const IndexRange> ranges() const noexcept { return {ranges_.data(), ranges_.size()}; }
    /// Up to the end of the last parameter, inner padding included.
    constexpr std::size_t total() const noexcept { return total_; }
    /// Elements of the full buffer, all padding included.
    constexpr std::size_t buffer_numel() const noexcept { return buffer_numel_; }
    constexpr std::size_t shards() const noexcept { return shards_; }
    constexpr std::size_t shard_numel() const noexcept { return shard_numel_; }
    /// Shard `index` of the buffer: equal sizes, but for Packing::exact, where the last ones may be short.
    constexpr IndexRange shard(std::size_t index) const noexcept {
        return shard_range(index, shard_numel_, buffer_numel_);
    }

  private:
    static constexpr std::size_t checked_sum(std::size_t a, std::size_t b) {
        if (b > std::numeric_limits<std::size_t>::max() - a) { overflow(); }
        return a + b;
    }
    static constexpr std::size_t checked_product(std::size_t a, std::size_t b) {
        if (b != 0 && a > std::numeric_limits<std::size_t>::max() / b) { overflow(); }
        return a * b;
    }
    static constexpr std::size_t checked_round_up(std::size_t n, std::size_t multiple) {
        static_cast<void>(checked_sum(n, multiple));
        return round_up(n, multiple);
    }
    [[noreturn]] static constexpr void overflow() {
        throw std::length_error("FlatLayout: the group's element count overflows 64 bits");
    }

    std::array<IndexRange, N> ranges_{};
    std::size_t shards_ = 1;
    std::size_t total_ = 0;
    std::size_t shard_numel_ = 0;
    std::size_t buffer_numel_ = 0;
};

/// Elements per alignment unit: 128 bytes of the narrowest of the buffers' element types.
/// @post a multiple of it starts on a 128-byte boundary in every one of the buffers
constexpr std::size_t alignment_for(std::size_t narrowest_element_size) noexcept {
    return 128 / narrowest_element_size;
}

}  // namespace shardkit
