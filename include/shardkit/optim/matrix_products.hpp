// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>

namespace shardkit::rules {

/// The extents of a row-major matrix.
struct MatrixExtents {
    std::size_t rows = 0;
    std::size_t columns = 0;

    constexpr std::size_t numel() const noexcept { return rows * columns; }
    constexpr std::size_t shorter() const noexcept { return std::min(rows, columns); }
    constexpr std::size_t longer() const noexcept { return std::max(rows, columns); }
    friend constexpr bool operator==(MatrixExtents, MatrixExtents) noexcept = default;
};

/// out = alpha * left * right + beta * out, of row-major matrices without gaps: left [rows, inner],
/// right [inner, columns], out [rows, columns]. `out` is not read where beta is 0, and overlaps neither factor.
template <std::floating_point A>
struct MatrixProduct {
    std::size_t rows, inner, columns;
    A alpha;
    const A* left;
    const A* right;
    A beta;
    A* out;
};

/// out = alpha * matrix * transpose(matrix) + beta * out, matrix [rows, columns], out [rows, rows]. Only the elements
/// on and below the diagonal of `out` are computed: the rest of a symmetric matrix is the same again, so this is half
/// the work of a product. What is above it may be overwritten with anything. `out` is not read where beta is 0, and
/// does not overlap `matrix`.
template <std::floating_point A>
struct GramProduct {
    std::size_t rows, columns;
    A alpha;
    const A* matrix;
    A beta;
    A* out;
};

/// A library of matrix products for memory of a Stream's engine, in arithmetic A. HostProducts is the one that needs
/// no other library; CblasProducts and CublasProducts adapt those.
///     multiply(stream, product)
///     gram(stream, product)
/// Order:   stream-ordered. The same product gives the same bits on every rank.
template <class P, class Stream, class A>
concept MatrixProducts = requires(const P& products, const Stream& stream, const MatrixProduct<A>& product,
                                  const GramProduct<A>& gram) {
    products.multiply(stream, product);
    products.gram(stream, gram);
};

}  // namespace shardkit::rules

namespace shardkit {

namespace detail {

/// Any library of products in both arithmetics, so that what multiplies is compiled once for all of them.
template <class Stream>
class AnyProducts {
  public:
    AnyProducts() noexcept = default;
    template <class P>
    requires(rules::MatrixProducts<P, Stream, float>&& rules::MatrixProducts<P, Stream, double>) explicit AnyProducts(
        P products)
        : products_(std::make_shared<const P>(std::move(products))) {
        const auto multiply = [](const void* of, const Stream& stream, const auto& product) {
            static_cast<const P*>(of)->multiply(stream, product);
        };
        const auto gram = [](const void* of, const Stream& stream, const auto& product) {
            static_cast<const P*>(of)->gram(stream, product);
        };
        calls_ = {multiply, multiply, gram, gram};
    }

    explicit operator bool() const noexcept { return products_ != nullptr; }
    template <std::floating_point A>
    void multiply(const Stream& stream, const rules::MatrixProduct<A>& product) const {
        std::get<Call<rules::MatrixProduct<A>>>(calls_)(products_.get(), stream, product);
    }
    template <std::floating_point A>
    void gram(const Stream& stream, const rules::GramProduct<A>& product) const {
        std::get<Call<rules::GramProduct<A>>>(calls_)(products_.get(), stream, product);
    }

  private:
    template <class Product>
    using Call = void (*)(const void* products, const Stream& stream, const Product& product);

    std::shared_ptr<const void> products_;
    std::tuple<Call<rules::MatrixProduct<float>>, Call<rules::MatrixProduct<double>>, Call<rules::GramProduct<float>>,
               Call<rules::GramProduct<double>>>
        calls_{};
};

}  // namespace detail

}  // namespace shardkit
