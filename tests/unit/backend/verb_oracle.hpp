// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>

/// Inputs of known values and what verbs must make of them, one element at a time.
namespace verb_oracle {

inline std::uint64_t mixed(std::uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

/// Element `index` of rank `rank`'s input: all bits for integers; floating values of both signs and magnitudes that
/// differ by up to 2^7, so that another order of additions gives other bits.
template <class T>
T value(std::size_t rank, std::size_t index) {
    const std::uint64_t bits = mixed(mixed(rank + 1) + index);
    if constexpr (std::integral<T>) {
        return static_cast<T>(bits);
    } else {
        const double magnitude = static_cast<double>(1U << (bits & 7U));
        const double unit = static_cast<double>(bits >> 11U) / 9007199254740992.0 - 0.5;
        return static_cast<T>(static_cast<shardkit::Arithmetic<T>>(unit * magnitude));
    }
}

/// In which order an engine adds the ranks' elements.
enum class Order { upwards, downwards };

/// The sum of element `index` over `ranks` ranks from `first` on: that of each half, and then of both.
template <class In, class A>
A of_halves(std::size_t first, std::size_t ranks, std::size_t index) {
    if (ranks == 1) { return static_cast<A>(static_cast<shardkit::Arithmetic<In>>(value<In>(first, index))); }
    const A lower = of_halves<In, A>(first, ranks / 2, index);
    return lower + of_halves<In, A>(first + ranks / 2, ranks / 2, index);
}

/// The reduction of element `index` over the ranks in that order, rounded once.
template <class In, class Out>
Out reduced(shardkit::ReduceOp op, std::size_t ranks, std::size_t index, Order order = Order::upwards) {
    if constexpr (std::integral<In>) {
        using Wide = std::conditional_t<std::is_signed_v<In>, std::int64_t, std::uint64_t>;
        Wide result = value<In>(0, index);
        for (std::size_t q = 1; q < ranks; ++q) {
            const Wide next = value<In>(q, index);
            if (op == shardkit::ReduceOp::sum || op == shardkit::ReduceOp::tree_sum) {
                result = static_cast<Wide>(static_cast<std::uint64_t>(result) + static_cast<std::uint64_t>(next));
            } else if ((op == shardkit::ReduceOp::max) == (next > result)) {
                result = next;
            }
        }
        return static_cast<Out>(result);  // modulo 2^bits
    } else {
        using A = shardkit::Arithmetic<Out>;
        if (op == shardkit::ReduceOp::tree_sum) { return static_cast<Out>(of_halves<In, A>(0, ranks, index)); }
        const auto widened = [&](std::size_t place) {
            const std::size_t q = order == Order::upwards ? place : ranks - 1 - place;
            return static_cast<A>(static_cast<shardkit::Arithmetic<In>>(value<In>(q, index)));
        };
        A result = widened(0);
        for (std::size_t q = 1; q < ranks; ++q) {
            const A next = widened(q);
            if (op == shardkit::ReduceOp::sum) {
                result = result + next;
            } else if (op == shardkit::ReduceOp::max ? next > result : next < result) {
                result = next;
            }
        }
        return static_cast<Out>(result);
    }
}

template <class T>
bool same_bits(T a, T b) {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// `size` elements that begin `offset` elements into an allocation, between two margins that nobody may write.
template <class T>
class Guarded {
  public:
    Guarded(std::size_t size, std::size_t offset) : offset_(offset), size_(size), elements_(size + offset + margin) {
        if (!elements_.empty()) {
            std::memset(static_cast<void*>(elements_.data()), 0x5a, elements_.size() * sizeof(T));
        }
    }
    std::span<T> span() { return std::span<T>(elements_).subspan(offset_, size_); }
    std::span<const T> view() const { return std::span<const T>(elements_).subspan(offset_, size_); }
    T& operator[](std::size_t i) { return elements_[offset_ + i]; }
    /// With the margins.
    std::span<T> whole() { return elements_; }
    bool margins_intact() const {
        const auto end = elements_.begin() + static_cast<std::ptrdiff_t>(offset_ + size_);
        return std::all_of(elements_.begin(), elements_.begin() + static_cast<std::ptrdiff_t>(offset_),
                           is_untouched) &&
               std::all_of(end, elements_.end(), is_untouched);
    }
    bool untouched() const { return std::all_of(elements_.begin(), elements_.end(), is_untouched); }

  private:
    static constexpr std::size_t margin = 5;
    static bool is_untouched(const T& element) {
        T pattern;
        std::memset(static_cast<void*>(&pattern), 0x5a, sizeof pattern);
        return same_bits(element, pattern);
    }

    std::size_t offset_;
    std::size_t size_;
    std::vector<T> elements_;
};

}  // namespace verb_oracle
