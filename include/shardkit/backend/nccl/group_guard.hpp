// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/world.hpp>

namespace shardkit::nccl::detail {

/// Starts several NCCL calls together: those between the guard's construction and `submit`. If its scope ends without
/// `submit`, it ends the NCCL group and drops NCCL's errors, as an exception is already in flight.
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

    /// Records the result of a call. `submit` throws the first error, as nothing can be aborted inside a group.
    void add(std::string_view nccl_call, ncclResult_t code) { errors_.add(nccl_call, code); }
    /// Lets the World record the results of its verbs' calls here, until the group ends.
    void collect() noexcept { call_.world.collect(&errors_); }
    /// Starts the calls, and waits until NCCL has accepted them.
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
