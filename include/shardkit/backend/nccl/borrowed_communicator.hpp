// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::nccl::detail {

/// A rank's place in a communicator.
struct RankPlace {
    std::size_t rank;
    std::size_t size;
    int device;
};

/// Returns the place that NCCL reports.
/// @throws std::invalid_argument for a null communicator; CommError
inline RankPlace place_of(ncclComm_t comm, std::string_view doing, SourceLocation where) {
    if (comm == nullptr) { throw_invalid_argument(where, "nccl::Borrow: no communicator, expected one"); }
    int rank = 0;
    int size = 0;
    int device = 0;
    check(ncclCommUserRank(comm, &rank), "ncclCommUserRank", doing, where, comm);
    check(ncclCommCount(comm, &size), "ncclCommCount", doing, where, comm);
    check(ncclCommCuDevice(comm, &device), "ncclCommCuDevice", doing, where, comm);
    return {static_cast<std::size_t>(rank), static_cast<std::size_t>(size), device};
}

/// Checks a borrowed communicator. @throws std::invalid_argument unless it is on the World's GPU and has no more
/// ranks
inline void require_fits(const RankPlace& place, int device, std::size_t ranks, std::string_view axes,
                         SourceLocation where) {
    if (place.device != device) {
        throw_invalid_argument(where, "borrowed communicator ", axes, ": it is of GPU ", place.device,
                               ", expected this World's GPU ", device);
    }
    if (place.size > ranks) {
        throw_invalid_argument(where, "borrowed communicator ", axes, ": it has ", place.size,
                               " ranks, expected at most the World's ", ranks);
    }
}

}  // namespace shardkit::nccl::detail
