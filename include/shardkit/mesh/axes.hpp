// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include <shardkit/core/fixed_string.hpp>

namespace shardkit {

namespace detail {

/// The base of an axis of that name.
template <FixedString Name>
struct NameOf {
    static constexpr std::string_view name = Name.view();
};

}  // namespace detail

/// The replicas of the data-parallel axis, across which hybrid sharding all-reduces.
struct DpReplicate : detail::NameOf<"dp_replicate"> {};
/// The part of the data-parallel axis over which a policy shards.
struct DpShard : detail::NameOf<"dp_shard"> {};
/// The tensor-parallel axis.
struct Tp : detail::NameOf<"tp"> {};
/// The context-parallel (sequence-parallel) axis. Gradients are summed over it, as over a data axis.
struct Cp : detail::NameOf<"cp"> {};
/// The whole data-parallel axis of a mesh. A policy splits it into DpReplicate (slow) and DpShard.
struct Dp : detail::NameOf<"dp"> {};

/// The ranks that share the experts of a layer: each holds some of them. A factor of the data ranks, with EpDp the
/// other one; see ExpertMesh.
struct Ep : detail::NameOf<"ep"> {};
/// The data ranks that hold the same experts. A policy shards a group of experts over them.
struct EpDp : detail::NameOf<"ep_dp"> {};

/// An axis is a type with a name. Users may add their own (pipeline, expert).
template <class A>
concept MeshAxis = requires {
    { A::name } -> std::convertible_to<std::string_view>;
};

/// A list of axes, slowest first: the ranks of the flattened sub-mesh are numbered in that order.
template <MeshAxis... A>
struct Axes {
    static constexpr std::size_t count = sizeof...(A);
    static constexpr std::array<std::string_view, count> names{A::name...};

    template <class Axis>
    static constexpr bool contains = (std::is_same_v<A, Axis> || ...);
};

/// The axes over which gradients are summed, in rank order: of every parameter but an expert's.
using DataAxes = Axes<DpReplicate, DpShard, Cp>;
/// The axes over which gradients of experts are summed: each already has the tokens of all ranks of Ep.
using ExpertDataAxes = Axes<DpReplicate, EpDp>;

/// A list of axes as a value, slowest first, for a choice at run time.
class AxisNames {
  public:
    static constexpr std::size_t capacity = 8;

    constexpr AxisNames() noexcept = default;
    template <MeshAxis... A>
    constexpr AxisNames(Axes<A...> /*axes*/) {  // NOLINT(google-explicit-constructor): the same list
        (add(A::name), ...);
    }

    /// Appends a name.
    /// @throws std::length_error when there are 8 already
    constexpr void add(std::string_view name) {
        if (count_ == capacity) { throw std::length_error("AxisNames: more than 8 axes"); }
        names_[count_++] = name;
    }
    constexpr bool contains(std::string_view name) const noexcept {
        for (const std::string_view own : *this) {
            if (own == name) { return true; }
        }
        return false;
    }
    /// Returns the names that are not in `removed`, in this order.
    constexpr AxisNames without(const AxisNames& removed) const {
        AxisNames kept;
        for (const std::string_view name : *this) {
            if (!removed.contains(name)) { kept.add(name); }
        }
        return kept;
    }
    constexpr std::size_t size() const noexcept { return count_; }
    constexpr const std::string_view* begin() const noexcept { return names_.data(); }
    constexpr const std::string_view* end() const noexcept { return names_.data() + count_; }
    constexpr std::span<const std::string_view> span() const& noexcept { return {begin(), count_}; }
    constexpr std::span<const std::string_view> span() const&& = delete;

    // Not defaulted: to g++ 12 a comparison of unused entries is no constant expression.
    friend constexpr bool operator==(const AxisNames& a, const AxisNames& b) noexcept {
        if (a.count_ != b.count_) { return false; }
        for (std::size_t i = 0; i < a.count_; ++i) {
            if (a.names_[i] != b.names_[i]) { return false; }
        }
        return true;
    }

  private:
    std::array<std::string_view, capacity> names_{};
    std::size_t count_ = 0;
};

}  // namespace shardkit
