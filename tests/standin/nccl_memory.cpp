// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "communicators.hpp"
#include "state.hpp"

using standin::Lock;
using standin::nccl_call;
using standin::nccl_error;
using standin::State;
using standin::ThreadState;

namespace {

ncclResult_t result_of(State& s, cudaError_t error) {
    switch (error) {
        case cudaSuccess:
            return ncclSuccess;
        case cudaErrorInvalidValue:
            return nccl_error(s, ncclInvalidArgument, "not memory from ncclMemAlloc");
        default:
            return nccl_error(s, ncclUnhandledCudaError,
                              std::string("Cuda failure '") + cudaGetErrorString(error) + "'");
    }
}

/// This rank comes to its next window. NCCL maps a peer's memory in the size of the rank's own.
std::shared_ptr<standin::WindowMeeting> meet(State& s, const ncclComm& comm, std::size_t bytes) {
    standin::Clique& clique = *comm.clique;
    const std::uint64_t number = comm.member().windows++;
    auto& place = clique.windows[number];
    if (!place) { place = std::make_shared<standin::WindowMeeting>(standin::WindowMeeting{bytes, 0}); }
    const auto meeting = place;
    if (meeting->bytes != bytes) {
        standin::fail_all(s, clique, ncclInvalidUsage, "the ranks make a window of different sizes");
    }
    if (++meeting->come == clique.members.size()) { clique.windows.erase(number); }
    return meeting;
}

ncclResult_t await_window(State& s, Lock& lock, ncclComm_t comm) {
    const bool done = standin::block_until(s, lock, [&] {
        return s.comms.find(comm) == nullptr || comm->member().error != ncclSuccess ||
               standin::have_all_windows(*comm);
    });
    if (s.comms.find(comm) == nullptr) { return nccl_error(s, ncclInvalidUsage, "the communicator was aborted"); }
    if (comm->member().error != ncclSuccess) { return nccl_error(s, comm->member().error, comm->member().text); }
    if (!done) {
        comm->unwritten.clear();
        return nccl_error(s, ncclSystemError, "not all ranks made the window in time");
    }
    standin::write_windows(*comm);
    return ncclSuccess;
}

/// A handle that is not null and never used again.
void* new_handle(State& s) { return reinterpret_cast<void*>(++s.handles); }

}  // namespace

ncclResult_t ncclMemAlloc(void** pointer, std::size_t size) {
    return nccl_call("ncclMemAlloc", [&](State& s, Lock&, ThreadState&) {
        return result_of(s, standin::allocate(s, pointer, size, cudaMemoryTypeDevice, true));
    });
}
ncclResult_t ncclMemFree(void* pointer) {
    return nccl_call("ncclMemFree", [&](State& s, Lock& lock, ThreadState&) {
        return result_of(s, standin::free_memory(s, lock, pointer, true, false, "ncclMemFree"));
    });
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buffer, std::size_t size, void** handle) {
    return nccl_call("ncclCommRegister", [&](State& s, Lock&, ThreadState&) {
        if (const ncclResult_t ready = standin::check_ready(s, comm); ready != ncclSuccess) { return ready; }
        if (handle == nullptr || size == 0 || standin::find_allocation(s, buffer, size) == nullptr) {
            return nccl_error(s, ncclInvalidArgument, "ncclCommRegister: not device memory, or a null pointer");
        }
        *handle = new_handle(s);
        comm->registrations.emplace(*handle, standin::Range{buffer, size});
        return ncclSuccess;
    });
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
    return nccl_call("ncclCommDeregister", [&](State& s, Lock&, ThreadState&) {
        if (s.comms.find(comm) == nullptr || comm->registrations.erase(handle) == 0) {
            return nccl_error(s, ncclInvalidArgument, "ncclCommDeregister: not a registration of this communicator");
        }
        return ncclSuccess;
    });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buffer, std::size_t size, ncclWindow_t* window, int) {
    return nccl_call("ncclCommWindowRegister", [&](State& s, Lock& lock, ThreadState&) {
        if (const ncclResult_t ready = standin::check_ready(s, comm); ready != ncclSuccess) { return ready; }
        const standin::Allocation* const found = standin::find_allocation(s, buffer, size);
        if (window == nullptr || size == 0 || found == nullptr || !found->by_nccl ||
            reinterpret_cast<std::uintptr_t>(buffer) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
            return nccl_error(s, ncclInvalidArgument,
                              "ncclCommWindowRegister: not aligned memory from ncclMemAlloc, or a null pointer");
        }
        void* const handle = new_handle(s);
        comm->windows.emplace(handle, ncclComm::Made{{buffer, size}, comm->member().windows});
        *window = nullptr;
        comm->unwritten.push_back({meet(s, *comm, size), window, static_cast<ncclWindow_t>(handle)});
        s.dirty = true;
        if (comm->blocking) { return await_window(s, lock, comm); }
        // As ncclCommWindowRegister of dev_runtime.cc does from 2.28 on: success, although it is in progress.
        comm->polls_left = s.in_progress_polls;
        return s.nccl_version >= 22800 ? ncclSuccess : ncclInProgress;
    });
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
    return nccl_call("ncclCommWindowDeregister", [&](State& s, Lock&, ThreadState&) {
        if (s.comms.find(comm) == nullptr || comm->windows.erase(window) == 0) {
            return nccl_error(s, ncclInvalidArgument, "ncclCommWindowDeregister: not a window of this communicator");
        }
        return ncclSuccess;
    });
}

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, std::uint64_t* value) {
    return nccl_call("ncclCommMemStats", [&](State& s, Lock&, ThreadState&) {
        if (const ncclResult_t ready = standin::check_ready(s, comm); ready != ncclSuccess) { return ready; }
        if (value == nullptr || stat != ncclStatGpuMemTotal) {
            return nccl_error(s, ncclInvalidArgument, "ncclCommMemStats: a null pointer, or not the total");
        }
        *value = s.communicator_memory;
        return ncclSuccess;
    });
}
