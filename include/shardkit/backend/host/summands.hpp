// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

#include <shardkit/backend/host/reducer.hpp>

namespace shardkit::host::detail {

/// The number of elements that are read from a bundle of ranks before the next bundle is.
inline constexpr std::size_t bundle_block = 1024;

/// Adds to `sum`, which is what input `first` has at `offset`, the Ranks - 1 inputs behind it: pairs of neighbours,
/// then pairs of these.
template <std::size_t Ranks, class In, class Sum>
[[gnu::always_inline]] inline void add_tree(Sum& sum, const Operands& operands, std::size_t first,
                                            std::size_t offset) noexcept {
    if constexpr (Ranks > 1) {
        constexpr std::size_t half = Ranks / 2;
        add_tree<half, In>(sum, operands, first, offset);
        Sum right(operands.input<In>(first + half) + offset);
        add_tree<half, In>(right, operands, first + half, offset);
        sum.add(right);
    }
}

/// Stands for 16, 32 or 64 ranks where a number of ranks is a template argument.
inline constexpr std::size_t tree_of_bundles = 16;

/// How a loop over elements, from one to the next `Sum::count` of them, gets its sums: in rank order, or along a tree
/// of `Tree` ranks.
template <std::size_t Tree, class Sum, class In>
class Addition {
  public:
    [[gnu::always_inline]] explicit Addition(const Operands& operands) noexcept : operands_(operands) {}

    /// Goes on to a block of `count` elements from `offset` on.
    [[gnu::always_inline]] void begin_block(std::size_t, std::size_t) noexcept {}
    /// Returns the elements that the sums are at first.
    [[gnu::always_inline]] const In* first(std::size_t offset) const noexcept {
        return operands_.input<In>(0) + offset;
    }
    /// Adds to `sums`, which lie one behind the other from `offset` on, what else belongs to them.
    template <class... Sums>
    [[gnu::always_inline]] void add_to(std::size_t offset, Sums&... sums) const noexcept {
        if constexpr (Tree != 0) {
            ((add_tree<Tree, In>(sums, operands_, 0, offset), offset += Sum::count), ...);
        } else {
            std::size_t q = 1;
            do {  // tested at the end: a test before it would double the instructions, by moves between registers
                const In* from = operands_.input<In>(q) + offset;
                ((sums.add(from), from += Sum::count), ...);
            } while (++q < operands_.ranks);
        }
    }

  private:
    const Operands& operands_;
};

/// The same for 16 to 64 ranks, of which a bundle is read side by side: from more the processor fetches too little
/// ahead. The sums of bundles, of a block that stays in the first-level cache, join as the digits of a binary counter
/// do: digit k is the sum of 2^k bundles.
template <class Sum, class In>
class Addition<tree_of_bundles, Sum, In> {
  public:
    [[gnu::always_inline]] explicit Addition(const Operands& operands) noexcept
        : operands_(operands), last_(operands.ranks - bundle) {}

    /// Adds up the ranks before the last bundle.
    /// @pre count <= bundle_block
    [[gnu::always_inline]] void begin_block(std::size_t offset, std::size_t count) noexcept {
        offset_ = offset;
        for (std::size_t q = 0; q < last_; q += bundle) {
            for (std::size_t i = 0; i < count; i += Sum::count) {
                Sum sum(operands_.input<In>(q) + offset + i);
                add_tree<bundle, In>(sum, operands_, q, offset + i);
                std::byte* const digit = join(sum, q, i);
                ::new (static_cast<void*>(digit)) Sum(sum);
            }
        }
    }
    [[gnu::always_inline]] const In* first(std::size_t offset) const noexcept {
        return operands_.input<In>(last_) + offset;
    }
    template <class... Sums>
    [[gnu::always_inline]] void add_to(std::size_t offset, Sums&... sums) noexcept {
        ((add_tree<bundle, In>(sums, operands_, last_, offset), join(sums, last_, offset - offset_),
          offset += Sum::count),
         ...);
    }

  private:
    /// 16 ranks if a line of each is added at once; of parts of lines, 8 lines wait better for their other parts.
    static constexpr std::size_t bundle = Sum::count * sizeof(In) < 64 ? 8 : 16;
    static constexpr std::size_t digits = bundle == 8 ? 3 : 2;
    static_assert(bundle << digits == Operands::most);
    static constexpr std::size_t digit_bytes = bundle_block / Sum::count * sizeof(Sum);

    /// Adds the sums before `sum`, which is that of the bundle from rank `q` on, that belong to the same subtree.
    /// Returns the place of the result among the digits.
    [[gnu::always_inline]] std::byte* join(Sum& sum, std::size_t q, std::size_t i) noexcept {
        std::byte* digit = digits_ + i / Sum::count * sizeof(Sum);
        for (std::size_t number = q / bundle; number % 2 == 1; number /= 2) {
            sum.add(*std::launder(reinterpret_cast<const Sum*>(digit)));
            digit += digit_bytes;
        }
        return digit;
    }

    const Operands& operands_;
    std::size_t last_;
    std::size_t offset_ = 0;
    alignas(64) std::byte digits_[digits * digit_bytes];
};

}  // namespace shardkit::host::detail
