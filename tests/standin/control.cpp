// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "state.hpp"

namespace standin {
namespace {

/// Runs `body` on the state and lets what it changed take effect.
template <class Body>
auto with_state(const Body& body) {
    State& s = state();
    const Lock lock(s.mutex);
    if constexpr (std::is_void_v<decltype(body(s))>) {
        body(s);
        settle(s);
    } else {
        return body(s);
    }
}

void inject(std::string_view call, std::size_t successes, int code, int device) {
    with_state([&](State& s) { s.injected[std::string(call)].push_back({successes, code, device}); });
}

}  // namespace

void reset() {
    State& s = state();
    const Lock lock(s.mutex);
    static_cast<Model&>(s) = Model{};
    s.dirty = false;
    ++s.epoch;
}

void set_device_count(int count) {
    with_state([&](State& s) { s.devices = count; });
}
void set_device_memory(std::size_t bytes) {
    with_state([&](State& s) { s.device_memory = bytes; });
}
void set_nccl_version(int version) {
    with_state([&](State& s) { s.nccl_version = version; });
}
void set_pace(Pace pace) {
    with_state([&](State& s) {
        s.pace = pace;
        for (const auto& stream : s.streams.all()) { stream->pace = pace; }
        s.dirty = true;
    });
}
void set_pace(cudaStream_t stream, Pace pace) {
    with_state([&](State& s) {
        if (CUstream_st* const found = s.streams.find(stream)) { found->pace = pace; }
        s.dirty = true;
    });
}
void hold(cudaStream_t stream) {
    with_state([&](State& s) {
        if (CUstream_st* const found = s.streams.find(stream)) { found->held = true; }
    });
}
void release(cudaStream_t stream) {
    with_state([&](State& s) {
        if (CUstream_st* const found = s.streams.find(stream)) { found->held = false; }
        s.dirty = true;
    });
}
void set_query_delay(int polls) {
    with_state([&](State& s) { s.query_delay = polls; });
}
void set_in_progress_polls(int polls) {
    with_state([&](State& s) { s.in_progress_polls = polls; });
}
void set_compares_calls(bool compares) {
    with_state([&](State& s) { s.compares_calls = compares; });
}
void set_symmetric_kernels(bool there) {
    with_state([&](State& s) { s.symmetric_kernels = there; });
}
void set_communicator_memory(std::size_t bytes) {
    with_state([&](State& s) { s.communicator_memory = bytes; });
}
void set_same_bits(bool same) {
    with_state([&](State& s) { s.same_bits = same; });
}
void set_launch_queue(std::size_t most) {
    with_state([&](State& s) { s.launch_queue = most; });
}
void set_patience(std::chrono::milliseconds patience) {
    with_state([&](State& s) { s.patience = patience; });
}
std::size_t hangs() {
    return with_state([](State& s) { return s.hangs; });
}
std::size_t blocked() {
    return with_state([](State& s) { return s.blocked; });
}

void fail_next(std::string_view call, cudaError_t code, int device) { inject(call, 0, code, device); }
void fail_next(std::string_view call, ncclResult_t code, int device) { inject(call, 0, code, device); }
void fail_after(std::string_view call, std::size_t successes, cudaError_t code, int device) {
    inject(call, successes, code, device);
}
void fail_after(std::string_view call, std::size_t successes, ncclResult_t code, int device) {
    inject(call, successes, code, device);
}
void return_late(std::string_view call, std::chrono::milliseconds after) {
    with_state([&](State& s) { s.late[std::string(call)] = after; });
}
void forget_next(std::string_view call, int device) { inject(call, 0, forgotten, device); }

void break_device(int device, cudaError_t code) {
    with_state([&](State& s) {
        s.broken[device] = code;
        s.dirty = true;
    });
}
ncclConfig_t configuration(ncclComm_t comm) {
    return with_state([&](State& s) { return s.comms.find(comm)->config; });
}
void set_async_error(ncclComm_t comm, ncclResult_t code) {
    with_state([&](State& s) {
        if (const ncclComm* const found = s.comms.find(comm)) {
            found->member().error = code;
            found->member().text = "injected asynchronous error";
        }
        s.dirty = true;
    });
}
void fail_proxy(ncclComm_t comm, ncclResult_t code) {
    with_state([&](State& s) {
        if (const ncclComm* const found = s.comms.find(comm)) { found->member().proxy_error = code; }
        s.dirty = true;
    });
}
void kill_rank(ncclComm_t comm) {
    with_state([&](State& s) {
        if (const ncclComm* const found = s.comms.find(comm)) { found->member().killed = true; }
    });
}
bool all_live(ncclComm_t comm) {
    return with_state([&](State& s) {
        const ncclComm* const found = s.comms.find(comm);
        return found != nullptr && std::none_of(found->clique->members.begin(), found->clique->members.end(),
                                                [](const Clique::Member& each) { return each.killed; });
    });
}
void kill_device(int device) {
    with_state([&](State& s) { kill(s, device); });
}
void kill_device_at(int device, std::size_t call) {
    with_state([&](State& s) { s.calls_to_live[device] = call; });
}
bool lives(int device) {
    return with_state([&](State& s) { return !s.is_broken(device); });
}

std::size_t calls(std::string_view name) {
    return with_state([&](State& s) {
        const auto at = s.calls.find(name);
        return at == s.calls.end() ? std::size_t{0} : at->second;
    });
}
void reset_calls() {
    with_state([](State& s) { s.calls.clear(); });
}
std::vector<std::string> order_violations() {
    return with_state([](State& s) { return s.order.violations(); });
}
std::vector<std::string> uneven_windows() {
    return with_state([](State& s) { return s.uneven_windows; });
}
std::vector<std::string> crowded() {
    return with_state([](State& s) { return s.crowded; });
}
std::vector<SaidOfCall> said_of_calls() {
    return with_state([](State& s) { return s.said_of_calls; });
}
void set_multiprocessors(int count) {
    with_state([&](State& s) { s.multiprocessors = count; });
}
std::size_t windows_left() {
    return with_state([](State& s) { return s.windows_left; });
}
std::vector<std::string> frees_in_use() {
    return with_state([](State& s) { return s.frees_in_use; });
}

Live live() {
    return with_state([](State& s) {
        Live live;
        for (const auto& stream : s.streams.all()) {
            live.streams += stream->destroyed ? 0U : 1U;
            live.queued += stream->queue.size();
        }
        live.events = s.events.all().size();
        live.graphs = s.graphs.all().size();
        live.executable_graphs = s.executables.all().size();
        for (const auto& [begin, allocation] : s.allocations) {
            ++(allocation.type == cudaMemoryTypeHost ? live.host_allocations : live.device_allocations);
        }
        live.communicators = s.comms.all().size();
        for (const auto& comm : s.comms.all()) {
            live.registrations += comm->registrations.size();
            live.windows += comm->windows.size();
        }
        return live;
    });
}
std::string context_maker(int device) {
    return with_state([&](State& s) {
        const auto found = s.contexts.find(device);
        return found == s.contexts.end() ? std::string() : found->second;
    });
}
std::size_t device_bytes(int device) {
    return with_state([&](State& s) { return s.device_bytes[device]; });
}
std::size_t pinned_bytes(int device) {
    return with_state([&](State& s) {
        std::size_t bytes = 0;
        for (const auto& [begin, allocation] : s.allocations) {
            if (allocation.type == cudaMemoryTypeHost && allocation.device == device) { bytes += allocation.bytes; }
        }
        return bytes;
    });
}
Copied copied(int device) {
    return with_state([&](State& s) { return s.copied[device]; });
}
std::size_t peak_device_bytes(int device) {
    return with_state([&](State& s) { return s.peak_device_bytes[device]; });
}

}  // namespace standin
