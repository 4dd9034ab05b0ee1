// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/registered.hpp>
#include <shardkit/backend/shared/split_groups.hpp>
#include <shardkit/comm/compare_calls.hpp>

namespace shardkit::nccl::detail {

/// A rank's state for one NCCL communicator, at a stable address.
struct Group {
    enum class Owner { world, user };

    ncclComm_t comm = nullptr;  ///< null until it is made, after its destruction or abort, and for a single rank
    bool being_made = false;    ///< NCCL may write `comm` at any time
    bool of_users = false;      ///< it is made out of a communicator of the user, which no World aborts
    bool is_ended = false;      ///< `comm` is being aborted: no call may use it
    Owner owner = Owner::world;
    std::size_t rank = 0;
    std::size_t size = 1;
    std::string made_as;  ///< its last name, for error messages

    /// For a group that split made: its parent, its members by their rank in the parent, in its own order, and a
    /// number that is the same on all members and unique in the World.
    const Group* parent = nullptr;
    std::vector<std::size_t> members;
    std::uint64_t number = 0;
    shared::detail::GroupHandles handles;
    std::deque<Registered> registered;  ///< the World's first chunks, where it registers them
    /// Notes that NCCL makes it out of `from`.
    void begin_making(const Group& from) noexcept {
        being_made = true;
        of_users = from.owner == Owner::user;
    }
    /// Returns its members' ranks in the World; empty where the user made it.
    std::vector<std::size_t> world_ranks() const {
        if (owner == Owner::user) { return {}; }
        std::vector<std::size_t> ranks(parent == nullptr ? size : members.size());
        const std::vector<std::size_t> above = parent == nullptr ? std::vector<std::size_t>() : parent->world_ranks();
        if (parent != nullptr && above.empty()) { return {}; }
        for (std::size_t i = 0; i < ranks.size(); ++i) { ranks[i] = parent == nullptr ? i : above[members[i]]; }
        return ranks;
    }
    /// The same ranks over a second communicator, for verbs on the stream of reductions; null if they use this one.
    Group* reductions = nullptr;

    /// The same ranks over a communicator on which NCCL adds 16-bit elements as they are; null unless Options::sums
    /// asks for it and NCCL does.
    Group* sums = nullptr;

    /// For comparing calls: this rank's calls over the group, and the same ranks over a communicator that serves
    /// nothing else. Null unless Options::compare_calls asks for it.
    std::unique_ptr<shardkit::detail::CallTrace> trace;
    const Group* comparison = nullptr;
    bool only_compares = false;  ///< whether it is such a communicator
};

/// What this rank gets from a call that makes communicators.
enum class Made { none, communicator };

}  // namespace shardkit::nccl::detail
