// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace program {

/// Resident memory of this process, in bytes; 0 where the system does not say.
struct ResidentMemory {
    std::uint64_t now = 0;
    std::uint64_t peak = 0;

    static ResidentMemory read() {
        ResidentMemory memory;
        std::ifstream status("/proc/self/status");
        for (std::string line; std::getline(status, line);) {
            std::istringstream words(line);
            std::string name;
            std::uint64_t kibibytes = 0;
            words >> name >> kibibytes;
            if (name == "VmRSS:") { memory.now = kibibytes * 1024; }
            if (name == "VmHWM:") { memory.peak = kibibytes * 1024; }
        }
        return memory;
    }
};

}  // namespace program
