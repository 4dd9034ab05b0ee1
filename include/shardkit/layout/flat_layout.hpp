// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <stdexcept>

#include <shardkit/detail/concat.hpp>
#include <shardkit/layout/index_range.hpp>

namespace shardkit::detail {

/// Rounds `n` up to a multiple.
/// @pre multiple > 0, the result fits   @post the smallest multiple of `multiple` that is at least n
constexpr std::size_t round_up(std::size_t n, std::size_t multiple) noexcept {
    return n / multiple * multiple + (n % multiple == 0 ? 0 : multiple);
}

/// Divides `n` by `divisor` and rounds up.
/// @pre divisor > 0   @post the smallest q with q * divisor >= n
constexpr std::size_t divide_up(std::size_t n, std::size_t divisor) noexcept {
    return n / divisor + (n % divisor == 0 ? 0 : 1);
}

/// Returns the elements of every shard when `total` elements are split into `shards` equal aligned pieces.
/// @pre shards > 0, alignment > 0
/// @post a multiple of alignment; shards times it holds total; one alignment less would not hold it
constexpr std::size_t shard_numel(std::size_t total, std::size_t shards, std::size_t alignment) noexcept {
    return round_up(divide_up(total, shards), alignment);
}

/// Returns shard `index` of a buffer of `buffer_numel` elements split into pieces of `numel`. It is clipped to the
/// buffer, so that the last shards may be short or empty.
/// @post over all indices the ranges are disjoint, in order, and cover the buffer
constexpr IndexRange shard_range(std::size_t index, std::size_t numel, std::size_t buffer_numel) noexcept {
    const std::size_t full_shards = numel == 0 ? 0 : buffer_numel / numel;
    const std::size_t begin = index <= full_shards ? index * numel : buffer_numel;
    const std::size_t end = index < full_shards ? begin + numel : buffer_numel;
    return {begin, end};
}

}  // namespace shardkit::detail

namespace shardkit {

/// How parameters lie inside a flat buffer.
enum class Packing : unsigned char {
    aligned,  ///< every parameter starts at a multiple of the alignment
    packed,   ///< no padding between parameters
    exact     ///< no padding at all: memory with a given layout; cannot be sharded
};

}  // namespace shardkit

namespace shardkit::layout {

/// The layout of a group's parameters, one after the other in a flat buffer that is split into shards.
///     FlatLayout layout(3, alignment_for(sizeof(float)));
///     const IndexRange weight = layout.append(100);
/// All buffers of a group (parameters, gradients, master, optimizer states) share these element offsets.
/// @post appended ranges are disjoint, in order, and inside the buffer; padding follows a parameter, with less than
///       `alignment` elements between two parameters
/// Source:  flat parameters of PyTorch FSDP and Megatron's distributed optimizer
class FlatLayout {
  public:
    /// Makes the layout of an empty buffer.
    /// @pre alignment > 0, shards > 0
    constexpr FlatLayout(std::size_t shards, std::size_t alignment, Packing packing = Packing::aligned) noexcept
        : shards_(shards), alignment_(alignment), packing_(packing) {}

    /// Appends a parameter of `numel` elements, and returns its range.
    /// @throws std::length_error when the buffer's element count overflows
    constexpr IndexRange append(std::size_t numel) {
        const std::size_t begin = packing_ == Packing::aligned ? checked_round_up(total_, alignment_) : total_;
        const std::size_t end = checked_sum(begin, numel);
        static_cast<void>(checked_sum(end, checked_product(shards_, alignment_)));
        total_ = end;
        shard_numel_ = shardkit::detail::shard_numel(total_, shards_, alignment_);
        buffer_numel_ = packing_ == Packing::exact ? total_ : checked_product(shard_numel_, shards_);
        return {begin, end};
    }

    /// Returns the end of the last parameter, inner padding included.
    constexpr std::size_t total() const noexcept { return total_; }
    /// Returns the number of elements of the full buffer, all padding included.
    constexpr std::size_t buffer_numel() const noexcept { return buffer_numel_; }
    constexpr std::size_t shards() const noexcept { return shards_; }
    constexpr std::size_t shard_numel() const noexcept { return shard_numel_; }
    /// Returns shard `index` of the buffer. Sizes are equal, except for Packing::exact, where the last ones may be
    /// short.
    constexpr IndexRange shard(std::size_t index) const noexcept {
        return detail::shard_range(index, shard_numel_, buffer_numel_);
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
        return detail::round_up(n, multiple);
    }
    [[noreturn]] static void overflow() {
        throw std::length_error("FlatLayout: the group's element count overflows 64 bits");
    }

    std::size_t shards_;
    std::size_t alignment_;
    Packing packing_;
    std::size_t total_ = 0;
    std::size_t shard_numel_ = 0;
    std::size_t buffer_numel_ = 0;
};

/// Returns the elements of one alignment unit: 128 bytes of the narrowest element type of the buffers.
/// @post a multiple of it starts on a 128-byte boundary in each of the buffers
constexpr std::size_t alignment_for(std::size_t narrowest_element_size) noexcept {
    return 128 / narrowest_element_size;
}

}  // namespace shardkit::layout
