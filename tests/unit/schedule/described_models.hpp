// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>

// Three models that exist as descriptions only.

namespace described {

namespace sk = shardkit;

struct Matrix : sk::Param<"matrix", float, 64, 48> {};
struct Row : sk::Param<"row", float, 100> {};
struct Table : sk::Param<"table", float, 200, 48> {};
using Block = sk::Params<Matrix, Row>;
using P = sk::Precision<float>;

/// In how many lanes engines communicate.
inline constexpr std::array every_lanes{sk::schedule::CommunicationLanes::two, sk::schedule::CommunicationLanes::one,
                                        sk::schedule::CommunicationLanes::in_compute};

/// Equal blocks between a table and a head.
template <class Policy>
constexpr auto transformer(const sk::AxisGrid& mesh, Policy policy = {}) {
    return std::array{sk::describe_group<Table, Policy, P>("embedding", {}, mesh, policy),
                      sk::describe_group<Block, Policy, P>("blocks.0", {}, mesh, policy),
                      sk::describe_group<Block, Policy, P>("blocks.1", {}, mesh, policy),
                      sk::describe_group<Block, Policy, P>("blocks.2", {}, mesh, policy),
                      sk::describe_group<Row, Policy, P>("head", {}, mesh, policy)};
}
/// One group that is far larger than the others, and addends of another type than the sums.
template <class Policy>
constexpr auto lopsided(const sk::AxisGrid& mesh, Policy policy = {}) {
    using Half = sk::Precision<float, sk::bf16, float, float>;
    return std::array{sk::describe_group<Row, Policy, P>("first", {}, mesh, policy),
                      sk::describe_group<Table, Policy, Half>("middle", {}, mesh, policy),
                      sk::describe_group<Row, Policy, P>("last", {}, mesh, policy)};
}
/// One group.
template <class Policy>
constexpr auto single(const sk::AxisGrid& mesh, Policy policy = {}) {
    return std::array{sk::describe_group<Matrix, Policy, P>("only", {}, mesh, policy)};
}

}  // namespace described
