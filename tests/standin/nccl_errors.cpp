// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>
#include <utility>

#include "communicators.hpp"
#include "state.hpp"

namespace standin {

ncclResult_t nccl_error(State& s, ncclResult_t code, std::string text) {
    this_thread(s).text = std::move(text);
    return code;
}

}  // namespace standin

using standin::Lock;
using standin::nccl_call;
using standin::State;
using standin::ThreadState;

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclUnhandledCudaError:
            return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
        case ncclSystemError:
            return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
        case ncclInternalError:
            return "internal error - please report this issue to the NCCL developers";
        case ncclInvalidArgument:
            return "invalid argument (run with NCCL_DEBUG=WARN for details)";
        case ncclInvalidUsage:
            return "invalid usage (run with NCCL_DEBUG=WARN for details)";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        case ncclInProgress:
            return "NCCL operation in progress";
        default:
            return "unknown result code";
    }
}

// The text stays valid until this thread's next NCCL call.
const char* ncclGetLastError(ncclComm_t comm) {
    if (standin::in_host_function()) { return "called in a host function"; }
    State& s = standin::state();
    const Lock lock(s.mutex);
    ThreadState& thread = standin::this_thread(s);
    const ncclComm* const found = s.comms.find(comm);
    if (found != nullptr && !found->member().text.empty()) { thread.text = found->member().text; }
    return thread.text.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
    return nccl_call("ncclGetVersion", [&](State& s, Lock&, ThreadState&) {
        if (version == nullptr) { return standin::nccl_error(s, ncclInvalidArgument, "version is null"); }
        *version = s.nccl_version;
        return ncclSuccess;
    });
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    return nccl_call("ncclGetUniqueId", [&](State& s, Lock&, ThreadState&) {
        if (id == nullptr) { return standin::nccl_error(s, ncclInvalidArgument, "uniqueId is null"); }
        const char* const address = std::getenv("NCCL_COMM_ID");
        const std::string text =
            address != nullptr ? std::string("at ") + address : "number " + std::to_string(++s.unique_ids);
        if (text.size() >= NCCL_UNIQUE_ID_BYTES) {
            return standin::nccl_error(s, ncclInvalidArgument,
                                       "Invalid NCCL_COMM_ID, please use format: "
                                       "<ipv4>:<port> or [<ipv6>]:<port> or <hostname>:<port>");
        }
        std::memset(id->internal, 0, NCCL_UNIQUE_ID_BYTES);
        std::memcpy(id->internal, text.data(), text.size());
        return ncclSuccess;
    });
}
