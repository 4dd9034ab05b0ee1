// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl {
class World;
}

namespace shardkit::nccl::detail {

/// Describes one call of a verb on one rank.
struct Call {
    World& world;
    Group& group;
    std::string_view axes;
    Verb verb;
    SourceLocation where;

    std::string doing() const { return shardkit::detail::concat(name(verb), " over ", axes); }
};

}  // namespace shardkit::nccl::detail
