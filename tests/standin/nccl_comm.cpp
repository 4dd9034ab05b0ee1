// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <sstream>
#include <utility>

#include "communicators.hpp"
#include "state.hpp"

namespace standin {

namespace {

bool is_in_progress(const ncclComm& comm) {
    return comm.polls_left > 0 || comm.launch || comm.division || !comm.unwritten.empty() || !comm.writes.empty() ||
           comm.finalizing || !comm.clique->complete();
}

bool all_done(State& s, const ncclComm& comm) {
    return std::all_of(comm.outstanding.begin(), comm.outstanding.end(),
                       [&](const auto& mark) { return advance(s, *mark); });
}

/// Now, or by a thread of NCCL's.
template <class T>
void write(ncclComm& comm, T* where, T value) {
    if (comm.blocking) {
        *where = value;
    } else {
        comm.writes.push_back(std::make_unique<LateWrite>(where, value));
    }
}

/// Makes the communicator that a complete division has for this rank.
void hand_out(State& s, ncclComm& comm) {
    const auto place = comm.division->places[static_cast<std::size_t>(comm.rank)];
    comm.division.reset();
    if (!place.clique) { return write<ncclComm_t>(comm, comm.made, nullptr); }
    auto made = std::make_unique<ncclComm>();
    made->clique = place.clique;
    made->rank = place.rank;
    made->blocking = comm.made_blocking;
    made->config = comm.made_config;
    made->polls_left = made->blocking ? 0 : s.in_progress_polls;
    write<ncclComm_t>(comm, comm.made, s.comms.add(std::move(made)));
}

/// Whether a rank that has ended its communicator, or its process, has not come to the division that is under way. It
/// has closed the connections over which NCCL's bootstrap waits for it.
/// Source:  socketProgress in NCCL's socket.cc, under bootstrapAllGather in commGetSplitInfo (init.cc)
bool misses_a_peer(const State& s, const ncclComm& comm) {
    if (!comm.division || comm.division->complete()) { return false; }
    for (std::size_t rank = 0; rank < comm.clique->members.size(); ++rank) {
        const Clique::Member& member = comm.clique->members[rank];
        const auto calls = s.calls_to_live.find(member.device);
        const bool ended = calls != s.calls_to_live.end() && calls->second == 0 && s.is_broken(member.device);
        const bool awaited = comm.division->excluded.count(static_cast<int>(rank)) == 0;
        if (awaited && !comm.division->wishes[rank] && (member.left || ended)) { return true; }
    }
    return false;
}

/// Waits until all that was queued is done.
ncclResult_t flush(State& s, Lock& lock, ncclComm_t comm) {
    const bool done = block_until(s, lock, [&] {
        return s.comms.find(comm) == nullptr || comm->member().left || comm->member().error != ncclSuccess ||
               all_done(s, *comm);
    });
    if (!done) { return nccl_error(s, ncclSystemError, "operations did not complete in time"); }
    if (s.comms.find(comm) == nullptr) { return nccl_error(s, ncclInvalidUsage, "the communicator was aborted"); }
    return comm->member().error;
}

}  // namespace

bool have_all_windows(const ncclComm& comm) {
    return std::all_of(comm.unwritten.begin(), comm.unwritten.end(), [&](const ncclComm::Window& each) {
        return each.meeting->come == comm.clique->members.size();
    });
}

void write_windows(ncclComm& comm) {
    for (const ncclComm::Window& each : std::exchange(comm.unwritten, {})) { write(comm, each.where, each.handle); }
}

ncclResult_t check_ready(State& s, ncclComm_t comm) {
    if (s.comms.find(comm) == nullptr) {
        return nccl_error(s, ncclInvalidArgument, "not a communicator, or no longer one");
    }
    const Clique::Member& member = comm->member();
    if (member.error != ncclSuccess) { return nccl_error(s, member.error, member.text); }
    if (s.is_broken(member.device)) {
        return nccl_error(s, ncclUnhandledCudaError, cudaGetErrorString(s.broken.at(member.device)));
    }
    if (!is_in_progress(*comm) && member.proxy_error != ncclSuccess) {
        return nccl_error(s, member.proxy_error, "the proxy thread has failed");
    }
    if (is_in_progress(*comm)) {
        return nccl_error(s, ncclInvalidArgument,
                          "Attempt to use communicator before the previous operation returned ncclSuccess");
    }
    if (member.left || comm->finalized) {
        return nccl_error(s, ncclInvalidUsage, "the communicator was finalized or aborted");
    }
    return ncclSuccess;
}

ncclResult_t await_creation(State& s, Lock& lock, ncclComm_t comm) {
    const auto waits = [&] { return !comm->clique->complete() || (comm->division && !comm->division->complete()); };
    const bool done = block_until(s, lock, [&] {
        return s.comms.find(comm) == nullptr || comm->member().error != ncclSuccess || !waits() ||
               misses_a_peer(s, *comm);
    });
    if (s.comms.find(comm) == nullptr) { return nccl_error(s, ncclInvalidUsage, "the communicator was aborted"); }
    if (done && comm->member().error == ncclSuccess && waits()) {
        comm->division.reset();
        return nccl_error(s, ncclRemoteError, "a peer has closed its connection");
    }
    if (!done) {
        comm->division.reset();
        return nccl_error(s, ncclSystemError, "not all ranks came in time");
    }
    if (comm->member().error != ncclSuccess) { return nccl_error(s, comm->member().error, comm->member().text); }
    if (comm->division) { hand_out(s, *comm); }
    return ncclSuccess;
}

void leave(State& s, ncclComm_t comm) {
    const auto clique = comm->clique;
    Clique::Member& member = comm->member();
    member.left = true;
    s.order.forget(*clique, member.device);
    s.comms.remove(comm);
    s.dirty = true;
    if (clique->complete()) { return; }
    const bool empty = std::all_of(clique->members.begin(), clique->members.end(),
                                   [](const Clique::Member& each) { return !each.joined || each.left; });
    const auto at =
        std::find_if(s.forming.begin(), s.forming.end(), [&](const auto& each) { return each.second == clique; });
    if (empty && at != s.forming.end()) { s.forming.erase(at); }
}

ncclResult_t await_end(State& s, Lock& lock, const Ending& ending) {
    const Clique::Member& member = ending.clique->member(ending.rank);
    const bool done = block_until(s, lock, [&] {
        const bool over =
            s.is_broken(member.device) || std::all_of(ending.marks.begin(), ending.marks.end(),
                                                      [&](const auto& mark) { return advance(s, *mark); });
        return over && !is_in_a_graph(s, &member);
    });
    return done ? ncclSuccess
                : nccl_error(s, ncclSystemError, "the communicator's work is not over, or a graph holds some of it");
}

ncclResult_t end_communicator(State& s, Lock& lock, ThreadState& thread, ncclComm_t comm) {
    Ending ending{comm->clique, comm->rank, comm->outstanding};
    // NCCL's thread, which is waited for here, writes a handle also where nothing was made.
    if (comm->division && !comm->blocking) { *comm->made = nullptr; }
    leave(s, comm);
    if (thread.group_depth > 0 && s.nccl_version >= 22200) {
        thread.group_ended.push_back(std::move(ending));
        return ncclSuccess;
    }
    settle(s);
    return await_end(s, lock, ending);
}

}  // namespace standin

