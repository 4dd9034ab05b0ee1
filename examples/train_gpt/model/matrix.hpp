// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace train_gpt {

enum class Order : std::uint8_t { as_stored, transposed };

/// A row-major matrix in somebody else's memory, or its transpose. `rows` and `columns` are the logical extents
/// (after transposing); `stride` is the distance in elements between two stored rows, `next` that to the next matrix
/// of a batch.
template <class A>
struct Matrix {
    A* data;
    std::size_t rows, columns, stride, next;
    Order order = Order::as_stored;

    template <std::same_as<A> B>
    requires(!std::is_const_v<B>) operator Matrix<const B>() const noexcept {
        return {data, rows, columns, stride, next, order};
    }
};

/// One whose rows, and those of the next one, lie one behind the other.
template <class A>
constexpr Matrix<A> matrix(A* data, std::size_t rows, std::size_t columns) noexcept {
    return {data, rows, columns, columns, rows * columns};
}
template <class A>
constexpr Matrix<A> transposed(Matrix<A> m) noexcept {
    const Order turned = m.order == Order::transposed ? Order::as_stored : Order::transposed;
    return {m.data, m.columns, m.rows, m.stride, m.next, turned};
}

/// Whether a product replaces what its result held or is added to it.
enum class Into : std::uint8_t { overwrite, add };

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
