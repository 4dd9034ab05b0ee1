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

template <class... Parts>
struct FirstStateOf;
template <class First, class... Rest>
struct FirstStateOf<First, Rest...> {
    using type = GroupState<typename LayerOf<First>::type::Engine, typename LayerOf<First>::type::Precision>;
};
/// What stands behind the groups of a model's first part, without their types.
template <class... Parts>
using FirstState = typename FirstStateOf<Parts...>::type;
template <class Engine, class Precision>
GroupState<Engine, Precision>& without_types(GroupState<Engine, Precision>& state) noexcept {
    return state;
}

/// A tuple of the distinct ones of `Types`, in order: of what all parts of one type share.
template <class Kept, class... Types>
struct Distinct {
    using type = Kept;
};
template <class... Kept, class First, class... Rest>
struct Distinct<std::tuple<Kept...>, First, Rest...>
    : std::conditional_t<(std::is_same_v<First, Kept> || ...), Distinct<std::tuple<Kept...>, Rest...>,
                         Distinct<std::tuple<Kept..., First>, Rest...>> {};
template <class... Types>
using DistinctOf = typename Distinct<std::tuple<>, Types...>::type;
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
    /// f(GroupState<Engine, Precision>&) for what stands behind every group, in order: compiled once for all groups
    /// of an engine and a precision.
    /// @throws UsageError when one was moved from
    template <class F>
    void for_each_state(const F& f, SourceLocation where = SourceLocation::current()) const {
        for_each([&](auto& layer) { f(detail::without_types(detail::Access::state(layer, where))); });
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
        Context<typename detail::FirstState<T...>::Engine>* first = nullptr;
        std::string_view path;
        for_each_state(
            [&](auto& state) {
                if (first == nullptr) {
                    first = &state.context();
                    path = state.path();
                } else {
                    first->require_same(path, state.context(), state.path(), where);
                }
            },
            where);
        if (first == nullptr) {
            detail::FirstState<T...>::refuse_use(where,
                                                 "groups(...): this model has no groups: every range is empty");
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
