// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <shardkit/detail/range.hpp>
#include <shardkit/sharded/sharded.hpp>

namespace shardkit {

namespace detail {
template <class T>
struct IsSharded : std::false_type {};
template <class G, class P, class E, class R>
struct IsSharded<Sharded<G, P, E, R>> : std::true_type {};

template <class T>
struct LayerOf {
    using type = T;
};
template <Range T>
struct LayerOf<T> {
    using type = RangeValue<T>;
};

template <class... T>
inline constexpr bool one_engine = true;
template <class First, class... T>
requires(IsSharded<typename LayerOf<First>::type>::value&&...&&
             IsSharded<typename LayerOf<T>::type>::value) inline constexpr bool one_engine<First, T...> =
    (std::is_same_v<typename LayerOf<First>::type::Engine, typename LayerOf<T>::type::Engine> && ...);

/// The number of the first of `Types` that is the same as number I: where what all parts of one type share is kept.
template <std::size_t I, class... Types>
inline constexpr std::size_t first_of_type = []<std::size_t... J>(std::index_sequence<J...>) {
    std::size_t first = I;
    ((first = std::is_same_v<std::tuple_element_t<I - J, std::tuple<Types...>>,
                             std::tuple_element_t<I, std::tuple<Types...>>>
                  ? I - J
                  : first),
     ...);
    return first;
}
(std::make_index_sequence<I + 1>{});
}  // namespace detail

/// The Sharded type behind an argument of `groups`: itself, or the elements of a range.
template <class T>
using LayerOf = typename detail::LayerOf<T>::type;

inline namespace SHARDKIT_BUILD {

/// A model: references to Sharded groups and to ranges of them, in the order in which collectives that touch
/// all of them run. Cheap to copy; the groups outlive it and keep their addresses (a range may not grow while
/// an optimizer refers to it).
template <class... T>
class Groups {
    static constexpr bool all_sharded = (detail::IsSharded<LayerOf<T>>::value && ...);
    static_assert(sizeof...(T) > 0, "groups(...): give at least one Sharded");
    static_assert(all_sharded, "groups(...): each argument must be a Sharded or a range of Sharded");
    static_assert(detail::one_engine<T...>, "groups(...): the groups of one model must be of one engine");

  public:
    explicit Groups(T&... parts) noexcept : parts_(&parts...) {}

    template <class Layer>
    static constexpr bool contains = (std::is_same_v<Layer, LayerOf<T>> || ...);

    /// f(layer) for every group, in order.
    template <class F>
    void for_each(F&& f) const {
        [&]<std::size_t... I>(std::index_sequence<I...>) { (visit(*std::get<I>(parts_), f), ...); }
        (std::index_sequence_for<T...>{});
    }
    /// f(layer, std::integral_constant<std::size_t, part>, index within the part)
    template <class F>
    void for_each_indexed(F&& f) const {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (visit_indexed(*std::get<I>(parts_), f, std::integral_constant<std::size_t, I>{}), ...);
        }
        (std::index_sequence_for<T...>{});
    }
    std::size_t size() const {
        std::size_t count = 0;
        for_each([&](auto& /*layer*/) { ++count; });
        return count;
    }
    /// Number of groups in part I.
    template <std::size_t I>
    std::size_t part_size() const {
        auto& part = *std::get<I>(parts_);
        if constexpr (detail::IsSharded<std::remove_cvref_t<decltype(part)>>::value) {
            return 1;
        } else {
            return static_cast<std::size_t>(std::ranges::distance(std::ranges::begin(part), std::ranges::end(part)));
        }
    }

    /// The context of the model's groups: where a rank's own scalars and its world are taken from.
    /// @throws UsageError when every part is an empty range, or two groups were made on different ranks' contexts: a
    ///         divisor, a norm and a step belong to one mesh
    auto& context(SourceLocation where = SourceLocation::current()) const {
        using First = LayerOf<std::tuple_element_t<0, std::tuple<T...>>>;
        Context<typename First::Engine>* first = nullptr;
        std::string_view path;
        for_each([&](auto& layer) {
            if (first == nullptr) {
                first = &layer.context(where);
                path = layer.path();
            } else {
                first->require_same(path, layer.context(where), layer.path(), where);
            }
        });
        if (first == nullptr) {
            throw_usage_error(where, "groups(...): this model has no groups: every range is empty");
        }
        return *first;
    }

    /// The same groups, not just the same types.
    friend bool operator==(const Groups& a, const Groups& b) noexcept { return a.parts_ == b.parts_; }

  private:
    template <class Part, class F>
    static void visit(Part& part, F& f) {
        if constexpr (detail::IsSharded<Part>::value) {
            f(part);
        } else {
            for (auto& layer : part) { f(layer); }
        }
    }
    template <class Part, class F, class I>
    static void visit_indexed(Part& part, F& f, I number) {
        if constexpr (detail::IsSharded<Part>::value) {
            f(part, number, std::size_t{0});
        } else {
            std::size_t index = 0;
            for (auto& layer : part) { f(layer, number, index++); }
        }
    }

    std::tuple<T*...> parts_;
};

}  // namespace SHARDKIT_BUILD

/// groups(embedding, blocks, head): any mix of Sharded and ranges of them.
template <class... T>
Groups<T...> groups(T&... parts) noexcept {
    return Groups<T...>(parts...);
}

}  // namespace shardkit
