// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/connections.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::nccl::detail {

/// Connects the ranks of `group` over one more communicator. Collective over it; the host waits.
/// @pre  no work of the group's is under way
/// @throws CommError that says `doing`
inline Group& connect_again(Connections& connections, const Group& group, std::string_view made_as,
                            ncclConfig_t config, std::string_view doing, SourceLocation where) {
    Group& made = connections.made().add(made_as);
    connections.complete_made(connections, group, made, "ncclCommSplit",
                              ncclCommSplit(group.comm, 0, static_cast<int>(group.rank), &made.comm, &config),
                              Made::communicator, doing, where);
    made.rank = group.rank;
    made.size = group.size;
    return made;
}

}  // namespace shardkit::nccl::detail
