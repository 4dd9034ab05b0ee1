// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/comm/compare_calls.hpp>

namespace shardkit::nccl::detail {

/// What a rank keeps for one communicator of NCCL's, at an address that stays.
struct Group {
    enum class Owner { world, user };

    ncclComm_t comm = nullptr;  ///< null until it is made, after it was destroyed or aborted, and for one rank alone
    bool being_made = false;    ///< NCCL may write `comm` at any time
    Owner owner = Owner::world;
    std::size_t rank = 0;
    std::size_t size = 1;
    std::string made_as;  ///< the name under which it was made; for error messages

    /// For comparing calls: what this rank called over the group, and the same ranks over a communicator that serves
    /// nothing else. Null unless Options::compare_calls asks for it.
    std::unique_ptr<shardkit::detail::CallTrace> trace;
    const Group* comparison = nullptr;
    bool only_compares = false;  ///< it is such a communicator
};

/// What this rank gets from a call that makes communicators.
enum class Made { none, communicator };

}  // namespace shardkit::nccl::detail
