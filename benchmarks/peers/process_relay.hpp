// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include <shardkit/backend/mpi/api.hpp>

#include "console.hpp"

namespace benchmarks::peers {

/// Gives every process of an MPI job the commands that rank 0 receives. Who waits, sleeps: MPI itself would spin, on
/// processors that belong to the peer meanwhile.
class ProcessRelay {
  public:
    /// Collective over MPI_COMM_WORLD.
    ProcessRelay() {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
        MPI_Comm_rank(comm_, &rank_);
        MPI_Comm_size(comm_, &size_);
    }
    ProcessRelay(const ProcessRelay&) = delete;
    ProcessRelay& operator=(const ProcessRelay&) = delete;
    ~ProcessRelay() { MPI_Comm_free(&comm_); }

    /// Collective over the processes.
    Command next() {
        std::string line;
        if (rank_ == 0) {
            line = read_line();
            for (int to = 1; to < size_; ++to) {
                MPI_Send(line.data(), static_cast<int>(line.size()), MPI_CHAR, to, 0, comm_);
            }
        } else {
            MPI_Status status;
            int is_there = 0;
            for (;;) {
                MPI_Iprobe(0, 0, comm_, &is_there, &status);
                if (is_there != 0) { break; }
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            int count = 0;
            MPI_Get_count(&status, MPI_CHAR, &count);
            line.resize(static_cast<std::size_t>(count));
            MPI_Recv(line.data(), count, MPI_CHAR, 0, 0, comm_, MPI_STATUS_IGNORE);
        }
        return words_of(line);
    }

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0;
    int size_ = 1;
};

}  // namespace benchmarks::peers
