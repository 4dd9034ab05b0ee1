// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <shardkit/comm/stream.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/matrix_products.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/spi/launches.hpp>
#include <shardkit/spi/updates.hpp>

// What a MatrixRule does, to who knows no more of it than the arithmetic.

namespace shardkit::detail {

/// How much work and memory it needs of one matrix, in elements.
struct MatrixSizes {
    std::uint64_t (*cost)(rules::MatrixExtents extents);
    std::size_t (*scratch)(rules::MatrixExtents extents);
    std::size_t (*kept)(rules::MatrixExtents extents);
};
template <class Rule, std::floating_point A>
inline constexpr MatrixSizes matrix_sizes{
    [](rules::MatrixExtents extents) -> std::uint64_t { return Rule::cost(extents); },
    [](rules::MatrixExtents extents) -> std::size_t { return Rule::template scratch<A>(extents); },
    [](rules::MatrixExtents extents) -> std::size_t { return Rule::kept(extents); }};

/// The update of some matrices of the same extents.
struct MatrixUpdate {
    std::uint32_t update;  ///< its number among the optimizer's
    rules::MatrixExtents extents;
};
/// Makes what moves the elements of a matrix from its update.
template <class Update, class Apply>
struct BeginApply {
    const MatrixUpdate* units;
    const AnyRuleUpdate* updates;
    AnyRuleUpdate* applies;

    constexpr void operator()(std::uint64_t i) const {
        const auto& update = *reinterpret_cast<const Update*>(updates[units[i].update].bytes);
        const Apply made = update.apply(units[i].extents);
        std::memcpy(applies[i].bytes, &made, sizeof made);
    }
};

/// Its functions.
template <std::floating_point A>
struct MatrixFunctions {
    MatrixSizes sizes;
    const UpdateFunctions* apply;  ///< the second pass over elements, as that of a rule without states
    /// Makes the updates of second passes from those of first ones. Stream-ordered.
    void (*begin)(const Stream& stream, std::size_t count, const MatrixUpdate* units, const AnyRuleUpdate* updates,
                  AnyRuleUpdate* applies);
    void (*transform)(const Stream& stream, const AnyProducts<Stream>& products,
                      const rules::WholeMatrix<A, AnyRuleUpdate>& whole);
};

/// What becomes of elements behind the transformation of their matrix, as a rule without states.
template <class Rule>
struct AppliedRule {
    template <class A>
    using Update = std::remove_cvref_t<decltype(std::declval<const typename Rule::template Update<A>&>().apply(
        rules::MatrixExtents{}))>;
    static constexpr std::array<std::string_view, 0> state_names{};
};

template <class Rule, std::floating_point A, class Loops>
struct MatrixFunctionsOf {
    using Update = typename Rule::template Update<A>;
    using Apply = typename AppliedRule<Rule>::template Update<A>;
    static_assert(rules::UpdateOf<Apply, A, 0>,
                  "MatrixRule: what update.apply returns is called with a parameter and a value");
    static_assert(sizeof(Apply) <= AnyRuleUpdate::most_bytes && alignof(Apply) <= 16,
                  "MatrixRule: what update.apply returns has at most 128 bytes");
    static_assert(std::is_same_v<typename StorageOf<Rule>::type, FullStates>,
                  "MatrixRule: states in bf16 or in blocks of 8 bits are those of rules of elements alone");

    static void begin(const Stream& stream, std::size_t count, const MatrixUpdate* units,
                      const AnyRuleUpdate* updates, AnyRuleUpdate* applies) {
        run_each(stream, count, BeginApply<Update, Apply>{units, updates, applies});
    }
    static void transform(const Stream& stream, const AnyProducts<Stream>& products,
                          const rules::WholeMatrix<A, AnyRuleUpdate>& whole) {
        Rule::transform(
            stream, products,
            rules::WholeMatrix<A, Update>{whole.extents, whole.values, whole.scratch, whole.kept,
                                          reinterpret_cast<const Update*>(whole.update->bytes), whole.skip});
    }
};
template <class Rule, std::floating_point A, class Loops>
inline constexpr MatrixFunctions<A> matrix_functions_in{matrix_sizes<Rule, A>, &updates_of<AppliedRule<Rule>, Loops>,
                                                        &MatrixFunctionsOf<Rule, A, Loops>::begin,
                                                        &MatrixFunctionsOf<Rule, A, Loops>::transform};
/// Those of a rule, with the update of elements that `Loops` has.
template <class Rule, class Loops>
inline constexpr AnyMatrixRule matrix_functions_of{matrix_functions_in<Rule, float, Loops>,
                                                   matrix_functions_in<Rule, double, Loops>};

}  // namespace shardkit::detail
