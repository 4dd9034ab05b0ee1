// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../common/machine.hpp"
#include "../common/measure.hpp"
#include "options.hpp"

namespace benchmarks::checkpoints {

/// One thing that was timed, beside its limit.
struct Row {
    std::string what;              ///< "save"
    std::string limit_is;          ///< "plain pwrite and fdatasync"; empty without a limit
    Summary time;                  ///< in seconds, over all ranks
    std::optional<Summary> limit;  ///< of as many bytes

    double share() const noexcept { return limit->median / time.median; }
};

struct Measured {
    std::vector<Row> rows;
    std::uint64_t state_bytes = 0;    ///< of all elements
    std::uint64_t bytes_written = 0;  ///< by one save of all ranks, as its file calls counted them
    std::uint64_t bytes_read = 0;     ///< by one load
    std::uint64_t collectives_save = 0;
    std::uint64_t collectives_load = 0;
    std::uint64_t extra_memory_save = 0;  ///< the process' peak above what it had before, in bytes
    std::uint64_t extra_memory_load = 0;
    double digest_share = 0;  ///< by how much digests lengthen plain writes into the page cache
    std::uint64_t wrong = 0;  ///< bytes that differ after a load and another save
};

/// Everything that the options ask for, on threads.
Measured run(const Options& options);

std::string table_head(const Options& options, const Machine& machine);
std::string table(const Measured& measured);
/// The object that --json writes; docs/benchmarks_checkpoints.md names its members.
std::string json_report(const Options& options, const Machine& machine, const Measured& measured);

}  // namespace benchmarks::checkpoints
