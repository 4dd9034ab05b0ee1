// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include "standin/standin.hpp"

/// The stand-in as new, and a check at the end that nothing of it is left: streams, events, memory, the
/// selected device, last error, broken rules.
class CleanMachine {
  public:
    explicit CleanMachine(standin::Pace pace = standin::Pace::lazy) {
        standin::reset();
        standin::set_pace(pace);
        static_cast<void>(cudaSetDevice(0));  // a program that has selected it, and so has a context there
        standin::reset_calls();
    }
    CleanMachine(const CleanMachine&) = delete;
    CleanMachine& operator=(const CleanMachine&) = delete;
    ~CleanMachine() {
        const standin::Live live = standin::live();
        CHECK(live.streams == 0);
        CHECK(live.events == 0);
        CHECK(live.graphs == 0);
        CHECK(live.executable_graphs == 0);
        CHECK(live.device_allocations == 0);
        CHECK(live.host_allocations == 0);
        CHECK(standin::frees_in_use().empty());
        CHECK(standin::hangs() == 0);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        int device = -1;
        CHECK(cudaGetDevice(&device) == cudaSuccess);
        CHECK(device == 0);
    }
};
