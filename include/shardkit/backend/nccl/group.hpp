// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/shared/idle_groups.hpp>
#include <shardkit/comm/compare_calls.hpp>

namespace shardkit::nccl::detail {

/// Holds what a rank keeps for one communicator of NCCL's, at an address that stays.
struct Group {
    enum class Owner { world, user };

    ncclComm_t comm = nullptr;  ///< null until it is made, after it was destroyed or aborted, and for one rank alone
    bool being_made = false;    ///< NCCL may write `comm` at any time
    Owner owner = Owner::world;
    std::size_t rank = 0;
    std::size_t size = 1;
    std::string made_as;  ///< the name under which it was made, last; for error messages

    /// Describes what split made: its parent, its members among the parent's ranks, in its own order, and a number
    /// which is the same on all of them, and no other group's of the World.
    const Group* parent = nullptr;
    std::vector<std::size_t> members;
    std::uint64_t number = 0;
    shared::detail::GroupHandles handles;
    /// Says whether it was split off `of`, and no communicator of this rank uses it any more.
    bool is_idle(const Group& of) const noexcept { return parent == &of && handles.none(); }

    /// Points to the same ranks over a second communicator, for verbs that are given to the stream of reductions;
    /// null where they go over this one.
    Group* reductions = nullptr;

    /// Keeps what comparing calls needs: what this rank called over the group, and the same ranks over a communicator
    /// that serves nothing else. Null unless Options::compare_calls asks for it.
    std::unique_ptr<shardkit::detail::CallTrace> trace;
    const Group* comparison = nullptr;
    bool only_compares = false;  ///< it is such a communicator
};

/// Says what this rank gets from a call that makes communicators.
enum class Made { none, communicator };

}  // namespace shardkit::nccl::detail
