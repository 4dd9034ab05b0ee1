// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <string>

#include <shardkit/backend/host/processor.hpp>
#include <shardkit/core/version.hpp>

#include "../../examples/common/input_error.hpp"
#include "../../examples/common/text_format.hpp"

namespace benchmarks {

/// Holds a GPU that something is measured on, and the software below it: recorded with every result.
struct Gpu {
    std::string name;          ///< as the driver names its model
    std::uint64_t memory = 0;  ///< bytes
    std::string driver;        ///< "580.65.06"; "unknown" where the driver's own tool does not say
    std::string cuda;          ///< of the runtime that was linked: "13.0"
    std::string nccl;          ///< of the library that is loaded: "2.28.9"
};

/// Holds what a figure depends on besides the program: recorded with every result.
struct Machine {
    std::string processor;         ///< as the system names its model
    std::size_t processors = 0;    ///< that this process may use, by its affinity mask
    std::uint64_t last_cache = 0;  ///< bytes of the last-level cache; 0 when the system does not say
    std::uint64_t memory = 0;      ///< bytes
    std::string system;            ///< "Linux 6.1.0 x86_64"
    double load = 0;               ///< of the last minute: above 0 when others were busy too
    std::string date;              ///< of the run, in UTC: "2026-01-31T23:59:59Z"
    std::string compiler;          ///< "g++ 12.2.0"
    std::string flags;             ///< that this program was compiled with, where somebody says
    std::string version;           ///< of the library
    std::string commit =
        "unknown";           ///< of its tree, with "+modified" when that has changes; "unknown" if nobody says
    std::optional<Gpu> gpu;  ///< of the process that reports, where GPUs are measured

    /// Reads what the system says of itself.
    static Machine read();
};

namespace detail {

inline std::string processor_model() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("model name")) { return line.substr(line.find(':') + 2); }
    }
    return "unknown";
}

inline std::uint64_t system_value(int name) {
    const long value = sysconf(name);
    return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

inline std::uint64_t last_level_cache() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
    const std::uint64_t third = system_value(_SC_LEVEL3_CACHE_SIZE);
    return third > 0 ? third : system_value(_SC_LEVEL2_CACHE_SIZE);
#else
    return 0;
#endif
}

inline std::string system_name() {
    utsname system{};
    if (uname(&system) != 0) { return "unknown"; }
    return std::string(system.sysname) + " " + system.release + " " + system.machine;
}

inline std::string utc_date() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text.data();
}

}  // namespace detail

/// Returns the machine's bytes of memory.
inline std::uint64_t memory_of_machine() {
    return detail::system_value(_SC_PHYS_PAGES) * detail::system_value(_SC_PAGESIZE);
}

inline Machine Machine::read() {
    Machine machine;
    machine.processor = detail::processor_model();
    machine.processors = shardkit::host::detail::allowed_cpus();
    machine.last_cache = detail::last_level_cache();
    machine.memory = memory_of_machine();
    machine.system = detail::system_name();
    if (getloadavg(&machine.load, 1) != 1) { machine.load = 0; }
    machine.date = detail::utc_date();
#if defined(__clang__)
    machine.compiler = "clang++ " __clang_version__;
#else
    machine.compiler = "g++ " __VERSION__;
#endif
    machine.version = shardkit::version;
    return machine;
}

/// The GPU of that number.
/// @throws InputError that begins with `flag`, the one that asks for a GPU, when there is none with that number or
///         this program was built without CUDA. `wanted`: processes of this machine that need a GPU each
Gpu read_gpu(const std::string& flag, std::size_t number, std::size_t wanted);

/// What the system says of itself, with the flags of this program and the commit that benchmarks/run names.
Machine read_machine();

/// @throws InputError when the least that a run has to keep at once is more than this machine has; `smaller` names
/// the flags that make it less
inline void require_memory(double bytes, const std::string& smaller) {
    const std::uint64_t memory = memory_of_machine();
    if (bytes <= static_cast<double>(memory)) { return; }
    constexpr double most = 0x1p63;
    throw program::InputError("this run needs at least " +
                              program::bytes_text(static_cast<std::uint64_t>(bytes < most ? bytes : most)) +
                              " of memory at once, but this machine has " + program::bytes_text(memory) +
                              ": expected a smaller " + smaller);
}

}  // namespace benchmarks
