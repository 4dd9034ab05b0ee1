// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <tuple>

#include <shardkit/comm/stream.hpp>
#include <shardkit/optim/matrix_products.hpp>

namespace shardkit::rules {

/// One whole matrix on the rank that owns it, in a step. All memory is the engine's.
template <std::floating_point A, class Update>
struct WholeMatrix {
    MatrixExtents extents;
    std::span<A> values;   ///< row-major: the directions of all ranks' elements; afterwards, what they move along
    std::span<A> scratch;  ///< R::scratch<A>(extents) elements or more, aligned for double
    std::span<A> kept;     ///< R::kept(extents) elements that stay from step to step, zero before the first
    const Update* update;  ///< the step's, read by kernels
    const std::uint32_t* skip;  ///< not 0 where the step changes nothing: kernels must leave `kept` as it is then
};

/// A rule of an optimizer that needs whole matrices, Muon for example: an OptimizerRule whose update makes two passes
/// over elements, before and behind a transformation of each matrix on the one rank that owns it.
///     Update<A>: update(direction, states..., gradient)
///                                           one element: its states' step, and the direction that its matrix gets
///     update.apply(extents)                 one element behind that, as a functor: apply(parameter, moved)
///     transform(stream, products, whole)
///                                           what becomes of a WholeMatrix; `products`: a MatrixProducts
///     Works<A>                              optional: std::tuple of the works that transform launches, with an index
///                                           or once, for KernelsFor on GPUs; it may copy by Kernels::convert besides
///     scratch<A>(extents)                   elements of A that transform works in
///     kept(extents)                         elements of A that the owner keeps of the matrix between steps, or 0
///     cost(extents)                         of transform, in any unit: by it owners get equal work
template <class R>
concept MatrixRule = requires(MatrixExtents extents, const typename R::template Update<float>& update) {
    { R::template scratch<float>(extents) } -> std::same_as<std::size_t>;
    { R::kept(extents) } -> std::same_as<std::size_t>;
    { R::cost(extents) } -> std::same_as<std::uint64_t>;
    update.apply(extents);
};

}  // namespace shardkit::rules

namespace shardkit {

/// What becomes of a matrix that tp splits.
enum class TpMatrices : std::uint8_t {
    whole,  ///< it is gathered over tp too: the same numbers on any mesh
    parts   ///< each rank's part is a matrix by itself: less traffic and work, and another optimizer
};

/// What of a tensor of more than two dimensions is one matrix.
enum class MatrixUnits : std::uint8_t {
    none,       ///< nobody has said it: the tensor is refused
    last_two,   ///< each slice over the last two dimensions: the experts of a stack [experts, outputs, inputs]
    flattened,  ///< the tensor, its first dimension being the rows: a kernel [outputs, inputs, height, width]
};

/// Which parameters are matrices to an optimizer of whole matrices, and what of them is one matrix. The same on every
/// rank.
struct Matrices {
    /// Returns whether a parameter of two dimensions or more is one. Empty: each is that is not marked NoMatrix.
    std::function<bool(std::string_view path, std::string_view parameter)> matches{};
    /// Returns what of a parameter of more than two dimensions is one; not called for others. Empty: none.
    std::function<MatrixUnits(std::string_view path, std::string_view parameter)> units{};
    /// Returns how many rows of it are a matrix by themselves, as those of one head or of the queries in a packed
    /// matrix are; 0: all. They divide its rows, and those of a rank of tp under TpMatrices::parts. Empty: all rows.
    std::function<std::size_t(std::string_view path, std::string_view parameter)> block_rows{};
    TpMatrices tp = TpMatrices::whole;
};

namespace detail {

template <std::floating_point A>
struct MatrixFunctions;
/// What a MatrixRule does in either arithmetic, as functions: see muon/matrix_functions.hpp.
using AnyMatrixRule = std::tuple<MatrixFunctions<float>, MatrixFunctions<double>>;

}  // namespace detail

}  // namespace shardkit
