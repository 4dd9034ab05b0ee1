// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/range.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/sharded/sharded.hpp>

// What the verbs of a step say of their arguments' types, in both forms.

namespace shardkit::detail SHARDKIT_BUILD {

template <class T>
struct IsSharded : std::false_type {};
template <class G, class P, class R>
struct IsSharded<Sharded<G, P, R>> : std::true_type {};
/// Rejects a layer in the place of a model, with an error that says what to write instead.
template <class Layer>
struct NeedsModel {
    static constexpr bool is_model = sizeof(Layer) == 0;
    static_assert(is_model, "expected a Model and not a layer: write Model model{layer} before");
};
/// Whether a part of a model is one itself.
template <class T>
concept IsModel = std::is_same_v<std::remove_const_t<T>, Model>;

template <class T>
struct LayerOf {
    using type = T;
};
template <Range T>
struct LayerOf<T> {
    using type = RangeValue<T>;
};

template <class... T>
inline constexpr bool all_sharded = sizeof...(T) > 0 &&
                                    ((IsSharded<typename LayerOf<T>::type>::value || IsModel<T>)&&...);

/// Whether `reduce` takes an X&&, and says why not.
template <class X>
constexpr bool reduces() {
    using Given = std::remove_cvref_t<X>;
    constexpr bool not_reduced = !std::is_same_v<Given, Reduced>;
    static_assert(not_reduced, "reduce: these gradients are already reduced");
    constexpr bool is_accumulation = std::is_same_v<Given, Accumulation>;
    constexpr bool accumulated = !not_reduced || is_accumulation;
    static_assert(accumulated, "reduce takes an Accumulation; add the gradients of each microbatch first");
    constexpr bool consumed = !std::is_lvalue_reference_v<X>;
    static_assert(!is_accumulation || consumed,
                  "reduce consumes the accumulation: write reduce(std::move(accumulation), divisor)");
    return is_accumulation && consumed;
}
/// Whether an optimizer's `step` takes an X&&, and says why not.
template <class X>
constexpr bool steps() {
    using Given = std::remove_cvref_t<X>;
    constexpr bool is_accumulation = std::is_same_v<Given, Accumulation>;
    static_assert(!is_accumulation,
                  "optimizer step consumes the gradients, and takes options with them: write "
                  "step(std::move(accumulation), {.divisor = ..., .max_norm = ...})");
    constexpr bool is_reduced = is_accumulation || std::is_same_v<Given, Reduced>;
    static_assert(is_reduced,
                  "optimizer step takes reduced gradients: call reduce(std::move(accumulation), "
                  "divisor) first");
    constexpr bool consumed = is_accumulation || !is_reduced || !std::is_lvalue_reference_v<X>;
    static_assert(consumed, "optimizer step consumes the gradients: write step(std::move(reduced), ...)");
    return std::is_same_v<Given, Reduced> && consumed;
}

}  // namespace SHARDKIT_BUILD

namespace shardkit::spi SHARDKIT_BUILD {
/// All that the library has of a layer.
template <class Layer>
detail::Group& group(const Layer& layer, SourceLocation where = SourceLocation::current()) {
    return spi::group(layer.ref(where), where);
}
}  // namespace SHARDKIT_BUILD

namespace shardkit {
/// The Sharded type of an argument of Model: the argument itself, or the elements of a range.
template <class T>
using LayerOf = typename detail::LayerOf<T>::type;
}  // namespace shardkit
