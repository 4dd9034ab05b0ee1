// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace shardkit {

/// Replicas of the data-parallel axis: what hybrid sharding all-reduces across.
struct DpReplicate {
    static constexpr std::string_view name = "dp_replicate";
};
/// The part of the data-parallel axis over which a policy shards.
struct DpShard {
    static constexpr std::string_view name = "dp_shard";
};
/// Tensor parallel.
struct Tp {
    static constexpr std::string_view name = "tp";
};
/// Context (sequence) parallel; a data axis as far as gradients are concerned.
struct Cp {
    static constexpr std::string_view name = "cp";
};
/// The whole data-parallel axis as a mesh has it; a policy splits it into DpReplicate (slow) and DpShard.
struct Dp {
    static constexpr std::string_view name = "dp";
};

/// An axis is a type with a name; users may add their own (pipeline, expert).
template <class A>
concept MeshAxis = requires {
    { A::name } -> std::convertible_to<std::string_view>;
};

/// A list of axes, slowest first: flattened, they number the ranks of a sub-mesh in that order.
template <MeshAxis... A>
struct Axes {
    static constexpr std::size_t count = sizeof...(A);
    static constexpr std::array<std::string_view, count> names{A::name...};

    template <class Axis>
    static constexpr bool contains = (std::is_same_v<A, Axis> || ...);
};

/// The axes over which gradients are summed for every parameter, in rank order.
using DataAxes = Axes<DpReplicate, DpShard, Cp>;

namespace detail {
template <class Kept, class From, class Removed>
struct AxesMinus;
template <class... Kept, class Removed>
struct AxesMinus<Axes<Kept...>, Axes<>, Removed> {
    using type = Axes<Kept...>;
};
template <class... Kept, class First, class... Rest, class Removed>
struct AxesMinus<Axes<Kept...>, Axes<First, Rest...>, Removed>
    : std::conditional_t<Removed::template contains<First>, AxesMinus<Axes<Kept...>, Axes<Rest...>, Removed>,
                         AxesMinus<Axes<Kept..., First>, Axes<Rest...>, Removed>> {};
}  // namespace detail

/// The axes of `From` that are not in `Removed`, in `From`'s order.
template <class From, class Removed>
using AxesWithout = typename detail::AxesMinus<Axes<>, From, Removed>::type;

}  // namespace shardkit
