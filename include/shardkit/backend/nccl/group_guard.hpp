// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/world_state.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::nccl::detail {

/// Starts several NCCL calls together: those between the guard's construction and `submit`. If its scope ends without
/// `submit`, it ends the NCCL group and drops NCCL's errors, as an exception is already in flight.
class GroupGuard : shardkit::detail::NotCopied {
  public:
    /// Begins an NCCL group.
    /// @throws CommError
    explicit GroupGuard(const Call& call) : call_(call), lock_(call.world.calls(call)) {
        call.world.complete(call, "ncclGroupStart", [](ncclComm_t) { return ncclGroupStart(); });
        open_ = true;
    }
    ~GroupGuard() {
        if (!open_) { return; }
        static_cast<void>(ncclGroupEnd());
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
        lock_.unlock();
        const auto complete = [&](std::string_view nccl_call, ncclResult_t result) {
            if (result == ncclSuccess) { return; }
            call_.world.complete_begun(call_.group, nccl_call, result, call_.doing(), call_.where);
        };
        complete(failed_call_, failed_);
        complete("ncclGroupEnd", code);
    }

  private:
    const Call& call_;
    Connections::Lock lock_;  // from the first call to the last
    bool open_ = false;
    ncclResult_t failed_ = ncclSuccess;  // of the first call that failed
    std::string_view failed_call_;
};

/// Sends memory to a rank, or receives from it, elements of a type; the result of NCCL's call.
inline ncclResult_t send_to(const Call& call, host::ConstMemory sent, ElementType type, std::size_t to) {
    return ncclSend(sent.at, sent.bytes() / size_of(type), datatype(type), static_cast<int>(to), call.group.comm,
                    call.stream.native());
}
inline ncclResult_t receive_from(const Call& call, host::Memory received, ElementType type, std::size_t from) {
    return ncclRecv(received.at, received.bytes() / size_of(type), datatype(type), static_cast<int>(from),
                    call.group.comm, call.stream.native());
}

/// Sends memory send(q) to each rank q, and receives memory receive(q) from it, unless they are empty: elements of a
/// type.
template <class Send, class Receive>
void with_peers(const Call& call, ElementType type, const Send& send, const Receive& receive) {
    GroupGuard together(call);
    for (std::size_t q = 0; q < call.group.size; ++q) {
        const host::ConstMemory sent = send(q);
        const host::Memory received = receive(q);
        if (sent.count > 0) { together.add("ncclSend", send_to(call, sent, type, q)); }
        if (received.count > 0) { together.add("ncclRecv", receive_from(call, received, type, q)); }
    }
    together.submit();
}

}  // namespace shardkit::nccl::detail
