// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/core/divided.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit {

/// Maps the elements of an equal part of a tensor, split along one dimension, to the whole tensor; both are
/// row-major. That tensor may itself be an equal part of a longer one, split along dimension 0, as a rank's experts
/// are of all.
/// @post over all parts, whole_index is a one-to-one map onto the whole tensor's elements
class TensorPart {
  public:
    /// Makes the part that is all of a scalar.
    constexpr TensorPart() noexcept = default;
    /// Makes the part that is the whole tensor.
    constexpr explicit TensorPart(const TensorShape& whole) noexcept
        : shape_(whole), block_(whole.numel()), stride_(block_) {}
    /// Makes part `index` of `parts` equal parts along `dimension`.
    /// @pre dimension < whole.rank, parts divides its extent, index < parts
    constexpr TensorPart(const TensorShape& whole, std::size_t dimension, std::size_t parts,
                         std::size_t index) noexcept
        : shape_(whole), dimension_(dimension) {
        shape_.extents[dimension] /= parts;
        block_ = shape_.extents[dimension];
        for (std::size_t d = dimension + 1; d < whole.rank; ++d) { block_ *= whole.extents[d]; }
        stride_ = block_ * parts;
        offset_ = block_ * index;
        first_ = shape_.extents[dimension] * index;
    }

    /// Returns the same part of stack `index` of `stacks` ones that lie one behind the other along dimension 0.
    /// @pre the tensor has a dimension, and is not split along it
    constexpr TensorPart in_stack(std::size_t stacks, std::size_t index) const noexcept {
        TensorPart part = *this;
        part.stacks_ = stacks;
        part.begin_ = span() * index;
        part.first_row_ = shape_.extents[0] * index;
        return part;
    }
    /// Returns part `index` of the parts that this is one of, in stack `stack`; the whole where it is not cut.
    constexpr TensorPart of(std::size_t index, std::size_t stack = 0) const noexcept {
        TensorPart part = *this;
        if (block_ < stride_) {
            part.offset_ = block_ * index;
            part.first_ = shape_.extents[dimension_] * index;
        }
        return stacks_ > 1 ? part.in_stack(stacks_, stack) : part;
    }

    /// Returns the part's shape.
    constexpr const TensorShape& shape() const noexcept { return shape_; }
    constexpr std::size_t numel() const noexcept { return shape_.numel(); }
    /// Returns the index in the whole tensor of element i of the part.
    constexpr std::size_t whole_index(std::size_t i) const noexcept {
        const auto [block, within] = detail::divided(i, block_);
        return begin_ + block * stride_ + offset_ + within;
    }
    /// Returns the index in the part of element `whole` of the whole tensor; numel() where it is in another part.
    constexpr std::size_t index_of(std::size_t whole) const noexcept {
        if (whole < begin_ || whole - begin_ >= span()) { return numel(); }
        whole -= begin_;
        const std::size_t within = whole % stride_;
        if (within < offset_ || within - offset_ >= block_) { return numel(); }
        return whole / stride_ * block_ + within - offset_;
    }
    /// Returns the number of elements from `i` of the part on that are contiguous in the whole tensor too.
    /// @pre i < numel()
    constexpr std::size_t run_at(std::size_t i) const noexcept { return block_ - i % block_; }
    /// Calls f(i, whole, n) for each contiguous run, in order, of elements `first` to `last` of the part: elements i
    /// to i + n of the part are elements `whole` to whole + n of the whole tensor.
    template <class F>
    constexpr void for_each_run(std::size_t first, std::size_t last, F&& f) const {
        while (first < last) {
            const std::size_t left = last - first;
            const std::size_t run = run_at(first) < left ? run_at(first) : left;
            f(first, whole_index(first), run);
            first += run;
        }
    }
    /// Calls f(i, whole, n) likewise for those of the whole tensor's elements `first` to `last` that are in the part.
    template <class F>
    constexpr void for_each_run_within(std::size_t first, std::size_t last, F&& f) const {
        const auto within = [&](std::size_t i) { return i < begin_ ? 0 : i - begin_ < span() ? i - begin_ : span(); };
        first = within(first);
        last = within(last);
        while (first < last) {
            const std::size_t begin = first / stride_ * stride_ + offset_;  // of the block in this stride
            const std::size_t from = first < begin ? begin : first;
            const std::size_t to = begin + block_ < last ? begin + block_ : last;
            if (from < to) { f(index_of(begin_ + from), begin_ + from, to - from); }
            first = begin - offset_ + stride_;
        }
    }
    /// Returns the length of the runs that are contiguous in both; they begin at multiples of it in the part.
    constexpr std::size_t block() const noexcept { return block_; }
    constexpr std::size_t dimension() const noexcept { return dimension_; }
    /// Returns the part's first index along `dimension()`.
    constexpr std::size_t first() const noexcept { return first_; }
    /// Returns the first index of its stack along dimension 0.
    constexpr std::size_t first_row() const noexcept { return first_row_; }

  private:
    /// The elements of its stack.
    constexpr std::size_t span() const noexcept { return block_ == stride_ ? numel() : numel() / block_ * stride_; }

    TensorShape shape_;
    std::size_t dimension_ = 0;
    std::size_t block_ = 1;   // length of the runs that are contiguous in both
    std::size_t stride_ = 1;  // distance between blocks in the whole tensor
    std::size_t offset_ = 0;  // of the first block in the whole tensor
    std::size_t first_ = 0;
    std::size_t stacks_ = 1;
    std::size_t begin_ = 0;  // of its stack in the whole tensor
    std::size_t first_row_ = 0;
};

}  // namespace shardkit
