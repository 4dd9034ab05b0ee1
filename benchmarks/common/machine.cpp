// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include <shardkit/backend/host/processor.hpp>

namespace benchmarks {

namespace {

std::string processor_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("model name")) { return line.substr(line.find(':') + 2); }
    }
    return "unknown";
}

std::uint64_t system_value(int name) {
    const long value = sysconf(name);
    return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

std::uint64_t last_level_cache() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
    const std::uint64_t third = system_value(_SC_LEVEL3_CACHE_SIZE);
    return third > 0 ? third : system_value(_SC_LEVEL2_CACHE_SIZE);
#else
    return 0;
#endif
}

std::string system_name() {
    utsname system{};
    if (uname(&system) != 0) { return "unknown"; }
    return std::string(system.sysname) + " " + system.release + " " + system.machine;
}

std::string utc_date() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text.data();
}

}  // namespace

std::uint64_t memory_of_machine() { return system_value(_SC_PHYS_PAGES) * system_value(_SC_PAGESIZE); }

Machine Machine::read() {
    Machine machine;
    machine.processor = processor_model();
    machine.processors = shardkit::host::detail::allowed_cpus();
    machine.last_cache = last_level_cache();
    machine.memory = memory_of_machine();
    machine.system = system_name();
    if (getloadavg(&machine.load, 1) != 1) { machine.load = 0; }
    machine.date = utc_date();
#if defined(__clang__)
    machine.compiler = "clang++ " __clang_version__;
#else
    machine.compiler = "g++ " __VERSION__;
#endif
    machine.flags = BENCHMARKS_FLAGS;
    machine.version = BENCHMARKS_VERSION;
    const char* const commit = std::getenv("SHARDKIT_COMMIT");
    machine.commit = commit != nullptr && *commit != '\0' ? commit : "unknown";
    return machine;
}

}  // namespace benchmarks
