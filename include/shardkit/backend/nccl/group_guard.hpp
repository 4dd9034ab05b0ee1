// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/world.hpp>

namespace shardkit::nccl::detail {

/// Lets NCCL calls start together: those between the guard and its `submit`. A guard whose scope is left without it
/// ends the group and drops NCCL's errors, as another one is on its way.
class GroupGuard {
  public:
    /// Begins an NCCL group.
    /// @throws CommError
    explicit GroupGuard(const Call& call) : call_(call) {
        call.world.complete(call, "ncclGroupStart", ncclGroupStart());
        open_ = true;
    }
    GroupGuard(const GroupGuard&) = delete;
    GroupGuard& operator=(const GroupGuard&) = delete;
    ~GroupGuard() {
        if (!open_) { return; }
        call_.world.collect(nullptr);
        static_cast<void>(ncclGroupEnd());
    }

    /// Notes the result of a call; the first error is thrown by `submit`.
    void add(std::string_view nccl_call, ncclResult_t code) { errors_.add(nccl_call, code); }
    /// Lets the World note the results of its verbs' calls here, until the group ends.
    void collect() noexcept { call_.world.collect(&errors_); }
    /// Starts the calls and waits until NCCL has taken them.
    /// @throws CommError of the first call that failed
    void submit() {
        open_ = false;
        call_.world.collect(nullptr);
        const ncclResult_t code = ncclGroupEnd();
        if (errors_.failed != ncclSuccess) { call_.world.complete(call_, errors_.call, errors_.failed); }
        call_.world.complete(call_, "ncclGroupEnd", code);
    }

  private:
    const Call& call_;
    bool open_ = false;
    GroupErrors errors_;
};

}  // namespace shardkit::nccl::detail