using standin::Lock;
using standin::nccl_call;
using standin::nccl_error;
using standin::State;
using standin::ThreadState;

// Also what makes a non-blocking communicator's calls progress.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    return nccl_call("ncclCommGetAsyncError", [&](State& s, Lock&, ThreadState&) {
        if (error == nullptr || s.comms.find(comm) == nullptr) {
            return nccl_error(s, ncclInvalidArgument, "ncclCommGetAsyncError: not a communicator, or a null pointer");
        }
        *error = comm->member().error;
        if (*error != ncclSuccess) { return ncclSuccess; }
        *error = ncclInProgress;
        if (comm->polls_left > 0) {
            --comm->polls_left;
            return ncclSuccess;
        }
        if (!comm->clique->complete() || (comm->division && !comm->division->complete())) { return ncclSuccess; }
        if (!standin::have_all_windows(*comm)) { return ncclSuccess; }
        if (comm->division) { standin::hand_out(s, *comm); }
        standin::write_windows(*comm);
        const auto is_over = [](const auto& each) { return each->over(); };
        if (!std::all_of(comm->writes.begin(), comm->writes.end(), is_over)) { return ncclSuccess; }
        comm->writes.clear();
        if (comm->launch && !standin::has_room(s, *comm->launch)) { return ncclSuccess; }
        if (const auto launch = std::exchange(comm->launch, nullptr)) {
            for (ncclComm_t other : launch->comms) {
                if (s.comms.find(other) != nullptr && other->launch == launch) {
                    other->launch.reset();
                    other->polls_left = 0;
                }
            }
            *error = standin::queue_launch(s, *launch);
            if (*error != ncclSuccess) { comm->member().error = *error; }
            return ncclSuccess;
        }
        if (comm->finalizing) {
            if (!standin::all_done(s, *comm) || standin::is_in_a_graph(s, &comm->member())) { return ncclSuccess; }
            comm->finalizing = false;
            comm->finalized = true;
        }
        *error = comm->member().proxy_error;
        return ncclSuccess;
    });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    return nccl_call("ncclCommFinalize", [&](State& s, Lock& lock, ThreadState&) {
        if (const ncclResult_t ready = standin::check_ready(s, comm); ready != ncclSuccess) { return ready; }
        if (!comm->blocking) {
            comm->finalizing = true;
            comm->polls_left = s.in_progress_polls;
            return ncclInProgress;
        }
        const ncclResult_t result = standin::flush(s, lock, comm);
        if (result == ncclSuccess) { comm->finalized = true; }
        return result;
    });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    return nccl_call("ncclCommDestroy", [&](State& s, Lock& lock, ThreadState& thread) {
        if (comm == nullptr) { return ncclSuccess; }
        if (s.comms.find(comm) == nullptr || (!comm->finalized && !comm->member().left)) {
            if (const ncclResult_t ready = standin::check_ready(s, comm); ready != ncclSuccess) { return ready; }
        }
        const ncclResult_t result = standin::flush(s, lock, comm);
        if (s.comms.find(comm) == nullptr) { return result; }
        s.windows_left += comm->windows.size();
        const ncclResult_t left = standin::end_communicator(s, lock, thread, comm);
        return result == ncclSuccess ? left : result;
    });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    return nccl_call("ncclCommAbort", [&](State& s, Lock& lock, ThreadState& thread) {
        if (comm == nullptr) { return ncclSuccess; }
        if (s.comms.find(comm) == nullptr) {
            return nccl_error(s, ncclInvalidArgument, "ncclCommAbort: not a communicator, or no longer one");
        }
        return standin::end_communicator(s, lock, thread, comm);
    });
}

