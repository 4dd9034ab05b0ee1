// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

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

}  // namespace benchmarks
