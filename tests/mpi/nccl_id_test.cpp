// SPDX-License-Identifier: Apache-2.0
// MPI's processes share NCCL's unique id.
#include <cstddef>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/unique_id.hpp>

#include "standin.hpp"
#include "with_world.hpp"

namespace nccl_id_test {

TEST_CASE("mpi: NCCL's unique id that rank 0 makes is every process's by one broadcast") {
    using namespace shardkit;
    // Each process has a NCCL of its own, whose ids count up: no two would make the same one here.
    standin::reset();
    const std::size_t rank = mpi::Environment::rank();
    for (std::size_t i = 0; i < rank; ++i) { static_cast<void>(nccl::UniqueId::create()); }
    const nccl::UniqueId made = nccl::UniqueId::create();
    nccl::UniqueId id = made;
    MPI_Bcast(id.bytes.data(), sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK((id == made) == (rank == 0));
    nccl::UniqueId of_last = id;
    MPI_Bcast(of_last.bytes.data(), sizeof of_last, MPI_BYTE, static_cast<int>(mpi::Environment::size()) - 1,
              MPI_COMM_WORLD);
    CHECK(of_last == id);
}

}  // namespace nccl_id_test