// What is under way passes without effect, and calls but those that make or end communicators are refused.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
    return nccl_call("ncclCommRevoke", [&](State& s, Lock&, ThreadState&) {
        if (comm == nullptr) { return ncclSuccess; }
        if (s.comms.find(comm) == nullptr || flags != NCCL_REVOKE_DEFAULT || comm->revoked || comm->finalizing ||
            comm->finalized) {
            return nccl_error(s, ncclInvalidArgument, "ncclCommRevoke: not a communicator that can be revoked");
        }
        comm->revoked = true;
        comm->launch.reset();
        comm->division.reset();
        comm->member().left = true;
        comm->member().error = ncclSuccess;
        comm->polls_left = comm->blocking ? 0 : s.in_progress_polls;
        s.dirty = true;
        return comm->polls_left > 0 ? ncclInProgress : ncclSuccess;
    });
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    return nccl_call("ncclCommCount", [&](State& s, Lock&, ThreadState&) {
        const ncclResult_t ready = standin::check_ready(s, comm);
        if (ready == ncclSuccess) { *count = static_cast<int>(comm->clique->members.size()); }
        return ready;
    });
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
    return nccl_call("ncclCommCuDevice", [&](State& s, Lock&, ThreadState&) {
        const ncclResult_t ready = standin::check_ready(s, comm);
        if (ready == ncclSuccess) { *device = comm->member().device; }
        return ready;
    });
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    return nccl_call("ncclCommUserRank", [&](State& s, Lock&, ThreadState&) {
        const ncclResult_t ready = standin::check_ready(s, comm);
        if (ready == ncclSuccess) { *rank = comm->rank; }
        return ready;
    });
}
