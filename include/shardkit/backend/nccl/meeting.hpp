// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>

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

namespace shardkit::nccl SHARDKIT_FACE {
/// Distributes the id that rank 0 creates to every rank of the job. Rank 0 listens at the port on all addresses of
/// its machine, and the others connect to the host, repeatedly if needed. The id is sent as plain text, as NCCL's own
/// connections are.
/// Source:  NCCL's own meeting point, NCCL_COMM_ID, needs an interface in the subnet of the address that rank 0's
///          machine has for the name (bootstrap.cc). Cloud machines and containers lack one, and NCCL 2.29.2 to
///          2.29.7 test for the opposite.
/// @throws  CommError that names the port when it is in use, the ranks that did not come within the timeout, or why
///          rank 0 did not answer; std::invalid_argument when the token is longer than 64 bytes
UniqueId meet(const Meeting& meeting, std::chrono::milliseconds timeout,
              SourceLocation where = SourceLocation::current());
}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/backend/nccl/rendezvous.hpp>
#endif
