// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/backend/mpi/api.hpp>
#include <shardkit/backend/mpi/check.hpp>
#include <shardkit/backend/mpi/thread_level.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::mpi {

/// MPI from here to the end of the scope: the first thing in main() of a program that does not initialise MPI
/// itself. Nothing else in the library initialises or finalises MPI.
/// MPI can be initialised once in the life of a process.
class Environment {
  public:
    /// @throws CommError when MPI is or was initialised already, or offers a lower thread level than `wanted`
    explicit Environment(ThreadLevel wanted = ThreadLevel::serialized,
                         SourceLocation where = SourceLocation::current()) {
        int initialized = 0;
        detail::check(MPI_Initialized(&initialized), "MPI_Initialized", doing, where);
        if (initialized != 0) {
            throw CommError("mpi", doing, "MPI is initialised already; leave mpi::Environment out", where);
        }
        int provided = 0;
        detail::check(MPI_Init_thread(nullptr, nullptr, detail::to_mpi(wanted), &provided), "MPI_Init_thread", doing,
                      where);
        if (detail::from_mpi(provided) < wanted) {
            MPI_Finalize();
            throw CommError("mpi", doing,
                            shardkit::detail::concat("this MPI offers ", name(detail::from_mpi(provided)),
                                                     ", asked for ", name(wanted)),
                            where);
        }
    }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;
    ~Environment() { MPI_Finalize(); }

    /// This process's number among all that were started together, and how many these are.
    static std::size_t rank() noexcept {
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        return static_cast<std::size_t>(rank);
    }
    static std::size_t size() noexcept {
        int size = 1;
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        return static_cast<std::size_t>(size);
    }

  private:
    static constexpr const char* doing = "initialisation";
};

}  // namespace shardkit::mpi
