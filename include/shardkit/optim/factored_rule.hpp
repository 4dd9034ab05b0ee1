// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/param/tensor_shape.hpp>

namespace shardkit::rules {

/// How a FactoredRule sees a parameter, whatever part of it a rank has: matrices of its last two dimensions, one for
/// each index of the others. A tensor of fewer dimensions is a vector: rows of one element each, and no columns.
struct FactoredExtents {
    std::size_t matrices = 1;
    std::size_t rows = 1;     ///< of each
    std::size_t columns = 1;  ///< of each
    bool is_vector = false;

    constexpr FactoredExtents() noexcept = default;
    constexpr explicit FactoredExtents(const TensorShape& shape) noexcept : is_vector(shape.rank < 2) {
        if (is_vector) {
            rows = shape.numel();
            return;
        }
        rows = shape.extents[shape.rank - 2];
        columns = shape.extents[shape.rank - 1];
        for (std::size_t d = 0; d + 2 < shape.rank; ++d) { matrices *= shape.extents[d]; }
    }
    constexpr std::size_t numel() const noexcept { return matrices * rows * columns; }
};

/// What a number of a parameter is of.
enum class Over : std::uint8_t {
    whole,   ///< the parameter: there is one
    rows,    ///< a row: there is one for each, matrix by matrix
    columns  ///< a column, likewise; a vector has none
};
/// Returns how many numbers a parameter has.
constexpr std::size_t numbers_over(Over over, const FactoredExtents& extents) noexcept {
    return over == Over::whole  ? 1
           : over == Over::rows ? extents.matrices * extents.rows
           : extents.is_vector  ? 0
                                : extents.matrices * extents.columns;
}

/// A state that has a shape of its own: one number for each row, say. Every rank has all of it.
struct KeptState {
    std::string_view name;  ///< in a checkpoint
    Over over = Over::rows;
    std::string_view of_vectors{};  ///< what it is called there where the parameter is a vector; empty: the same
};

/// A sum over the elements of each row or each column, on all ranks.
struct PassSum {
    std::size_t pass;  ///< after which passes before the update it is known, from 0 on
    Over over;         ///< rows or columns; what is over the whole parameter the rule adds up from rows
};

/// How many KeptStates a rule has at most.
inline constexpr std::size_t most_kept_states = 4;
/// How many PassSums a rule has at most.
inline constexpr std::size_t most_pass_sums = 6;

/// The numbers of one parameter in a step, in the engine's memory, as many as its rule says: what is kept, zero
/// before the first step, and the sums, the same on every rank.
template <std::floating_point A>
struct FactoredNumbers {
    FactoredExtents extents;
    std::array<A*, most_kept_states> kept{};
    std::array<double*, most_pass_sums> sums{};
};

/// One element of a parameter.
template <std::floating_point A>
struct FactoredElement {
    A parameter;
    A gradient;          ///< as it was reduced: the update's scale is not in it
    std::size_t row;     ///< of all matrices' rows
    std::size_t column;  ///< of all matrices' columns
};

/// A rule of an optimizer with states of another shape than their parameters, or with sums over all of a parameter
/// before its update, Adafactor for example: an OptimizerRule that has beside it
///     kept                       an array of KeptState
///     sums                       an array of PassSum, sorted by pass
///     Update<A>: update.term<Sum>(element, numbers)
///                                what an element adds to sum number Sum, a double
///     update.settle<Pass>(numbers)
///                                once for each parameter, behind the sums of a pass: steps the kept states, and may
///                                leave in the memory of the pass's sums what is read later. A step whose gradients
///                                overflowed skips it
///     update.direction(element, numbers)
///                                what takes the gradient's place in
///     update(parameter, states..., direction)
///                                one element's step, as for any OptimizerRule
/// `numbers`: FactoredNumbers. Passes read parameters and gradients, and all of them come before the first update.
template <class R>
concept FactoredRule = requires {
    std::string_view(R::name);
    requires std::same_as<typename decltype(R::kept)::value_type, KeptState>;
    requires std::same_as<typename decltype(R::sums)::value_type, PassSum>;
};

}  // namespace shardkit::rules

namespace shardkit::detail {

template <std::floating_point A>
struct FactoredFunctions;
/// What a FactoredRule does in either arithmetic, as functions: see factored/factored_functions.hpp.
using AnyFactoredRule = std::tuple<FactoredFunctions<float>, FactoredFunctions<double>>;

/// Whether a rule updates each group without the others: it sees one element at a time.
template <class Rule>
inline constexpr bool updates_alone = !rules::MatrixRule<Rule> && !rules::FactoredRule<Rule>;

/// The passes of a FactoredRule before its updates.
template <rules::FactoredRule Rule>
inline constexpr std::size_t passes_of = Rule::sums.empty() ? 0 : Rule::sums.back().pass + 1;

/// Returns how many sums a parameter has in a pass.
template <rules::FactoredRule Rule>
constexpr std::size_t sums_in(std::size_t pass, const rules::FactoredExtents& extents) noexcept {
    std::size_t count = 0;
    for (const rules::PassSum& sum : Rule::sums) {
        if (sum.pass == pass) { count += rules::numbers_over(sum.over, extents); }
    }
    return count;
}
/// Returns how many numbers are kept of a parameter.
template <rules::FactoredRule Rule>
constexpr std::size_t kept_of(const rules::FactoredExtents& extents) noexcept {
    std::size_t count = 0;
    for (const rules::KeptState& kept : Rule::kept) { count += rules::numbers_over(kept.over, extents); }
    return count;
}

}  // namespace shardkit::detail
