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
        if (open_) { static_cast<void>(ncclGroupEnd()); }
    }

    /// Records the result of a call. `submit` throws the first error, as nothing can be aborted inside a group.
    void add(std::string_view nccl_call, ncclResult_t code) {
        if (code == ncclSuccess || code == ncclInProgress || failed_ != ncclSuccess) { return; }
        failed_ = code;
        failed_call_ = nccl_call;
    }
    /// Starts the calls, and waits until NCCL has accepted them.
    /// @throws CommError of the first call that failed
    void submit() {
        open_ = false;
        const ncclResult_t code = ncclGroupEnd();
        if (failed_ != ncclSuccess) { call_.world.complete(call_, failed_call_, failed_); }
        call_.world.complete(call_, "ncclGroupEnd", code);
    }

  private:
    const Call& call_;
    bool open_ = false;
    ncclResult_t failed_ = ncclSuccess;
    std::string_view failed_call_;
};

}  // namespace shardkit::nccl::detail
