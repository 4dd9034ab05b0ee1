// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstring>

#include <shardkit/muon/host_products.hpp>
#include <shardkit/optim/matrix_products.hpp>

// Defines the products of HostProducts.

namespace shardkit::detail {

/// A register-sized vector as GCC and clang define it.
template <class A>
struct ProductVector {
    // NOLINTNEXTLINE(modernize-use-using): clang 14 takes the attribute of a dependent type here only
    typedef A type __attribute__((vector_size(32)));
};

/// A product in tiles of `tile_rows` rows and one vector of columns, whose sums stay in registers. The columns of the
/// right factor are copied in blocks of `block` rows, so that the inner loop reads neighbours.
template <std::floating_point A>
class TiledProduct {
    using Vector = typename ProductVector<A>::type;
    static constexpr std::size_t tile_rows = 6;
    static constexpr std::size_t tile_columns = sizeof(Vector) / sizeof(A);
    static constexpr std::size_t block = 256;
    struct Place {
        std::size_t k, inner, i, j;  // of a tile, and of the block of rows that it adds up
    };
    using Columns = std::array<A, block * tile_columns>;

  public:
    /// `gram`: the right factor is transposed, and only elements on and below the diagonal are computed.
    static void multiply(const rules::MatrixProduct<A>& shape, bool gram) {
        if (shape.inner == 0) { return; }
        const std::size_t down = gram ? 1 : shape.columns;
        const std::size_t across = gram ? shape.inner : 1;
        Columns columns{};
        for (std::size_t k = 0; k < shape.inner; k += block) {
            const std::size_t inner = std::min(block, shape.inner - k);
            for (std::size_t j = 0; j < shape.columns; j += tile_columns) {
                const std::size_t width = std::min(tile_columns, shape.columns - j);
                for (std::size_t at = 0; at < inner; ++at) {
                    const A* const right = shape.right + (k + at) * down + j * across;
                    for (std::size_t c = 0; c < width; ++c) { columns[at * tile_columns + c] = right[c * across]; }
                }
                // The first tile that reaches the diagonal; earlier ones are above it.
                for (std::size_t i = gram ? j / tile_rows * tile_rows : 0; i < shape.rows; i += tile_rows) {
                    add_tile(shape, gram, {k, inner, i, j}, columns);
                }
            }
        }
    }

  private:
    static void add_tile(const rules::MatrixProduct<A>& shape, bool lower, const Place& at, const Columns& columns) {
        std::array<const A*, tile_rows> rows{};
        const std::size_t height = std::min(tile_rows, shape.rows - at.i);
        for (std::size_t r = 0; r < tile_rows; ++r) {
            // Missing rows repeat the last one, and are not written.
            rows[r] = shape.left + (at.i + std::min(r, height - 1)) * shape.inner + at.k;
        }
        std::array<Vector, tile_rows> sums{};
        for (std::size_t k = 0; k < at.inner; ++k) {
            Vector right;
            std::memcpy(&right, columns.data() + k * tile_columns, sizeof right);
            for (std::size_t r = 0; r < tile_rows; ++r) { sums[r] += rows[r][k] * right; }
        }
        for (std::size_t r = 0; r < height; ++r) {
            const std::size_t row = at.i + r;
            const std::size_t end = std::min({at.j + tile_columns, shape.columns, lower ? row + 1 : shape.columns});
            for (std::size_t j = at.j; j < end; ++j) {
                A& out = shape.out[row * shape.columns + j];
                const A sum = shape.alpha * sums[r][j - at.j];
                const A factor = at.k == 0 ? shape.beta : A{1};
                out = factor == 0 ? sum : factor * out + sum;
            }
        }
    }
};

}  // namespace shardkit::detail

namespace shardkit::detail SHARDKIT_FACE {

SHARDKIT_CORE_INLINE void multiply_on_host(const rules::MatrixProduct<float>& product, bool gram) {
    TiledProduct<float>::multiply(product, gram);
}
SHARDKIT_CORE_INLINE void multiply_on_host(const rules::MatrixProduct<double>& product, bool gram) {
    TiledProduct<double>::multiply(product, gram);
}

}  // namespace shardkit::detail SHARDKIT_FACE
