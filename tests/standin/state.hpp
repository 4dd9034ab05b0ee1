// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "clique.hpp"
#include "graph.hpp"
#include "handles.hpp"
#include "launch_order.hpp"
#include "operation.hpp"
#include "standin.hpp"

namespace standin {

struct Allocation {
    struct Free {
        void operator()(std::byte* pointer) const;
    };
    std::unique_ptr<std::byte, Free> memory;
    std::size_t bytes;
    cudaMemoryType type;
    int device;
    bool by_nccl;
};

struct Injected {
    std::size_t successes;
    int code;
    int device;
};

/// All that reset() resets.
struct Model {
    int devices = 8;
    std::size_t device_memory = SIZE_MAX;
    int nccl_version = usual_nccl_version;
    bool symmetric_kernels = true;
    std::size_t communicator_memory = 0;
    std::optional<bool> launches_in_order;  // as the environment says at the first call of NCCL
    int multiprocessors = 132;
    Pace pace = Pace::lazy;
    int query_delay = 0;
    int in_progress_polls = 1;
    bool compares_calls = true;
    bool same_bits = true;
    std::chrono::milliseconds patience{60000};
    std::size_t launch_queue = 1000;

    std::map<std::string, std::vector<Injected>, std::less<>> injected;
    std::map<std::string, std::chrono::milliseconds, std::less<>> late;  // how much later calls return
    std::map<std::string, std::size_t, std::less<>> calls;
    std::map<int, cudaError_t> broken;
    std::map<int, std::string> contexts;       // the call that made each
    std::map<int, std::size_t> calls_to_live;  // of devices whose process ends
    std::size_t hangs = 0;
    std::vector<std::string> frees_in_use;
    std::vector<std::string> uneven_windows;
    std::vector<std::string> crowded;
    std::vector<SaidOfCall> said_of_calls;
    std::vector<Resident> resident;  // in the order of their starts
    std::size_t windows_left = 0;

    std::map<std::uintptr_t, Allocation> allocations;
    std::map<int, std::size_t> device_bytes, peak_device_bytes;
    std::map<int, Copied> copied;
    std::map<std::string, std::shared_ptr<Clique>> forming;
    std::uint64_t cliques = 0;
    std::uintptr_t handles = 0;  // of registrations and windows
    std::uint64_t unique_ids = 0;
    LaunchOrder order;
    Handles<CUstream_st> streams;
    Handles<CUevent_st> events;
    Handles<CUgraph_st> graphs;
    Handles<CUgraphExec_st> executables;
    Handles<ncclComm> comms;
    std::vector<std::shared_ptr<Capture>> captures;
    unsigned long long captures_begun = 0;
};

using Lock = std::unique_lock<std::mutex>;

struct State : Model {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t changes = 0;  // what `changed` tells about
    bool dirty = false;         // something happened that others may wait for
    std::size_t blocked = 0;    // threads in block_until
    std::uint64_t epoch = 1;    // of the threads' own state

