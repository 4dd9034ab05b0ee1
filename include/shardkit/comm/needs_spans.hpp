// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include <shardkit/comm/communicator.hpp>

// What is called where a verb is given something else than spans: containers, buffers, spans of another kind. Each
// says what to write.

namespace shardkit {

namespace detail {

template <class X>
inline constexpr bool is_span = false;
template <class T>
inline constexpr bool is_span<std::span<T>> = true;
template <class X>
inline constexpr bool is_written_span = false;
template <class T>
inline constexpr bool is_written_span<std::span<T>> = !std::is_const_v<T>;

template <class X>
concept HoldsElements = requires(X& x) {
    x.data();
    x.size();
};
template <class X>
inline constexpr bool is_no_span = HoldsElements<std::remove_reference_t<X>> && !is_span<std::remove_cvref_t<X>>;

/// Says whether the first of the arguments that hold elements, which a verb reads, is a span that can be written.
template <class First, class... Rest>
constexpr bool reads_written_span() {
    if constexpr (HoldsElements<std::remove_reference_t<First>>) {
        return is_written_span<std::remove_cvref_t<First>>;
    } else if constexpr (sizeof...(Rest) > 0) {
        return reads_written_span<Rest...>();
    } else {
        return false;
    }
}

template <class C, class... A>
concept MisfitInPlace = Communicator<C> &&(is_no_span<A> || ...);
template <class C, class... A>
concept Misfit = MisfitInPlace<C, A...> ||(Communicator<C>&& reads_written_span<A...>());

template <class... A>
constexpr void require_spans() {
    constexpr bool are_spans = sizeof...(A) == 0;
    static_assert(are_spans,
                  "verbs take spans: write std::span<const T>(x) for what is read and std::span<T>(x) for what is "
                  "written, and buffer.span() of a Buffer");
}

/// Holds what overload resolution takes for such arguments, and for no others.
namespace misfit {
template <class C, class... A>
requires Misfit<C, A...>
void all_gather(const C& /*comm*/, A&&... /*others*/) { require_spans<A...>(); }
template <class C, class... A>
requires Misfit<C, A...>
void reduce_scatter(const C& /*comm*/, A&&... /*others*/) { require_spans<A...>(); }
template <class C, class... A>
requires Misfit<C, A...>
void all_reduce(const C& /*comm*/, A&&... /*others*/) { require_spans<A...>(); }
template <class C, class... A>
requires Misfit<C, A...>
void all_to_all(const C& /*comm*/, A&&... /*others*/) { require_spans<A...>(); }
template <class C, class... A>
requires Misfit<C, A...>
void send(const C& /*comm*/, A&&... /*others*/) { require_spans<A...>(); }
template <class C, class... A>
requires Misfit<C, A...>
void send_receive(const C& /*comm*/, A&&... /*others*/) { require_spans<A...>(); }
template <class C, class... A>
requires MisfitInPlace<C, A...>
void receive(const C& /*comm*/, A&&... /*others*/) { require_spans<A...>(); }
template <class C, class... A>
requires MisfitInPlace<C, A...>
void broadcast(const C& /*comm*/, A&&... /*others*/) { require_spans<A...>(); }
template <class C, class... A>
requires MisfitInPlace<C, A...>
void all_gather_in_place(const C& /*comm*/, A&&... /*others*/) { require_spans<A...>(); }
template <class C, class... A>
requires MisfitInPlace<C, A...>
void reduce_scatter_in_place(const C& /*comm*/, A&&... /*others*/) { require_spans<A...>(); }
template <class C, class... A>
requires MisfitInPlace<C, A...>
void all_reduce_in_place(const C& /*comm*/, A&&... /*others*/) { require_spans<A...>(); }
}  // namespace misfit

}  // namespace detail

using detail::misfit::all_gather;
using detail::misfit::all_gather_in_place;
using detail::misfit::all_reduce;
using detail::misfit::all_reduce_in_place;
using detail::misfit::all_to_all;
using detail::misfit::broadcast;
using detail::misfit::receive;
using detail::misfit::reduce_scatter;
using detail::misfit::reduce_scatter_in_place;
using detail::misfit::send;
using detail::misfit::send_receive;

}  // namespace shardkit
