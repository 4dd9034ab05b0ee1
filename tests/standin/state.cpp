// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

#include <cstdlib>
#include <new>
#include <utility>

namespace standin {

void Allocation::Free::operator()(std::byte* pointer) const {
    ::operator delete (pointer, std::align_val_t{NCCL_WIN_REQUIRED_ALIGNMENT});
}

State& state() {
    // Never destroyed: static objects of a program may end later, and make calls.
    static State& the_state = *new State;
    return the_state;
}

bool& in_host_function() {
    thread_local bool inside = false;
    return inside;
}

ThreadState& this_thread(const State& state) {
    thread_local ThreadState* thread = nullptr;
    struct Owner {
        ~Owner() { delete std::exchange(thread, nullptr); }
    };
    thread_local const Owner owner;
    // Anew also where the end of a static object makes calls, after the thread's own objects have ended.
    if (thread == nullptr) { thread = new ThreadState; }
    if (thread->epoch != state.epoch) {
        *thread = {};
        thread->epoch = state.epoch;
    }
    return *thread;
}

void kill(State& state, int device) {
    for (const auto& comm : state.comms.all()) {
        if (comm->member().device == device) { comm->member().killed = true; }
    }
}

void read_launch_order(State& state) {
    if (state.launches_in_order) { return; }
    const char* const said = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    state.launches_in_order = state.nccl_version >= 22600 && said != nullptr && std::atoi(said) != 0;
}

bool has_ended(State& state, std::string_view name) {
    const auto at = state.calls_to_live.find(this_thread(state).device);
    if (at == state.calls_to_live.end()) { return false; }
    const bool asks = name.rfind("ncclCommGet", 0) == 0 || name.rfind("ncclGet", 0) == 0;
    if (at->second > 0) {
        at->second -= asks ? 0U : 1U;
        return false;
    }
    if (asks) { return false; }
    kill(state, at->first);
    state.broken[at->first] = cudaErrorUnknown;
    state.dirty = true;
    return true;
}

int count_call(State& state, std::string_view name) {
    const auto counter = state.calls.try_emplace(std::string(name)).first;
    ++counter->second;
    const auto at = state.injected.find(name);
    if (at == state.injected.end()) { return 0; }
    const int device = this_thread(state).device;
    auto& list = at->second;
    for (auto each = list.begin(); each != list.end(); ++each) {
        if (each->device != any_device && each->device != device) { continue; }
        if (each->successes == 0) {
            const int code = each->code;
            list.erase(each);
            return code;
        }
        --each->successes;
    }
    return 0;
}

}  // namespace standin
