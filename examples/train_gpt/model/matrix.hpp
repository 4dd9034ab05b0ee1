// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace train_gpt {

enum class Order : std::uint8_t { as_stored, transposed };

/// A row-major matrix in somebody else's memory, or its transpose. `rows` and `columns` are the logical
/// extents (after transposing); `stride` is the distance in elements between two stored rows.
template <class A>
struct Matrix {
    A* data;
    std::size_t rows;
    std::size_t columns;
    std::size_t stride;
    Order order = Order::as_stored;

    template <std::same_as<A> B>
    requires(!std::is_const_v<B>) operator Matrix<const B>() const noexcept {
        return {data, rows, columns, stride, order};
    }
};

template <class A>
constexpr Matrix<A> matrix(A* data, std::size_t rows, std::size_t columns) noexcept {
    return {data, rows, columns, columns, Order::as_stored};
}

template <class A>
constexpr Matrix<A> matrix(A* data, std::size_t rows, std::size_t columns, std::size_t stride) noexcept {
    return {data, rows, columns, stride, Order::as_stored};
}

template <class A>
constexpr Matrix<A> transposed(Matrix<A> m) noexcept {
    return {m.data, m.columns, m.rows, m.stride, m.order == Order::transposed ? Order::as_stored : Order::transposed};
}

/// Whether a product replaces what its result held or is added to it.
enum class Into : std::uint8_t { overwrite, add };

/// So many products of one shape, and the distances in elements from one's matrices to the next one's.
struct Repeats {
    std::size_t count = 1;
    std::size_t left = 0;
    std::size_t right = 0;
    std::size_t result = 0;
};

/// Multiply-adds of matrix products: of all, and of those in attention, whose work depends on the tokens that a
/// query may see.
struct MultiplyAdds {
    std::uint64_t all = 0;
    std::uint64_t attention = 0;
};

/// What this thread has made so far.
inline MultiplyAdds& multiply_adds() noexcept {
    thread_local MultiplyAdds count;
    return count;
}

}  // namespace train_gpt
