// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../common/sweep.hpp"

namespace benchmarks::kernels {

/// Where the kernels run.
enum class Device : std::uint8_t { host, gpu };
enum class KernelKind : std::uint8_t { adamw, sgd, norm, cast, accumulate, pack, unpack, step };
enum class DataType : std::uint8_t { fp32, bf16 };

inline constexpr std::array<std::string_view, 2> device_names{"host", "gpu"};
inline constexpr std::array<std::string_view, 8> kernel_names{"adamw",      "sgd",  "norm",   "cast",
                                                              "accumulate", "pack", "unpack", "step"};
inline constexpr std::array<std::string_view, 2> type_names{"float", "bfloat16"};

/// What the command line says, checked.
struct Options : Sweep {
    Device device = Device::host;
    std::vector<KernelKind> kernels{KernelKind::adamw,      KernelKind::sgd,  KernelKind::norm,   KernelKind::cast,
                                    KernelKind::accumulate, KernelKind::pack, KernelKind::unpack, KernelKind::step};
    std::vector<DataType> types{DataType::fp32, DataType::bf16};
    std::size_t ranks = 1;
    std::size_t tensors = 300;           ///< that are packed, at most
    std::vector<std::size_t> runs{1};    ///< that the spans of adamw, sgd and norm are cut into, at most
    std::vector<std::size_t> groups{1};  ///< of a step, at most
    bool graph = false;                  ///< calls are captured in a CUDA graph and launched
};

constexpr bool packs(KernelKind kernel) noexcept {
    return kernel == KernelKind::pack || kernel == KernelKind::unpack;
}

constexpr bool takes_runs(KernelKind kernel) noexcept {
    return kernel == KernelKind::adamw || kernel == KernelKind::sgd || kernel == KernelKind::norm;
}

/// Bytes that a kernel reads and writes per element of type float or bfloat16.
///     adamw         parameter, both moments in fp32 read and written, gradient read; with bf16 also a copy for the
///                   gather written
///     sgd           parameter and momentum likewise
///     norm          gradient read; unscaling and the finite check ride along
///     cast          float to bfloat16, and back
///     accumulate    an addend of the type is added to a float
///     pack, unpack  an element read and written
///     step          the norm of fp32 gradients and adamw with them; with bfloat16 also a copy for the gather written
constexpr std::size_t bytes_per_element(KernelKind kernel, DataType type) noexcept {
    const std::size_t element = type == DataType::fp32 ? 4 : 2;
    switch (kernel) {
        case KernelKind::adamw:
            return 3 * 8 + 4;  // a gradient of 4 bytes, or one of 2 and the copy's 2
        case KernelKind::sgd:
            return 2 * 8 + 4;
        case KernelKind::norm:
            return element;
        case KernelKind::cast:
            return 4 + 2;
        case KernelKind::accumulate:
            return 8 + element;
        case KernelKind::pack:
        case KernelKind::unpack:
            return 2 * element;
        case KernelKind::step:
            return 4 + 3 * 8 + 4 + (type == DataType::fp32 ? 0 : 2);
    }
    return 0;
}

/// The options, checked; none, and `help` set, when help was asked for.
/// @throws InputError that names flag, given value and expectation
std::optional<Options> parse_command_line(int count, const char* const* arguments, std::string& help);

}  // namespace benchmarks::kernels
