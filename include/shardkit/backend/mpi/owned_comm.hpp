// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include <shardkit/backend/mpi/api.hpp>

namespace shardkit::mpi::detail {

/// The owner of an MPI_Comm. Move-only. Freeing is collective, so it is a call and not the destructor's work: an
/// owner that ends without `free`, because its rank fails, leaves the communicator to MPI_Abort.
class OwnedComm {
  public:
    OwnedComm() noexcept = default;
    explicit OwnedComm(MPI_Comm comm) noexcept : comm_(comm) {}
    OwnedComm(OwnedComm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
    OwnedComm& operator=(OwnedComm&& other) noexcept {
        std::swap(comm_, other.comm_);
        return *this;
    }
    OwnedComm(const OwnedComm&) = delete;
    OwnedComm& operator=(const OwnedComm&) = delete;
    ~OwnedComm() = default;

    MPI_Comm get() const noexcept { return comm_; }
    /// Collective over the communicator. Returns what MPI_Comm_free did.
    int free() noexcept { return comm_ == MPI_COMM_NULL ? MPI_SUCCESS : MPI_Comm_free(&comm_); }

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace shardkit::mpi::detail
