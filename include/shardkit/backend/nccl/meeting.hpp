// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace shardkit::nccl {

/// Where the processes of a job meet before NCCL connects them, and how rank 0 recognizes them.
struct Meeting {
    std::string host;  ///< rank 0's machine, as the others name it
    std::uint16_t port = 0;
    std::size_t rank = 0;
    std::size_t size = 1;
    /// A word of at most 64 bytes that the job's processes share. Rank 0 answers only processes that send it.
    std::string token;
};

}  // namespace shardkit::nccl
