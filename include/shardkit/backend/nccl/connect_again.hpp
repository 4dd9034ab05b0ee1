// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/connections.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/core/source_location.hpp>

namespace shardkit::nccl::detail {

/// Connects the ranks of `group` over a second communicator. Collective over the group; the host waits.
/// @pre  the group has no work in progress
/// @throws CommError that contains `doing`
inline Group& connect_again(Connections& connections, const Group& group, std::string_view made_as,
                            ncclConfig_t config, std::string_view doing, SourceLocation where) {
    Group& made = connections.add_group(made_as);
    connections.make(
        connections, group, made, "ncclCommSplit",
        [&](ncclComm_t comm, ncclComm_t* out) {
            return ncclCommSplit(comm, 0, static_cast<int>(group.rank), out, &config);
        },
        Made::communicator, doing, where);
    made.rank = group.rank;
    made.size = group.size;
    return made;
}

}  // namespace shardkit::nccl::detail
