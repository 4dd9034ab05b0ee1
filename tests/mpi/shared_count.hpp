// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

namespace mpi_test {

/// A count in memory that all processes see: it says who has come how far without a call of MPI. Collective.
class SharedCount {
  public:
    SharedCount() {
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        void* mine = nullptr;
        MPI_Win_allocate_shared(rank == 0 ? sizeof(std::atomic<int>) : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                                static_cast<void*>(&mine), &window_);
        if (rank == 0) { new (mine) std::atomic<int>(0); }
        MPI_Aint bytes = 0;
        int unit = 0;
        MPI_Win_shared_query(window_, 0, &bytes, &unit, static_cast<void*>(&count_));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    ~SharedCount() { MPI_Win_free(&window_); }
    SharedCount(const SharedCount&) = delete;
    SharedCount& operator=(const SharedCount&) = delete;

    void add() noexcept { count_->fetch_add(1); }
    bool reaches(int value, std::chrono::seconds limit) const {
        const auto end = std::chrono::steady_clock::now() + limit;
        while (count_->load() < value && std::chrono::steady_clock::now() < end) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return count_->load() >= value;
    }

  private:
    MPI_Win window_ = MPI_WIN_NULL;
    std::atomic<int>* count_ = nullptr;
};

}  // namespace mpi_test
