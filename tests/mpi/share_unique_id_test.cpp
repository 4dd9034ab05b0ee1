// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/nccl/unique_id.hpp>

#include "standin.hpp"
#include "unit/backend/rank_checks.hpp"
#include "with_world.hpp"

namespace share_unique_id_test {

TEST_CASE("mpi: processes share NCCL's unique id; rank 0 makes it, and its failure is everybody's") {
    using namespace shardkit;
    for (const bool overlap : {false, true}) {
        mpi_test::with_world({.overlap = overlap}, [](const auto& world) {
            const bool first = world.rank() == 0;
            // Each process has a NCCL of its own, whose ids count up: no two would make the same one here.
            standin::reset();
            for (std::size_t i = 0; i < world.rank(); ++i) { static_cast<void>(nccl::UniqueId::create()); }

            const nccl::UniqueId id = nccl::share_unique_id(world);
            CHECK(standin::calls("ncclGetUniqueId") == (first ? 1 : world.rank()));
            std::array<std::byte, nccl::UniqueId::size> bytes{};
            std::ranges::copy(id.bytes(), bytes.begin());
            MPI_Bcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
            CHECK(std::ranges::equal(id.bytes(), bytes));

            if (first) { standin::fail_next("ncclGetUniqueId", ncclSystemError); }
            std::string error = "no error";
            try {
                static_cast<void>(nccl::share_unique_id(world));
            } catch (const CommError& caught) { error = caught.what(); }
            CAPTURE(error);
            CHECK(rank_checks::contains(error, "share_unique_id_test.cpp:"));
            CHECK(rank_checks::contains(error,
                                        first ? "ncclGetUniqueId returned 2" : "rank 0 could not create the id"));
            // The failure is over: the next one is there.
            CHECK(nccl::share_unique_id(world) != id);
        });
    }
}

}  // namespace share_unique_id_test
