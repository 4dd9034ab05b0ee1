// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <utility>

#include "communicators.hpp"
#include "state.hpp"

namespace standin {
namespace {

using Launched = std::map<int, std::vector<LaunchOrder::Entry>>;  // by device

LaunchOrder::Entry entry_of(const Batch::Part& part) {
    LaunchOrder::Entry entry{part.clique.get(), part.rendezvous->key, part.rendezvous->signature, {}};
    const auto add = [&](int rank) {
        const Clique::Member& member = part.clique->member(rank);
        if (!member.left && !member.killed) { entry.devices.push_back(member.device); }
    };
    if (entry.key.collective()) {
        for (std::size_t rank = 0; rank < part.clique->members.size(); ++rank) { add(static_cast<int>(rank)); }
    } else {
        add(entry.key.from);
        add(entry.key.to);
    }
    return entry;
}

/// Records the request's event behind what its stream and its communicator have been given before.
void record_start(State& s, CUstream_st& stream, const Request& request) {
    CUevent_st* const event = s.events.find(request.started);
    if (event == nullptr) { return; }
    for (const auto& comm : s.comms.all()) {
        if (comm->clique != request.clique || comm->rank != request.rank) { continue; }
        for (const auto& before : comm->outstanding) {
            if (!before->done) { push(s, stream, std::make_unique<WaitForMark>(before)); }
        }
    }
    event->polls_left = s.query_delay;
    event->record = {push(s, stream, std::make_unique<Work>(nullptr)), nullptr, {}};
}

void queue_batch(State& s, CUstream_st& stream, const std::vector<Request>& requests, Launched& launched) {
    for (const Request& request : requests) { record_start(s, stream, request); }
    auto made = std::make_unique<Batch>();
    Batch& batch = *made;
    const auto mark = push(s, stream, std::move(made));
    for (const Request& request : requests) {
        const Clique::Member& member = request.clique->member(request.rank);
        if (member.left) { continue; }  // a graph that outlives its communicator
        batch.parts.push_back(enter(s, request, mark));
        launched[member.device].push_back(entry_of(batch.parts.back()));
        for (const auto& comm : s.comms.all()) {
            if (comm->clique != request.clique || comm->rank != request.rank) { continue; }
            auto& list = comm->outstanding;
            if (!list.empty() && list.back() != mark) { batch.after.push_back(list.back()); }
            list.erase(std::remove_if(list.begin(), list.end(), [](const auto& each) { return each->done; }),
                       list.end());
            list.push_back(mark);
        }
    }
}

void note(State& s, const Launched& launched) {
    for (const auto& [device, entries] : launched) { s.order.launched(device, entries); }
}

}  // namespace

ncclResult_t queue_launch(State& s, const Launch& launch) {
    if (!launch.refusal.empty()) {
        for (ncclComm_t comm : launch.comms) {
            if (s.comms.find(comm) == nullptr) { continue; }
            comm->member().error = ncclInvalidArgument;
            comm->member().text = launch.refusal;
        }
        return nccl_error(s, ncclInvalidArgument, launch.refusal);
    }
    std::vector<std::pair<CUstream_st*, std::vector<Request>>> by_stream;
    for (const Launch::Call& call : launch.calls) {
        auto at = std::find_if(by_stream.begin(), by_stream.end(),
                               [&](const auto& each) { return each.first == call.stream; });
        if (at == by_stream.end()) { at = by_stream.insert(at, {call.stream, {}}); }
        at->second.push_back(call.request);
    }
    Launched launched;
    for (const auto& [stream, requests] : by_stream) {
        const CUstream_st* const found = s.streams.find(stream);
        if (found == nullptr || found->destroyed) {
            return nccl_error(s, ncclInvalidArgument, "the stream was destroyed before the work was queued");
        }
        if (!stream->capture) {
            queue_batch(s, *stream, requests, launched);
            continue;
        }
        std::vector<const void*> serial;
        for (const Request& request : requests) { serial.push_back(&request.clique->member(request.rank)); }
        std::sort(serial.begin(), serial.end());
        serial.erase(std::unique(serial.begin(), serial.end()), serial.end());
        const auto launch_again = [requests = requests](State& state, CUstream_st& in) {
            Launched now;
            queue_batch(state, in, requests, now);
            note(state, now);
        };
        if (capture(*stream, launch_again, serial) != cudaSuccess) {
            return nccl_error(s, ncclUnhandledCudaError, "the stream's capture is invalid");
        }
    }
    note(s, launched);
    return ncclSuccess;
}

ncclResult_t end_group(State& s, Lock& lock, ThreadState& thread) {
    if (--thread.group_depth > 0) { return ncclSuccess; }
    const ncclResult_t error = std::exchange(thread.group_error, ncclSuccess);
    const Launch group = std::exchange(thread.group, {});
    const std::vector<ncclComm_t> made = std::exchange(thread.group_made, {});
    for (const Ending& ending : std::exchange(thread.group_ended, {})) {
        if (const ncclResult_t result = await_end(s, lock, ending); result != ncclSuccess) { return result; }
    }
    if (error != ncclSuccess) { return error; }
    for (ncclComm_t comm : made) {
        if (const ncclResult_t result = await_creation(s, lock, comm); result != ncclSuccess) { return result; }
    }
    bool later = false;
    for (ncclComm_t comm : group.comms) { later = later || (!comm->blocking && s.in_progress_polls > 0); }
    if (!later) {
        for (const Launch::Call& call : group.calls) {
            if (make_room(s, lock, *call.stream) != cudaSuccess) {
                return nccl_error(s, ncclUnhandledCudaError, "the stream's launch queue stayed full");
            }
        }
        return queue_launch(s, group);
    }
    const auto launch = std::make_shared<Launch>(group);
    for (ncclComm_t comm : group.comms) {
        comm->launch = launch;
        comm->polls_left = s.in_progress_polls;
    }
    return ncclInProgress;
}

}  // namespace standin

using standin::Lock;
using standin::nccl_call;
using standin::State;
using standin::ThreadState;

ncclResult_t ncclGroupStart() {
    return nccl_call("ncclGroupStart", [](State&, Lock&, ThreadState& thread) {
        ++thread.group_depth;
        return ncclSuccess;
    });
}

ncclResult_t ncclGroupEnd() {
    return nccl_call("ncclGroupEnd", [](State& s, Lock& lock, ThreadState& thread) {
        if (thread.group_depth == 0) {
            return standin::nccl_error(s, ncclInvalidUsage, "ncclGroupEnd: not in a group call");
        }
        return standin::end_group(s, lock, thread);
    });
}
