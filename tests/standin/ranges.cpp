// SPDX-License-Identifier: Apache-2.0
#include <nvtx3/nvToolsExt.h>

#include <map>
#include <utility>

#include "standin.hpp"

namespace {

/// Of a thread, as NVTX's pushed ranges are.
struct Ranges {
    bool records = false;
    std::vector<std::string> calls;
    std::vector<std::string> pushed;
    std::map<nvtxRangeId_t, std::string> started;
    nvtxRangeId_t last = 0;

    void note(const char* call, const std::string& name) {
        if (records) { calls.push_back(std::string(call) + " " + name); }
    }
};
thread_local Ranges of_thread;

}  // namespace

int nvtxRangePushA(const char* message) {
    of_thread.note("push", message);
    of_thread.pushed.emplace_back(message);
    return static_cast<int>(of_thread.pushed.size()) - 1;
}
int nvtxRangePop() {
    if (of_thread.pushed.empty()) {
        of_thread.note("pop", "of nothing");
        return -2;  // NVTX_NO_PUSH_POP_TRACKING
    }
    of_thread.note("pop", of_thread.pushed.back());
    of_thread.pushed.pop_back();
    return static_cast<int>(of_thread.pushed.size());
}
nvtxRangeId_t nvtxRangeStartA(const char* message) {
    of_thread.note("start", message);
    of_thread.started[++of_thread.last] = message;
    return of_thread.last;
}
void nvtxRangeEnd(nvtxRangeId_t id) {
    const auto at = of_thread.started.find(id);
    of_thread.note("end", at == of_thread.started.end() ? "of nothing" : at->second);
    if (at != of_thread.started.end()) { of_thread.started.erase(at); }
}

namespace standin {

void record_ranges() { of_thread.records = true; }
std::vector<std::string> recorded_ranges() { return std::exchange(of_thread.calls, {}); }
std::size_t open_ranges() { return of_thread.pushed.size() + of_thread.started.size(); }

}  // namespace standin
