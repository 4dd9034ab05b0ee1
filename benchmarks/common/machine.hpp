// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "../../examples/common/input_error.hpp"
#include "../../examples/common/text_format.hpp"

namespace benchmarks {

/// A GPU that something is measured on, and the software below it: recorded with every result.
struct Gpu {
    std::string name;          ///< as the driver names its model
    std::uint64_t memory = 0;  ///< bytes
    std::string driver;        ///< "580.65.06"; "unknown" where the driver's own tool does not say
    std::string cuda;          ///< of the runtime that was linked: "13.0"
    std::string nccl;          ///< of the library that is loaded: "2.28.9"

    /// @throws InputError that begins with `flag`, the one that asks for a GPU, when there is none with that number
    /// or
    ///         this program was built without CUDA. `wanted`: processes of this machine that need a GPU each
    static Gpu read(const std::string& flag, std::size_t number, std::size_t wanted);
};

/// Bytes.
std::uint64_t memory_of_machine();

/// What a figure depends on besides the program: recorded with every result.
struct Machine {
    std::string processor;         ///< as the system names its model
    std::size_t processors = 0;    ///< that this process may use, by its affinity mask
    std::uint64_t last_cache = 0;  ///< bytes of the last-level cache; 0 when the system does not say
    std::uint64_t memory = 0;      ///< bytes
    std::string system;            ///< "Linux 6.1.0 x86_64"
    double load = 0;               ///< of the last minute: above 0 when others were busy too
    std::string date;              ///< of the run, in UTC: "2026-01-31T23:59:59Z"
    std::string compiler;          ///< "g++ 12.2.0"
    std::string flags;             ///< that this program was compiled with
    std::string version;           ///< of the library
    std::string commit;            ///< of its tree, with "+modified" when that has changes; "unknown" if nobody says
    std::optional<Gpu> gpu;        ///< of the process that reports, where GPUs are measured

    static Machine read();
};

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
