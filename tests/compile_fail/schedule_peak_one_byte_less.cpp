// SPDX-License-Identifier: Apache-2.0
// expected-error: the step needs more memory than a rank has
#include <array>

#include <shardkit/schedule/dry_step.hpp>
#include <shardkit/schedule/passes.hpp>
#include <shardkit/schedule/peak.hpp>

#include "model.hpp"

constexpr auto mesh = sk::DeviceMesh<4>{}.grid();
constexpr std::array groups{sk::describe_group<Linear, sk::FullShard>("first", {}, mesh),
                            sk::describe_group<Linear, sk::FullShard>("second", {}, mesh)};
constexpr auto step = [] { return sk::schedule::prefetch(sk::schedule::layered_step(groups), groups, 1); };

// Two groups of 12 and 4 elements, each parameter in 128 bytes and shards too: 512 bytes of a group. At rest a rank
// has a quarter of parameters, gradients and two states, and the norm its doubles. At most two groups are full beside
// one group's gradients.
constexpr std::size_t at_rest = 4 * (2 * 512 / 4) + 8 * (71 + 2 * sk::detail::norm_slots);
constexpr std::size_t arena = 3 * 512;
#ifdef REJECT
constexpr sk::ByteCount memory(at_rest + arena - 1);
#else
constexpr sk::ByteCount memory(at_rest + arena);
#endif
static_assert(sk::schedule::peak(step(), groups) <= memory, "the step needs more memory than a rank has");
