// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "state.hpp"

namespace standin {

bool Work::run(State&) {
    if (function) {
        in_host_function() = true;
        function();
        in_host_function() = false;
    }
    return true;
}

bool Work::uses(const Range& range) const {
    return std::any_of(ranges.begin(), ranges.end(), [&](const Range& each) { return each.overlaps(range); });
}

bool WaitForMark::run(State& state) { return advance(state, *awaited); }

// Depth first along what each operation strictly needs. Coming back to a stream that is already being advanced means
// that its first operation needs its own end: nothing can be done, and the answer is "not yet".
bool advance(State& state, CUstream_st& stream, std::uint64_t position) {
    if (stream.done >= position) { return true; }
    if (stream.advancing || stream.held || state.is_broken(stream.device)) { return false; }
    stream.advancing = true;
    while (stream.done < position && stream.queue.front()->run(state)) {
        stream.queue.front()->mark->done = true;
        stream.queue.front()->mark->when = std::chrono::steady_clock::now();
        stream.queue.pop_front();
        ++stream.done;
        state.dirty = true;
    }
    stream.advancing = false;
    return stream.done >= position;
}

bool advance(State& state, const Mark& mark) { return mark.done || advance(state, *mark.stream, mark.position); }

bool advance_device(State& state, int device) {
    bool all = true;
    for (const auto& stream : state.streams.all()) {
        if (stream->device == device && !advance(state, *stream, stream->queued)) { all = false; }
    }
    return all;
}

std::shared_ptr<Mark> push(State& state, CUstream_st& stream, std::unique_ptr<Operation> operation) {
    stream.queue.push_back(std::move(operation));
    stream.polls_left = state.query_delay;
    state.dirty = true;
    auto& mark = stream.queue.back()->mark;
    mark = std::make_shared<Mark>(Mark{&stream, ++stream.queued});
    return mark;
}

bool has_room(State& state, CUstream_st& stream) {
    if (stream.capture || stream.queue.size() < state.launch_queue) { return true; }
    return advance(state, stream, stream.queued + 1 - state.launch_queue);
}

bool has_room(State& state, const Launch& launch) {
    return std::all_of(launch.calls.begin(), launch.calls.end(), [&](const Launch::Call& call) {
        return state.streams.find(call.stream) == nullptr || has_room(state, *call.stream);
    });
}

cudaError_t make_room(State& state, Lock& lock, CUstream_st& stream) {
    const CUstream_st* const handle = &stream;
    const int device = stream.device;
    const bool done = block_until(state, lock, [&] {
        return state.streams.find(handle) == nullptr || state.is_broken(device) || has_room(state, stream);
    });
    if (state.is_broken(device)) { return state.broken.at(device); }
    return done ? cudaSuccess : cudaErrorLaunchTimeout;
}

void settle(State& state) {
    if (!state.dirty) { return; }
    while (state.dirty) {
        state.dirty = false;
        for (const auto& stream : state.streams.all()) {
            if (stream->pace == Pace::eager) { advance(state, *stream, stream->queued); }
        }
    }
    state.streams.remove_if([](const CUstream_st& each) { return each.destroyed && each.queue.empty(); });
    ++state.changes;
    state.changed.notify_all();
}

bool block_until(State& state, Lock& lock, const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + state.patience;
    while (!done()) {
        settle(state);
        const std::uint64_t seen = state.changes;
        if (done()) { break; }
        settle(state);
        ++state.blocked;
        const bool changed = state.changed.wait_until(lock, deadline, [&] { return state.changes != seen; });
        --state.blocked;
        if (!changed) {
            ++state.hangs;
            return false;
        }
    }
    return true;
}

}  // namespace standin