    bool is_broken(int device) const { return broken.count(device) != 0; }
};
State& state();

/// What belongs to a thread.
struct ThreadState {
    std::uint64_t epoch = 0;
    int device = 0;
    cudaError_t last = cudaSuccess;
    cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
    std::string text;  // ncclGetLastError
    int group_depth = 0;
    ncclResult_t group_error = ncclSuccess;
    Launch group;
    std::vector<ncclComm_t> group_made;  // communicators to wait for at the end of the group
    std::vector<Ending> group_ended;     // likewise
};
ThreadState& this_thread(const State& state);
/// Whether this thread is running a host function of a stream: no API call is permitted.
bool& in_host_function();

/// Instead of a code: the call succeeds and does nothing.
inline constexpr int forgotten = -1;
/// Counts the call; the code that was injected for it, or 0.
int count_call(State& state, std::string_view name);
/// Whether the process that the thread stands for has ended, at this call of NCCL or before.
bool has_ended(State& state, std::string_view name);
/// Reads NCCL_LAUNCH_ORDER_IMPLICIT, once.
void read_launch_order(State& state);
/// Kills all communicators of the device.
void kill(State& state, int device);

/// Runs the stream's queue until `position` operations are done, or as far as is possible without blocking.
bool advance(State& state, CUstream_st& stream, std::uint64_t position);
bool advance(State& state, const Mark& mark);
/// Everything queued on a device's streams.
bool advance_device(State& state, int device);
/// Adds to the queue.
std::shared_ptr<Mark> push(State& state, CUstream_st& stream, std::unique_ptr<Operation> operation);
/// Lets eager streams run, frees destroyed streams that are empty, and wakes the waiting threads, when anything
/// happened.
void settle(State& state);
/// Blocks until `done()`. False: patience is over.
bool block_until(State& state, Lock& lock, const std::function<bool()>& done);

/// Blocks while the stream has as much queued as a launch queue holds, as CUDA does: until some of it is done.
cudaError_t make_room(State& state, Lock& lock, CUstream_st& stream);
/// Whether the stream has room without waiting.
bool has_room(State& state, CUstream_st& stream);
bool has_room(State& state, const Launch& launch);
/// Captures work, or queues it when there is room for it.
cudaError_t submit(State& state, Lock& lock, CUstream_st& stream, const Submission& submission);
/// Adds work to the stream's capture; `serial` names the communicators that it is for.
cudaError_t capture(CUstream_st& stream, const Submission& submission, const std::vector<const void*>& serial = {});
/// cudaErrorStreamCaptureUnsupported, and the capture invalidated, when a capture forbids unsafe calls.
cudaError_t refuse_in_capture(State& state);
void end_capture(State& state, const std::shared_ptr<Capture>& capture);
/// Whether a graph holds work of the communicator that `serial` names.
bool is_in_a_graph(const State& state, const void* serial);

/// The stream, or null and `error` set: a default stream or a handle that is not one.
CUstream_st* find_stream(const State& state, cudaStream_t stream, cudaError_t& error);
const Allocation* find_allocation(const State& state, const void* pointer, std::size_t bytes);
cudaError_t allocate(State& state, void** pointer, std::size_t bytes, cudaMemoryType type, bool by_nccl);
/// Waits for the device, then frees. Reports when queued work uses the memory and `report_use` says so.
cudaError_t free_memory(State& state, Lock& lock, void* pointer, bool by_nccl, bool host, std::string_view call);

enum class Needs {
    nothing,
    context,  // nothing, but may make the context of the thread's device
    device,   // fails without one, and on a broken one
    release,  // does its work on a broken device too
};

/// The frame of every CUDA call.
template <class Body>
cudaError_t cuda_call(std::string_view name, Needs needs, const Body& body) {
    if (in_host_function()) { return cudaErrorNotPermitted; }
    State& s = state();
    Lock lock(s.mutex);
    ThreadState& thread = this_thread(s);
    const int injected = count_call(s, name);
    if (injected == forgotten) { return cudaSuccess; }
    auto result = static_cast<cudaError_t>(injected);
    const auto broken = s.broken.find(thread.device);
    const bool needs_device = needs == Needs::device || needs == Needs::release;
    const bool is_broken = needs_device && broken != s.broken.end();
    if (result == cudaSuccess && needs_device && s.devices == 0) { result = cudaErrorNoDevice; }
    if (result == cudaSuccess && is_broken && needs == Needs::device) { result = broken->second; }
    if (result == cudaSuccess) {
        if (needs != Needs::nothing) { s.contexts.try_emplace(thread.device, name); }
        result = body(s, lock, thread);
        settle(s);
        if (is_broken && result == cudaSuccess) { result = s.broken.at(thread.device); }
    }
    if (result != cudaSuccess) { thread.last = result; }
    return result;
}

/// Whether a call of NCCL selects no device: the others select the communicator's and then again the thread's.
constexpr bool only_asks(std::string_view name) {
    return name == "ncclGetVersion" || name == "ncclGetUniqueId" || name == "ncclCommGetAsyncError" ||
           name == "ncclCommMemStats" || name == "ncclCommCount" || name == "ncclCommCuDevice" ||
           name == "ncclCommUserRank" || name == "ncclGroupStart";
}

/// The frame of every NCCL call.
template <class Body>
ncclResult_t nccl_call(std::string_view name, const Body& body) {
    if (in_host_function()) { return ncclInvalidUsage; }
    State& s = state();
    Lock lock(s.mutex);
    ThreadState& thread = this_thread(s);
    if (name != "ncclGetVersion") { read_launch_order(s); }  // which reads nothing
    if (has_ended(s, name)) { return ncclSystemError; }
    const int injected = count_call(s, name);
    if (injected == forgotten) { return ncclSuccess; }
    if (injected != 0) {
        thread.text = std::string(name) + ": injected failure";
        return static_cast<ncclResult_t>(injected);
    }
    if (!only_asks(name)) { s.contexts.try_emplace(thread.device, name); }
    const ncclResult_t result = body(s, lock, thread);
    settle(s);
    if (const auto late = s.late.find(name); late != s.late.end()) {
        const std::chrono::milliseconds after = late->second;
        lock.unlock();
        std::this_thread::sleep_for(after);
    }
    return result;
}

/// Sets what ncclGetLastError answers on this thread.
ncclResult_t nccl_error(State& state, ncclResult_t code, std::string text);
/// Queues what a group has collected.
ncclResult_t queue_launch(State& state, const Launch& launch);

}  // namespace standin
