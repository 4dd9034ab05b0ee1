// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "../common/machine.hpp"
#include "../common/measure.hpp"
#include "options.hpp"

namespace benchmarks::kernels {

/// One kernel on one element type and size.
struct Row {
    KernelKind kernel{};
    DataType type{};
    std::uint64_t bytes = 0;              ///< read and written by each rank in a call
    std::uint64_t elements = 0;           ///< of each rank
    std::size_t tensors = 0;              ///< that are packed; 0 for what packs nothing
    std::size_t runs = 0;                 ///< that spans are cut into; 0 for what takes them whole
    std::size_t groups = 0;               ///< of a step; 0 for a kernel alone
    bool graph = false;                   ///< calls are launches of a CUDA graph
    std::optional<std::size_t> launches;  ///< of a call, counted on a GPU: kernels, copies and communications
    Figure figure;

    /// Bytes per second of all ranks together.
    double bandwidth(std::size_t ranks, const Summary& time) const noexcept {
        return static_cast<double>(bytes * ranks) / time.median;
    }
    double share_of_copy() const noexcept { return figure.copy->time.median / figure.time.median; }
};

/// Takes each row as soon as it is measured; called by rank 0.
using RowSink = std::function<void(const Row&)>;

/// Everything that the options ask for: on threads that work at the same time, or on a GPU.
void run_on_host(const Options& options, const RowSink& sink);
void run_on_gpu(const Options& options, const RowSink& sink);

/// The lines above the table, column names included.
std::string table_head(const Options& options, const Machine& machine);
std::string table_row(const Row& row, const Options& options);

/// The object that --json writes; docs/benchmarks_kernels.md names its members.
std::string json_report(const Options& options, const Machine& machine, const std::vector<Row>& rows);

}  // namespace benchmarks::kernels
